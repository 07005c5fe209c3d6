"""Every gradient of feed-forward blocks on every instruction set, against float64, dense float32's error beside it.

    python benchmarks/feedforward_exact.py docs/results/feedforward_exact.md [--cases 120]

Each case is drawn from its number: plain and gated blocks, with and without biases, matrices and sequences of them,
both layouts of the weights, 1 and 2 threads, five activations. The error of a tensor is its largest difference from
float64 over its own largest entry. Who is active is decided once, in float32: float64 is given φ's slope and offset.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

import hush
from benchmarks._origin import day_and_machine
from hush.nn.models.transformers import FeedForward, GatedFeedForward
from hush.sparse import crossover, lone_linear

LANES = ("avx512", "avx2", "portable")
NAMES = {
    "up.weight": "∂W₁ or ∂W_up",
    "up.bias": "∂b₁",
    "gate.weight": "∂W_gate",
    "down.weight": "∂W₂",
    "down.bias": "∂b₂",
}


class Decided(nn.Module):
    """slope ∘ h + offset: φ on the sides of its kinks where these h lie."""

    def __init__(self, phi: nn.Module, h: Tensor) -> None:
        super().__init__()
        h = h.detach().requires_grad_()
        y = phi(h)
        (slope,) = torch.autograd.grad(y.sum(), h)
        self.slope = slope.double()
        # Behind slope 1 the offset is that of the whole piece; computed in float32 it would be wrong in the last digit.
        threshold, clip = phi.threshold, getattr(phi, "clip", 0.0)
        shift = 0.0 if isinstance(phi, hush.nn.FATReLU) else threshold
        sign = y.detach().sign().double()
        self.offset = torch.where(slope != 0, -shift * sign, clip * sign * (y.detach() != 0))

    def forward(self, h: Tensor) -> Tensor:
        return self.slope * h + self.offset


def case(number: int) -> dict[str, tuple[float, float]]:
    """The errors of the engine and of dense float32, by name of the tensor."""
    dice = Random(number)
    torch.manual_seed(number)
    torch.set_num_threads(dice.choice([1, 2]))
    width, hidden = dice.choice([5, 16, 40, 96, 130]), dice.choice([7, 64, 200, 333])
    shape = dice.choice([(dice.randint(1, 300), width), (dice.randint(1, 4), dice.randint(1, 60), width)])
    threshold = dice.choice([0.0, 0.5, 1.28, 1.64])
    make = dice.choice([hush.nn.CReLU, hush.nn.CST, hush.nn.ShiftedReLU, hush.nn.SoftThreshold, hush.nn.FATReLU])
    phi = make(threshold, 0.8) if make in (hush.nn.CReLU, hush.nn.CST) else make(threshold)
    block = (GatedFeedForward if dice.random() < 0.4 else FeedForward)(width, hidden, phi)
    for linear in (m for m in block.modules() if isinstance(m, nn.Linear)):
        nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
        if linear.bias is not None and dice.random() < 0.3:
            linear.bias = None
    x, grad = torch.randn(shape), torch.randn(shape)
    exact = copy.deepcopy(block).double()
    exact.phi = Decided(phi, (block.gate if isinstance(block, GatedFeedForward) else block.up)(x))
    fast = hush.sparse.accelerate(copy.deepcopy(block), layout=dice.choice(["torch", "input_major"]))
    found = [_gradients(m, x.to(t), grad.to(t)) for m, t in ((fast, x.dtype), (block, x.dtype), (exact, torch.float64))]
    return {name: (_error(found[0][name], e), _error(found[1][name], e)) for name, e in found[2].items()}


def _gradients(model: nn.Module, x: Tensor, grad: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    out = model(x)
    out.backward(grad)
    return {
        "output": out.detach(),
        "∂x": x.grad,
        **{NAMES[k]: p.grad for k, p in model.named_parameters()},
    }


def _error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).abs().max() / exact.abs().max().clamp_min(1e-30)).item()


def run_here(cases: int) -> None:
    """On the instruction set that HUSH_ISA names, with both kinds of zeros left out whatever the clock says."""
    os.environ["HUSH_CROSSOVER"] = "always"
    # A Linear that reads no zeros is to use those of its gradient; one that does, those of what it reads.
    crossover.limit = lambda *a, by_gradient=False: 1.0 if by_gradient else 0.75
    calls, real = [0], lone_linear.sparse_products

    def counted(*given: object) -> object:
        calls[0] += 1
        return real(*given)  # type: ignore[arg-type]

    lone_linear.sparse_products = counted  # type: ignore[assignment]
    worst: dict[str, list[float]] = {}
    for number in range(cases):
        for name, errors in case(number).items():
            kept = worst.setdefault(name, [0.0, 0.0, 0.0])
            kept[:] = [max(kept[0], errors[0]), max(kept[1], errors[1]), kept[2] + 1]
    print(json.dumps({"isa": hush.sparse.isa(), "calls": calls[0], "worst": worst}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, help="the Markdown file to write")
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--here", action="store_true", help="one instruction set, that of HUSH_ISA, as JSON")
    arguments = parser.parse_args()
    if arguments.here:
        run_here(arguments.cases)
        return 0
    rows = []
    for lanes in LANES:
        command = [sys.executable, __file__, "--here", "--cases", str(arguments.cases)]
        done = subprocess.run(
            command, env={**os.environ, "HUSH_ISA": lanes}, capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout)
        for name, (ours, dense, count) in found["worst"].items():
            rows.append(f"| {found['isa']} | {name} | {count:.0f} | {ours:.1e} | {dense:.1e} |")
        print(f"{found['isa']}: {found['calls']} backwards by the zeros of a gradient")
    lines = [
        "# Feed-forward blocks on every instruction set",
        "",
        f"`python benchmarks/feedforward_exact.py docs/results/feedforward_exact.md --cases {arguments.cases}`, "
        f"{day_and_machine()}.",
        "",
        "Largest error over all cases: the largest difference from float64 over the tensor's largest entry.",
        "",
        "| instruction set | tensor | cases | engine | dense float32 |",
        "|---|---|---|---|---|",
        *rows,
    ]
    if arguments.page is not None:
        arguments.page.write_text("\n".join(lines) + "\n")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
