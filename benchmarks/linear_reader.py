"""What a linear reader can tell of the digit from each layer of a chain that nobody has trained.

    python -m benchmarks.linear_reader --out docs/results/linear_reader.md

MNIST, 300 units a layer, a ridge regression of the ten classes on a layer's pre-activations, fitted to 6,000 images and
scored on 2,000 others. `directions` is the participation ratio (Σλ)² / Σλ² of their covariance. `spread` is the share
of their second moment in which inputs differ.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import hush
from benchmarks._origin import day_and_machine
from hush.data import load

_LAYERS = (1, 2, 5, 10, 20, 50, 100)
_WIDTH = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--activation", default="crelu")
    parser.add_argument("--sparsity", type=float, default=0.85)
    parser.add_argument("--v-prime", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    design = hush.design(asked.activation, asked.sparsity, v_prime=asked.v_prime, width=_WIDTH, depth=max(_LAYERS))
    data = load("mnist", variance=design.input_variance, per_image=True, flat=True, seed=asked.seed)
    fit, score = data.train.images[:6000], data.validation.images[:2000]
    lines = ["| start | " + " | ".join(f"layer {layer}" for layer in _LAYERS) + " |", "| --- " * 8 + "|"]
    for start, share in (("drawn", None), *((f"linear, share {share:g}", share) for share in (1e-1, 1e-2, 1e-3, 1e-4))):
        model = hush.nn.mlp(fit.shape[1], data.classes, design)
        hush.init_(model, design, generator=torch.Generator().manual_seed(asked.seed))
        if share is not None:
            generator = torch.Generator().manual_seed(asked.seed)
            hush.nn.linear_start_(model, design, fit[:2000], share=share, generator=generator)
        layers = zip(_hidden(model, fit), _hidden(model, score), strict=True)
        told = [_read(a, data.train.labels[:6000], b, data.validation.labels[:2000]) for a, b in layers]
        lines.append(f"| {start} | " + " | ".join(told) + " |")
        print(lines[-1], flush=True)
    if asked.out:
        title, _, explained = (__doc__ or "").split("\n\n", 2)
        command = f"`python -m benchmarks.linear_reader --out {asked.out}`, seed {asked.seed}, {design.activation}, "
        command += f"s = {asked.sparsity:g}, V′ = {asked.v_prime:g}, {day_and_machine()}"
        pieces = ["# A linear reader of untrained layers", title, explained.rstrip(), command, "\n".join(lines)]
        pieces.append("Each cell: accuracy / directions / spread.")
        asked.out.write_text("\n\n".join(pieces) + "\n")


@torch.no_grad()
def _hidden(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    found = []
    for name, module in model.named_children():
        x = module(x)
        if name in {f"layer{layer}" for layer in _LAYERS}:
            found.append(x.double())
    return found


def _read(h: Tensor, labels: Tensor, other: Tensor, other_labels: Tensor) -> str:
    mean = h.mean(0)
    spread = float((h - mean).square().sum() / h.square().sum())
    scale = (h - mean).square().mean().sqrt()
    h, other = (h - mean) / scale, (other - mean) / scale
    covariance = h.T @ h / len(h)
    values = torch.linalg.eigvalsh(covariance)
    ridge = covariance + 1e-4 * torch.eye(len(covariance), dtype=h.dtype)
    target = nn.functional.one_hot(labels, 10).double() - 0.1
    weights = torch.linalg.solve(ridge, h.T @ target / len(h))
    accuracy = float(((other @ weights).argmax(1) == other_labels).double().mean())
    return f"{accuracy:.3f} / {float(values.sum() ** 2 / values.square().sum()):.1f} / {spread:.1e}"


if __name__ == "__main__":
    main()
