"""python benchmarks/phases.py: where the time of a step goes, 100 layers × 300, beside the machine's roofline.

With --arch residual it is 60 blocks x + β(W φ(LayerNorm(x)) + b) × 300, and two phases run once more on a network whose
threshold no unit reaches: what the norms, the lists and the stream take without any product.

Each phase runs twice: over all matrices (36 or 22 MB, more than L2) and over one matrix used for all layers, which
stays in L2. The difference is the price of fetching weights. Phases are those of the fused SGD step:

    forward           without gradients, as in inference
    + saving          what the forward of a step does besides: sorting the active units by input
    input gradient    the backward with all weights frozen
    whole backward    and weight and bias gradients and the SGD update, in the same sweep

First the roofline is measured: multiply-adds on registers, and reading from L1, L2, L3 and memory. Then for each phase
its time, its GFLOP/s, and the GB/s of the two streams it cannot do without: weights from where they lie (read once by
each phase, and written once by the whole backward), and the operands of its multiply-adds from L1 and L2 (one vector of
weights or of δ for each). The last column is the largest of the three as a share of its roof: how much of the machine
the phase uses at least. All of this is counted as if every sample went by its own list; where a batch shares its active
units a weight serves several samples, and more than 100 % says so.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Any, Literal

import torch

from hush import sparse
from hush.bench import Roofline, measure_roofline, random_network
from hush.bench.random_networks import random_residual
from hush.bench.timing import Work, interleaved
from hush.nn import CReLU
from hush.sparse.cpu import CpuBackend, CpuProgram
from hush.sparse.layout import on_large_pages
from hush.sparse.step_plan import PARTS as ALL_PARTS
from hush.sparse.step_plan import Part, Rule, States, StepPlan, place_of

Arch = Literal["chain", "residual"]

WIDTH, INPUTS = 300, 16
DEPTH: dict[Arch, int] = {"chain": 100, "residual": 60}
PARTS: dict[Arch, tuple[Part, ...]] = {"chain": ("weight", "bias"), "residual": ("weight", "bias", "gain", "shift")}
UNREACHED = 50.0  # a threshold


def chain(sparsity: float, shared: bool) -> tuple[CpuProgram, list[Any]]:
    """A program, and the tensors that it reads."""
    model = random_network(WIDTH, DEPTH["chain"], sparsity)
    linears = [m for m in model if isinstance(m, torch.nn.Linear)]
    phis = [sparse.Activation.crelu(m.threshold, m.clip) for m in model if not isinstance(m, torch.nn.Linear)]
    weights = on_large_pages([m.weight.detach() for m in linears])  # as accelerate does
    biases = [m.bias.detach() for m in linears]
    if shared:
        weights, biases = [weights[0]] * len(linears), [biases[0]] * len(linears)
    return CpuBackend().compile(weights, biases, phis), [weights, biases]


def residual(sparsity: float, shared: bool, silent: bool = False) -> tuple[CpuProgram, list[Any]]:
    """The same of residual blocks; silent: no unit is active."""
    depth = DEPTH["residual"]
    modules = list(random_residual(WIDTH, depth, sparsity).modules())
    linears = [m for m in modules if isinstance(m, torch.nn.Linear)]
    norms = [m for m in modules if isinstance(m, torch.nn.LayerNorm)]
    phis = [m for m in modules if isinstance(m, CReLU)]
    weights = on_large_pages([m.weight.detach() for m in linears])
    blocks = [
        sparse.ResidualBlock(
            weights[0] if shared else weight,
            linear.bias.detach(),
            sparse.Activation.crelu(UNREACHED if silent else phi.threshold, phi.clip),
            sparse.Norm.LAYER,
            norm.eps,
            norm.weight.detach(),
            norm.bias.detach(),
            depth**-0.5,
        )
        for weight, linear, norm, phi in zip(weights, linears, norms, phis, strict=True)
    ]
    return CpuBackend().compile_residual(blocks), [blocks]


def phases(arch: Arch, sparsity: float, batch: int, shared: bool) -> dict[str, Work]:
    """name → work. Shared: all layers use one matrix."""
    found = works(arch, *(chain if arch == "chain" else residual)(sparsity, shared), batch)
    if arch == "residual":
        silent = works(arch, *residual(sparsity, shared, silent=True), batch)
        found |= {f"{name}, no unit active": silent[name] for name in ("forward", "input gradient")}
    return found


def works(arch: Arch, program: CpuProgram, kept: list[Any], batch: int) -> dict[str, Work]:
    """The phases of a program; `kept` is what it reads."""
    generator = torch.Generator().manual_seed(2)
    inputs = [torch.randn(batch, WIDTH, generator=generator) for _ in range(INPUTS)]
    grad = torch.randn(batch, WIDTH, generator=generator) / batch

    def forward(save: bool) -> Work:
        run = program.forward if save else program.infer
        return lambda turn: run(inputs[turn % INPUTS]) if kept else None

    saved = [program.forward(x).saved for x in inputs]

    def backward(parts: tuple[Part, ...]) -> Work:
        each = 2 if arch == "chain" else len(ALL_PARTS)
        plan = StepPlan(DEPTH[arch], each)
        places = [place_of(layer, part, each) for layer in range(DEPTH[arch]) for part in parts]
        # SGD, at a rate that leaves the weights where they are.
        plan.update(places, [Rule(2, 1e-9)] * len(places), [States()] * len(places))
        return lambda turn: program.backward(grad, saved[turn % INPUTS], False, plan)

    return {
        "forward": forward(False),
        "saving": forward(True),
        "input gradient": backward(()),
        "whole backward": backward(PARTS[arch]),
    }


@dataclass(frozen=True)
class Traffic:
    """What a phase must do at least: multiply-adds, and bytes of weights and of operands."""

    flops: float
    weights: float
    operands: float

    def row(self, milliseconds: float, roofline: Roofline, where: str) -> list[str]:
        """Its rates in such a time, and the largest share of a roof; `where` the weights lie."""
        seconds = 1e-3 * max(milliseconds, 1e-6)
        flops, weights, operands = (1e-9 * each / seconds for each in (self.flops, self.weights, self.operands))
        shares = {
            "FMA": flops / roofline.gflops,
            where: weights / roofline.gb_s[where],
            "L1": operands / roofline.gb_s["L1"],
        }
        bound = max(shares, key=lambda each: shares[each])
        return [f"{flops:.0f}", f"{weights:.0f}", f"{operands:.0f}", f"{100 * shares[bound]:.0f} % of {bound}"]


def traffic(arch: Arch, sparsity: float, batch: int) -> dict[str, Traffic]:
    """By phase. A multiply-add reads one operand from memory; the other one and the sum are in registers."""
    depth = DEPTH[arch]
    products = (1 - sparsity) * batch * depth * WIDTH * WIDTH
    # Rows of weights that some sample of the batch reads.
    read = 4 * depth * WIDTH * WIDTH * (1 - sparsity**batch)
    return {
        "forward": Traffic(2 * products, read, 4 * products),
        # Each active unit is written with its sample and read again, sorted by input.
        "saving": Traffic(0.0, 0.0, 2 * 8 * (1 - sparsity) * batch * depth * WIDTH),
        "input gradient": Traffic(2 * products, read, 4 * products),
        # Each δ is loaded once for both products, and W is written besides.
        "whole backward": Traffic(4 * products, 2 * read, 4 * products),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a step goes.")
    parser.add_argument("--arch", choices=("chain", "residual"), default="chain")
    parser.add_argument("--sparsity", type=float, default=0.85)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 64, 128])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    rooflines = {threads: measure_roofline(threads) for threads in given.threads}
    for roofline in rooflines.values():
        print(roofline, flush=True)
    print("\n| batch | threads | weights | phase | ms | GFLOP/s | weights, GB/s | operands, GB/s | at least |")
    print("|---|---|---|---|---|---|---|---|---|")
    for batch in given.batch:
        for threads in given.threads:
            torch.set_num_threads(threads)
            timed = {
                f"{where} {name}": work
                for where in ("all", "one")
                for name, work in phases(given.arch, given.sparsity, batch, where == "one").items()
            }
            found = {name: statistics.median(t) for name, t in interleaved(timed, given.repeats).items()}
            for where, level in (("all", "memory"), ("one", "L2")):
                f, s, g, u = (
                    found[f"{where} {name}"] for name in ("forward", "saving", "input gradient", "whole backward")
                )
                for name, time in (("forward", f), ("saving", s - f), ("input gradient", g), ("whole backward", u)):
                    cells = traffic(given.arch, given.sparsity, batch)[name].row(time, rooflines[threads], level)
                    label = f"+ {name}" if name == "saving" else name
                    print("|", " | ".join([str(batch), str(threads), where, label, f"{time:.2f}", *cells]), "|")
                for name, time in found.items():
                    if name.startswith(where) and name.endswith("no unit active"):
                        print(
                            f"| {batch} | {threads} | {where} | {name.removeprefix(where + ' ')} | {time:.2f} | | | | |"
                        )
                flop = 6 * (1 - given.sparsity) * batch * DEPTH[given.arch] * WIDTH * WIDTH
                print(
                    f"| {batch} | {threads} | {where} | step | {s + u:.2f} | {flop / (s + u) / 1e6:.0f} | | | |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
