"""python benchmarks/shared_units.py [--run RUN]: how many active units a batch shares, and when dense products pay.

First a deep random chain, layer by layer: the share of units active in one sample, and in any of 4, 16 and 128.
Deep down all inputs have nearly the same active units. With --run, the same of a chain that `hush train` has trained on
images, on 1,024 of its test images.

Then the time of one layer, forward and backward, on a batch of 128 whose samples have 45 of 300 units each, drawn from
`together` units that any of them may have. The kernels take the dense product over those while they are few, and lists
of each sample's own units beyond. Where inference changes from one to the other its time should not jump; a jump says
that the bound (native/forward_by_samples.cpp) is wrong for this machine. In training a layer by itself, whose outputs
all have gradients, takes lists sooner than one whose outputs are shared units of the next.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from torch import Tensor, nn

from hush import sparse
from hush.bench import random_network
from hush.bench.timing import Work, interleaved
from hush.nn import checkpoint
from hush.nn.recognise import is_activation
from hush.sparse.cpu import CpuBackend
from hush.sparse.step_plan import Rule, States, StepPlan, place_of
from hush.train import TrainConfig
from hush.train.material import load_material

WIDTH, DEPTH, BATCH, ACTIVE = 300, 100, 128, 45
TOGETHER = (45, 60, 80, 100, 120, 124, 126, 150, 180, 220, 300)


@torch.no_grad()
def overlap(model: nn.Sequential, x: Tensor) -> list[list[float]]:
    """Of each layer of activations, the shares of units active in any of 1, 4, 16 and 128 samples."""
    rows = []
    for module in model:
        x = module(x)
        if is_activation(module):
            active = (x != 0).unflatten(0, (-1, BATCH))
            rows.append([float(active.unflatten(1, (-1, n)).any(2).double().mean()) for n in (1, 4, 16, BATCH)])
    return rows


def print_overlap(title: str, rows: list[list[float]]) -> None:
    print(f"\n{title}: active in one, any of 4, any of 16, any of {BATCH} samples")
    for layer, shares in enumerate(rows):
        if layer in (0, 1, 2, 5, 10, 20, 50, len(rows) - 1):
            print(f"  layer {layer:3d}  " + "  ".join(f"{share:.3f}" for share in shares))
    print("  mean       " + "  ".join(f"{statistics.fmean(column):.3f}" for column in zip(*rows, strict=True)))


def trained(run: Path) -> tuple[nn.Sequential, Tensor]:
    """The network of a run, and test images as it has learnt them."""
    config = TrainConfig.from_json((run / "config.json").read_text())
    model, _ = checkpoint.load(run)
    assert isinstance(model, nn.Sequential)
    return model.eval(), load_material(config).test.images[:1024]


def one_layer(together: int) -> dict[str, Work]:
    """Forward without and with what the backward needs, and the whole backward with an SGD step."""
    generator = torch.Generator().manual_seed(together)
    h = torch.full((BATCH, WIDTH), -1.0)
    columns = torch.randperm(WIDTH, generator=generator)[:together]
    for row in h:
        chosen = columns[torch.randperm(together, generator=generator)[:ACTIVE]]
        row[chosen] = torch.rand(ACTIVE, generator=generator) + 0.5
    weight = (torch.randn(WIDTH, WIDTH, generator=generator) / ACTIVE**0.5).t()
    bias = torch.zeros(WIDTH)
    program = CpuBackend().compile([weight], [bias], [sparse.Activation.relu()])
    saved = program.forward(h).saved
    grad = torch.randn(BATCH, WIDTH, generator=generator)
    plan = StepPlan(1)
    plan.update([place_of(0, "weight"), place_of(0, "bias")], [Rule(2, 1e-9)] * 2, [States()] * 2)
    kept = [weight, bias]  # the program reads this memory
    return {
        "inference": lambda turn: program.infer(h) if kept else None,
        "forward": lambda turn: program.forward(h) if kept else None,
        "backward": lambda turn: program.backward(grad, saved, True, plan) if kept else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparsity", type=float, nargs="*", default=[0.85, 0.95])
    parser.add_argument("--run", type=Path, help="A run directory of `hush train`.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=101)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for sparsity in given.sparsity:
        inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(2))
        print_overlap(
            f"{DEPTH} layers × {WIDTH}, s = {sparsity:g}", overlap(random_network(WIDTH, DEPTH, sparsity), inputs)
        )
    if given.run:
        print_overlap(given.run.name, overlap(*trained(given.run)))
    works = {f"{n} {name}": work for n in TOGETHER for name, work in one_layer(n).items()}
    found = {name: statistics.median(times) for name, times in interleaved(works, given.repeats).items()}
    print(f"\none layer of {WIDTH}, batch {BATCH}, {ACTIVE} active, {given.threads} threads, µs")
    print("| together | inference | forward | backward |\n|---|---|---|---|")
    for n in TOGETHER:
        cells = [f"{1e3 * found[f'{n} {name}']:.0f}" for name in ("inference", "forward", "backward")]
        print("|", " | ".join([str(n), *cells]), "|")


if __name__ == "__main__":
    main()
