"""python -m benchmarks.position_theory [FILE.md]: the theory of positions beside real random networks.

Convolutional networks in one and two dimensions (zero and circular padding, stride, pooling, dilation, residual
streams) and transformers (causal and full, several logit variances, pre- and post-norm, gated, 2 to 24 layers) of
widths 64 to 512 are drawn in torch, each with its own weights, inputs and arriving gradient. Behind every step the
network's figures are compared with the prediction.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks._origin import day_and_machine
from benchmarks._random_networks import RandomNetwork
from hush import theory
from hush.theory import Activate, Branch, Convolution, Field, GlobalAverage, MaxPooling, Normalise, Step

# So many predicted deviations to either side make the band of a figure.
BAND = 4.0


@dataclass(frozen=True)
class Case:
    """One architecture: a name, its steps, what it reads, the gradient that arrives behind it, and its width."""

    name: str
    steps: tuple[Step, ...]
    field: Field
    gradient: Field
    width: int


def cases() -> Iterator[Case]:
    relu, crelu, gelu = theory.relu(), theory.crelu(1.0, 1.2), theory.gelu()
    sigma_w2, sigma_b2 = theory.edge_of_chaos(crelu, 1.0)
    edge = {"sigma_w": sigma_w2**0.5, "sigma_b": sigma_b2**0.5}
    he = {"sigma_w": 2.0**0.5, "sigma_b": 0.1}

    def images(*shape: int) -> Field:
        return Field.uniform(shape, 1.0, 0.2, inputs=2, between_inputs=0.3)

    def chain(phi: theory.Activation, depth: int, **more: object) -> tuple[Step, ...]:
        return (Activate(phi), Convolution(**more)) * depth  # type: ignore[arg-type]

    for width in (64, 256):
        yield Case("conv 1-d, zeros, ReLU, 8", chain(relu, 8, **he), images(24), Field.uniform((24,)), width)
        yield Case(
            "conv 1-d, circular, dilation 2, CReLU, 10",
            chain(crelu, 10, **edge, padding=2, dilation=2, mode="circular"),
            images(24),
            Field.uniform((24,)),
            width,
        )
        down = (*chain(relu, 2, **he), *chain(relu, 1, **he, stride=2)) * 2
        yield Case("conv 2-d, zeros, stride 2 twice, ReLU, 6", down, images(12, 12), Field.uniform((3, 3)), width)
        yield Case("conv 2-d, zeros, CReLU, 8", chain(crelu, 8, **edge), images(8, 8), Field.uniform((8, 8)), width)
        pools = (
            MaxPooling(relu, 3, 2, 1),
            Convolution(**he),
            *chain(relu, 1, **he),
            Activate(relu),
            theory.AveragePooling(2),
            Convolution(**he),
            Activate(relu),
            GlobalAverage(),
        )
        yield Case("conv 2-d, max 3×3, average 2×2, global", pools, images(12, 12), Field.uniform((1,)), width)
        vgg = (Convolution(**he), MaxPooling(relu, 2), Convolution(**he), MaxPooling(relu, 2), Convolution(**he))
        yield Case("conv 2-d, VGG: max 2×2 twice", vgg, images(12, 12), Field.uniform((3, 3)), width)
        block = Branch((Normalise("rms"), Convolution(1.0), Activate(relu), Convolution(2.0**0.5)), 0.5)
        halve = Branch(
            (Normalise("rms"), Convolution(1.0, stride=2), Activate(relu), Convolution(2.0**0.5)),
            0.5,
            (Convolution(1.0, kernel=1, stride=2, padding=0),),
        )
        resnet = (*(block,) * 3, halve, *(block,) * 3, halve, *(block,) * 3, Activate(relu), GlobalAverage())
        yield Case("ResNet, zeros, 11 blocks", resnet, images(12, 12), Field.uniform((1,)), width)
        plain = Branch((Activate(crelu), Convolution(sigma_w2**0.5)), 0.4)
        yield Case("residual 1-d, one matrix, CReLU, 12", (plain,) * 12, images(24), Field.uniform((24,)), width)

    def tokens(length: int) -> Field:
        rng = np.random.default_rng(length)
        return theory.Embedding(1.0, 0.5).of_tokens(rng.integers(0, 128, (2, length)))

    for causal in (False, True):
        for logit_sigma in (0.0, 0.7, 1.0, 1.5):
            for layers, length, width in ((2, 48, 64), (6, 32, 256), (24, 24, 128)):
                attention = theory.Attention(
                    sigma_q=logit_sigma, sigma_k=logit_sigma, causal=causal, head_dim=width // 4
                )
                layer = theory.TransformerLayer(attention, theory.feed_forward(gelu if layers == 6 else relu, 1.0, 1.5))
                name = f"transformer, {'causal' if causal else 'full'}, v₀ = {logit_sigma**4:.2g}, {layers} layers"
                yield Case(name, (layer,) * layers, tokens(length), Field.uniform((length,)), width)
        attention = theory.Attention(sigma_q=1.0, sigma_k=1.0, causal=causal, head_dim=64)
        kind = "causal" if causal else "full"
        post = theory.TransformerLayer(attention, theory.feed_forward(relu, 1.0, 1.4), norm="layer", post_norm=True)
        yield Case(f"transformer, {kind}, post-norm, 6 layers", (post,) * 6, tokens(32), Field.uniform((32,)), 256)
        gated = theory.gated_feed_forward(crelu, 1.0, 1.0, sigma_w2**0.5)
        layer = theory.TransformerLayer(attention, gated, scale=0.5)
        pooled = Field.uniform((32,), 1.0, 1.0)
        yield Case(f"transformer, {kind}, gated CReLU, mean-pooled, 8 layers", (layer,) * 8, tokens(32), pooled, 512)


@dataclass(frozen=True)
class Row:
    """The worst of one case over its steps and networks, means over networks where the name says so."""

    case: Case
    in_band: float  # share of (network, step) whose variance lies in its band
    q_in_band: float
    sparsity: float  # the mean sparsity's largest error
    gain: float  # the mean log gradient's largest error, in decades
    gain_single: float  # that of a single network
    gain_in_band: float
    correlation: float  # the mean correlation's largest error between positions
    scatter: float  # a single network's standard deviation of it
    between_inputs: float
    input_scatter: float
    in_deviations: tuple[float, float, float]  # rms error over predicted deviation: variance, q, gradient


def compare(case: Case, seed: int, count: int) -> Row:
    predicted = theory.run_steps(case.steps, case.field, case.gradient, width=case.width)
    networks = [
        RandomNetwork(case.width, seed + s).measure(case.steps, case.field, case.gradient, seed + s)
        for s in range(count)
    ]
    read = [found for row in predicted for found in row.preactivations]

    def table(name: str) -> np.ndarray:
        return np.array([getattr(network, name) for network in networks], dtype=float)

    variance = np.log(table("variance") / [row.variance for row in predicted])
    # Behind a norm the variance is 1 in every network, up to single precision.
    inside = abs(variance) <= BAND * np.array([row.deviation for row in predicted]) + 1e-5
    q = np.log(table("q") / [found.q for found in read])
    q_inside = abs(q) <= BAND * np.array([found.deviation for found in read])
    gain = table("gradient_log10") - [row.gradient_log10 for row in predicted]
    gain_inside = abs(gain) <= BAND * np.array([row.gradient_deviation for row in predicted]) + 0.05
    correlation = table("position_correlation") - [row.position_correlation for row in predicted]
    between = table("input_correlation") - [row.input_correlation for row in predicted]
    return Row(
        case,
        float(inside.mean()),
        float(q_inside.mean()),
        float(abs(table("sparsity").mean(0) - [found.sparsity for found in read]).max()),
        float(abs(gain.mean(0)).max()),
        float(abs(gain).max()),
        float(gain_inside.mean()),
        float(abs(correlation.mean(0)).max()),
        float(correlation.std(0, ddof=1).max()),
        float(abs(between.mean(0)).max()),
        float(between.std(0, ddof=1).max()),
        (
            _rms(variance, [row.deviation for row in predicted]),
            _rms(q, [found.deviation for found in read]),
            _rms(gain, [row.gradient_deviation for row in predicted]),
        ),
    )


def _rms(errors: np.ndarray, deviations: list[float]) -> float:
    """The root mean square of error/deviation over networks and steps; steps that cannot vary are left out."""
    known = np.array(deviations)
    varies = known > 1e-6
    return float(np.sqrt(np.mean((errors[:, varies] / known[varies]) ** 2))) if varies.any() else 1.0


def markdown(rows: list[Row], seconds: float, seed: int, count: int) -> str:
    lines = [
        "# The theory of positions beside real networks",
        "",
        f"`python -m benchmarks.position_theory docs/results/position_theory.md --seed {seed} --count {count}`, "
        f"{day_and_machine()}, {seconds:.0f} s; torch {torch.__version__}.",
        "",
        f"{len(rows) * count} random networks, {count} of each kind, every one with its own weights, input and "
        "arriving gradient. "
        f"A band is {BAND:g} predicted standard deviations to either side of the prediction, the gain's 0.05 decades "
        "more. "
        f"*mean* is the error of the mean over the {count} networks at the worst step, *one* that of the worst single "
        "network, *scatter* the standard deviation of single networks at the worst step.",
        "",
        "How deviations add up along a stream, when heads are drawn, and the width of the bands were settled while "
        "looking at networks of these kinds with seed 0; networks of another seed are fresh, the kinds are not.",
        "",
        "| network | width | variance in band | q in band | gain in band | sparsity, mean | gain, mean (one), decades "
        "| position correlation, mean (scatter) | between inputs, mean (scatter) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shares = f"{row.in_band:.1%} | {row.q_in_band:.1%} | {row.gain_in_band:.1%}"
        lines.append(
            f"| {row.case.name} | {row.case.width} | {shares} | {row.sparsity:.3f} | {row.gain:.2f} "
            f"({row.gain_single:.2f}) | {row.correlation:.3f} ({row.scatter:.3f}) | {row.between_inputs:.3f} "
            f"({row.input_scatter:.3f}) |"
        )

    def mean(name: str) -> float:
        return float(np.mean([getattr(row, name) for row in rows]))

    def share(name: str, most: float) -> str:
        values = [getattr(row, name) for row in rows]
        return f"{sum(value <= most for value in values)} of {len(rows)} kinds (at worst {max(values):.3f})"

    spread = [f"{np.median([row.in_deviations[i] for row in rows]):.2f}" for i in range(3)]

    def sure(error: str, scatter: str) -> str:
        pairs = [(getattr(row, error), getattr(row, scatter)) for row in rows]
        return f"{sum(e <= 0.02 + 3.0 * s / count**0.5 for e, s in pairs)} of {len(rows)}"

    lines += [
        "",
        f"All together: {mean('in_band'):.1%} of the variances, {mean('q_in_band'):.1%} of the q and "
        f"{mean('gain_in_band'):.1%} of the gains of single networks lie in their bands. The mean gain is within 0.3 "
        f"decades in {share('gain', 0.3)}; the mean sparsity within 0.02 in {share('sparsity', 0.02)}. The mean "
        f"correlation between positions is within 0.02 in {share('correlation', 0.02)}, within 0.02 and three "
        f"standard errors of that mean in {sure('correlation', 'scatter')}; between inputs in "
        f"{share('between_inputs', 0.02)} and {sure('between_inputs', 'input_scatter')}. Single networks scatter about "
        "the mean as the columns say, by some 1/√N at width N; plain chains of a thresholded "
        "activation, whose gain depends on q, scatter the most. The root mean "
        f"square error of single networks, in predicted deviations, has the median {spread[0]} for the variance, "
        f"{spread[1]} for q and {spread[2]} for the gradient over the kinds: below 1 the bands are wider than need be.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="networks of each kind")
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    given = parser.parse_args()
    torch.set_num_threads(1)
    start, rows = time.monotonic(), []
    for i, case in enumerate(cases()):
        if given.only not in case.name:
            continue
        rows.append(compare(case, given.seed + 1000 * i, given.count))
        print(f"{len(rows)} kinds, {time.monotonic() - start:.0f} s", flush=True)
    text = markdown(rows, time.monotonic() - start, given.seed, given.count)
    print(text)
    if given.path is not None:
        given.path.write_text(text)


if __name__ == "__main__":
    main()
