"""Whether `hush.hold` keeps every layer at its target in a ResNet behind BatchNorm and in a transformer, as it stands.

    python -m benchmarks.hold_models

Digits at 8 x 8 pixels, and bytes of Python's own documentation; AdamW 1e-3, the hold at its default gain, dead units
left alone and brought back. Printed for each network: the layer farthest from its target over the last window, the same
in eval mode (where BatchNorm goes by its running statistics), dead units of the worst layer, and the loss of the last
50 steps.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

import hush
import hush.nn as hn
from hush.data import load
from hush.data.text import load_text, windows_at

Batch = tuple[Tensor, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsity", type=float, nargs="*", default=[0.8, 0.95])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument("--networks", nargs="*", default=list(_NETWORKS), choices=list(_NETWORKS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for sparsity in arguments.sparsity:
        for name in arguments.networks:
            for revive in (None, "bias"):
                torch.manual_seed(0)
                model, batch = _NETWORKS[name](sparsity)
                hold = hush.hold(model, sparsity, window=arguments.window, revive=revive)
                found = _train(model, batch, hold, sparsity, arguments.steps)
                print(f"{name} at {sparsity:g}, revive={revive!r}: {found}", flush=True)


def _train(model: nn.Module, batch: Callable[[], Batch], hold: hn.Hold, sparsity: float, steps: int) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report = hold.report()
    far = max(report.layers, key=lambda layer: abs((layer.zeros_of_window or 0.0) - layer.target))
    model.eval()
    shares = [hush.sparsity(model, batch()[0]).layers for _ in range(8)]
    seen = {layer: sum(each[layer] for each in shares) / len(shares) for layer in shares[0]}
    layer, zeros = max(seen.items(), key=lambda item: abs(item[1] - sparsity))
    dead = max(row.dead or 0.0 for row in report.layers)
    return (
        f"{far.name} is farthest, {far.zeros_of_window:.4f} over {report.window} steps; in eval {layer}, {zeros:.4f}; "
        f"dead units at most {dead:.3f}; {len(report.layers)} layers, loss {statistics.fmean(losses[-50:]):.3f}."
    )


def _resnet(sparsity: float) -> tuple[nn.Module, Callable[[], Batch]]:
    images, labels = load("digits", variance=1.0, seed=0).train.images, load("digits", seed=0).train.labels
    images = images.reshape(-1, 1, 8, 8)
    design = hush.design("crelu", sparsity, width=16, depth=6, block="residual", norm="layer")
    model = hn.resnet(1, 10, design)
    hush.init_(model, design, images[:64])

    def batch() -> Batch:
        part = torch.randint(len(images), (64,))
        return images[part], labels[part]

    return model, batch


def _gpt(sparsity: float, gated: bool = False) -> tuple[nn.Module, Callable[[], Batch]]:
    text = load_text().train
    design = hush.design("crelu", sparsity, width=64, depth=3, block="feedforward", norm="rms", hidden=256)
    model = hn.gpt(design, context=64, gated=gated)

    def batch() -> Batch:
        split = windows_at(text, torch.randint(len(text) - 65, (8,)), 64)
        return split.images, split.labels

    hush.init_(model, design, batch()[0])
    return model, batch


_NETWORKS: dict[str, Callable[[float], tuple[nn.Module, Callable[[], Batch]]]] = {
    "resnet": _resnet,
    "gpt": _gpt,
    "gated gpt": lambda sparsity: _gpt(sparsity, gated=True),
}

if __name__ == "__main__":
    main()
