"""Blocks on a residual stream against real random networks: stream, q, gain and correlation, as Markdown.

    python -m benchmarks.block_theory [--count 200] [--write docs/results/block_theory.md]

Every network is drawn with all its matrices, fed a pair of inputs of correlation 0.3, and the gradient of the first is
propagated back through the same matrices. A row is one block: kind × norm × branch scale, with the activations and the
sizes taking turns.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch

from benchmarks._origin import day_and_machine
from hush.theory import (
    IMAGE_NORMS,
    Activation,
    FeedForward,
    Residual,
    Smooth,
    bands,
    crelu,
    cst,
    finite_width,
    gelu,
    resolve_branch_scale,
    shifted_relu,
)

ACTIVATIONS = (crelu(1.2815515655446004, 1.0), cst(1.4395314709384563, 1.0), shifted_relu(1.0364333894937898), gelu())
NORMS = ((None, False), ("rms", False), ("layer", False), ("rms", True))
SCALES: tuple[str | float, ...] = ("1/sqrt(depth)", "1/depth", 1.0)
# (width, depth, expansion of a feed-forward block)
SIZES = ((64, 100, 2.0), (128, 30, 4.0), (256, 20, 2.0), (1024, 4, 1.0))
START = 0.3


@dataclass(frozen=True)
class Measured:
    """Of each network: |x|²/N of both inputs and q entering blocks 1 … depth, the correlation there, log10 gain from
    the last."""

    stream: np.ndarray
    other: np.ndarray
    q: np.ndarray
    correlation: np.ndarray
    gain: np.ndarray


def made_block(kind: str, phi: Activation, norm: str | None, post: bool, scale: float, expansion: float):
    """The block as `design` draws it: q = 1 at a stream of 1, the Edge of Chaos in what reads φ."""
    out = 1.0 / phi.slope_moment(1, 1.0)
    if kind == "residual":
        return Residual(phi, out**0.5, 0.0, norm, scale, post)
    if kind == "gated":
        out = 1.0 / (phi.slope_moment(1, 1.0) + phi.second_moment(1.0))
    up = 1.0 if kind == "gated" else None
    return FeedForward(phi, 1.0, 0.0, out**0.5, 0.0, norm, scale, expansion, up, post)


def measure(block, width: int, depth: int, count: int, seed: int) -> Measured:
    """`count` real networks, a batch at a time."""
    generator = torch.Generator().manual_seed(seed)
    norms = IMAGE_NORMS.at(np.random.default_rng(seed).standard_normal(count))
    hidden = width if isinstance(block, Residual) else block.preactivation_units(width)
    matrices = 1 if isinstance(block, Residual) else 3 if block.sigma_up is not None else 2
    batch = max(1, int(6e7 // (matrices * width * hidden * depth)))
    parts = [_networks(block, width, hidden, depth, part, generator) for part in torch.from_numpy(norms).split(batch)]
    return Measured(*(np.concatenate(column, axis=1) for column in zip(*parts, strict=True)))


def _networks(block, width: int, hidden: int, depth: int, norms: torch.Tensor, generator: torch.Generator):
    count, beta = len(norms), block.branch_scale
    front, behind = (block.norm, None) if block.reads_norm else (None, block.norm)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=generator)

    def apply(function, h: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.asarray(function(h.double().numpy()))).float()

    z = normal(width, 2)
    z[..., 1] = START * z[..., 0] + (1.0 - START**2) ** 0.5 * z[..., 1]
    x = norms.float().sqrt()[:, None, None] * z
    stream, other, q, correlation, tape = [], [], [], [], []
    for layer in range(depth):
        stream.append(x[..., 0].double().square().mean(1))
        other.append(x[..., 1].double().square().mean(1))
        correlation.append(torch.cosine_similarity(x[..., 0], x[..., 1], dim=1))
        read, read_scale = _normalise(front, x)
        if isinstance(block, Residual):
            first = up = None
            h, second = read, block.sigma_w * width**-0.5 * normal(width, width)
            active = apply(block.phi, h)
        else:
            first = block.sigma_1 * width**-0.5 * normal(hidden, width)
            second = block.sigma_2 * hidden**-0.5 * normal(width, hidden)
            h, active = first @ read, apply(block.phi, first @ read)
            up = None if block.sigma_up is None else block.sigma_up * width**-0.5 * normal(hidden, width)
            active = active if up is None else active * (up @ read)
        q.append(h[..., 0].double().square().mean(1))
        if layer + 1 < depth:
            following, scale = _normalise(behind, x + beta * (second @ active))
            tape.append(
                (first, second, up, read[..., 0], read_scale[..., 0], h[..., 0], following[..., 0], scale[..., 0])
            )
            x = following
    delta = normal(width)
    start, gains = delta.double().square().sum(1), []
    for first, second, up, read, read_scale, h, after, scale in reversed(tape):
        delta = _back(behind, after, scale, delta)
        back = torch.bmm(delta[:, None], second)[:, 0]
        slope = apply(block.phi.derivative, h)
        if first is None:
            branch = back * slope
        elif up is None:
            branch = torch.bmm((back * slope)[:, None], first)[:, 0]
        else:
            linear = torch.bmm(up, read[..., None])[..., 0]
            branch = torch.bmm((back * slope * linear)[:, None], first)[:, 0]
            branch = branch + torch.bmm((back * apply(block.phi, h))[:, None], up)[:, 0]
        delta = delta + beta * _back(front, read, read_scale, branch)
        gains.append(torch.log10(delta.double().square().sum(1) / start))
    return tuple(torch.stack(rows).numpy() for rows in (stream, other, q, correlation, gains[::-1]))


def _normalise(norm: str | None, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if norm is None:
        return x, torch.ones_like(x[:, :1])
    centred = x - x.mean(1, keepdim=True) if norm == "layer" else x
    scale = centred.square().mean(1, keepdim=True).sqrt()
    return centred / scale, scale


def _back(norm: str | None, normalised: torch.Tensor, scale: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    if norm is None:
        return gradient
    kept = gradient - normalised * (normalised * gradient).mean(1, keepdim=True)
    return (kept - kept.mean(1, keepdim=True) if norm == "layer" else kept) / scale


@dataclass(frozen=True)
class Row:
    """One block beside its networks; shares are of networks, errors absolute."""

    cells: tuple[str, ...]
    stream: float
    stream_90: float
    q: float
    gain_error: float
    gain_90: float
    correlation_error: float


def rows(count: int, skip: int = 0) -> Iterator[Row]:
    """Every kind × norm × scale, but for the first `skip`."""
    settings = product(("residual", "feedforward", "gated"), NORMS, SCALES)
    listed = list(enumerate(settings))
    # Kinds and norms take turns, so that a table cut short has some of each.
    for number, (kind, (norm, post), rule) in (listed[7 * i % len(listed)] for i in range(skip, len(listed))):
        phi = ACTIVATIONS[(number + number // 12) % len(ACTIVATIONS)]
        width, depth, expansion = SIZES[(number // 3 * 2 + number) % len(SIZES)]
        # A stream that doubles with every block is of interest for a few blocks only. What a gated branch without a
        # norm adds grows with the square of the stream: after 30 blocks some networks overflow even at 1/√depth.
        if norm is None and rule == 1.0:
            depth = min(depth, 3 if kind == "gated" else 12)
        elif norm is None and kind == "gated":
            depth = min(depth, 12 if rule == "1/sqrt(depth)" else 30)
        block = made_block(kind, phi, norm, post, resolve_branch_scale(rule, depth), expansion)
        seen = measure(block, width, depth, count, number)
        finite = finite_width(block, width=width, depth=depth)
        band = bands(block, width=width, depth=depth, q_start=1.0, norms=IMAGE_NORMS)
        # A band is for networks that train, which it judges ten blocks on; where they do not, it is not about these.
        beyond = finite_width(block, width=width, depth=depth + 10).explode
        healthy = (seen.gain.max(0) <= 3.0) & (beyond <= 0.1)
        low, high = (finite.stream_quantiles[level][-1] for level in (0.05, 0.95))
        yield Row(
            (kind, _place(norm, post), f"{rule}", phi.name, f"{width}", f"{depth}"),
            _share(_inside(seen.stream, band.stream), healthy),
            np.nan if post else float(np.mean((seen.stream[-1] > low) & (seen.stream[-1] < high))),
            _share(_inside(seen.q, band.q), healthy),
            abs(float(np.median(seen.gain[0])) - finite.gain_log10[0.5]),
            float(np.mean((seen.gain[0] > finite.gain_log10[0.05]) & (seen.gain[0] < finite.gain_log10[0.95]))),
            float(np.max(abs(_drift(block, seen) - _drift(block, drawn_pairs(block, width, depth, number))))),
        )  # fmt: skip


def _place(norm: str | None, post: bool) -> str:
    return "–" if norm is None else f"{norm}, behind" if post else norm


def _share(inside: np.ndarray, among: np.ndarray) -> float:
    return float(np.mean(inside[among])) if among.any() else np.nan


def drawn_pairs(block, width: int, depth: int, seed: int, count: int = 400) -> Measured:
    """What the finite-width theory draws for pairs of inputs (`Block.next_pair`), as `correlation_band` does."""
    rng = np.random.default_rng(seed)
    norms = np.sqrt(IMAGE_NORMS.at(rng.standard_normal(count)))[:, None]
    z_a, z_b = rng.standard_normal((2, count, width))
    x_a, x_b = norms * z_a, norms * (START * z_a + (1.0 - START**2) ** 0.5 * z_b)
    rows = []
    for layer in range(depth):
        if layer > 0:
            x_a, x_b = block.next_pair(x_a, x_b, rng)
        p_a, p_b = np.mean(x_a**2, axis=1), np.mean(x_b**2, axis=1)
        rows.append((p_a, p_b, np.mean(x_a * x_b, axis=1) / np.sqrt(p_a * p_b)))
    stream, other, correlation = (np.stack(column) for column in zip(*rows, strict=True))
    return Measured(stream, other, stream, correlation, stream)


def _drift(block, seen: Measured) -> np.ndarray:
    """By how much the correlation of a pair leaves the infinitely wide map on average, block by block.

    Measured from where each pair starts, which takes most of the noise out of the mean.
    """
    if block.norm is None and isinstance(block.phi, Smooth):
        # Two variances and a correlation for each pair and block take long by quadrature: fewer pairs.
        seen = Measured(*(part[:, :40] for part in (seen.stream, seen.other, seen.q, seen.correlation, seen.gain)))
    return np.mean(seen.correlation - _followed(block, seen), axis=1)


def _followed(block, seen: Measured) -> np.ndarray:
    """The correlation of each network's pair, followed by the infinitely wide map from where it was measured first."""
    p_a, p_b, rho = seen.stream[0], seen.other[0], seen.correlation[0].astype(np.float64)
    grid, followed = np.linspace(-1.0, 1.0, 401), [rho]
    # Behind a norm the branch sees the correlation alone: one table serves all pairs and blocks.
    one = np.ones_like(grid)
    table = block.branch_covariance_and_slope(grid, one, one)[0] if block.norm is not None else None
    for _ in range(len(seen.stream) - 1):
        # A stream that has run away is held there; its correlation is followed all the same.
        sum_a, sum_b = (np.minimum(p + block.branch_scale**2 * block.branch_variance(p), 1e30) for p in (p_a, p_b))
        free = block.branch_covariance_and_slope(rho, p_a, p_b)[0] if table is None else None
        branch = np.interp(rho, grid, table) if free is None else free
        rho = (rho * np.sqrt(p_a * p_b) + block.branch_scale**2 * branch) / np.sqrt(sum_a * sum_b)
        rho = np.clip(rho, -1.0, 1.0)
        p_a, p_b = (np.ones_like(sum_a),) * 2 if block.post_norm else (sum_a, sum_b)
        followed.append(rho)
    return np.stack(followed)


def _inside(values: np.ndarray, edge) -> np.ndarray:
    low, high = np.asarray(edge.low)[:, None], np.asarray(edge.high)[:, None]
    # Real networks compute in single precision.
    return np.all((values >= low * (1 - 1e-5)) & (values <= high * (1 + 1e-5)), axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="networks per row")
    parser.add_argument("--write", type=Path, help="write the page here too")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the page has, and go on behind them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun, found = time.monotonic(), []
    lines = [
        "| block | norm | β | φ | width | blocks | stream in band | at the end within 5–95 % | q in band | "
        "median log10 gain off by | gain within 5–95 % | correlation off by |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    if arguments.resume:
        there = arguments.write.read_text(encoding="utf-8").splitlines()
        lines += [line for line in there if line.startswith(("| residual", "| feedforward", "| gated"))]
        found = [[np.nan if cell == "–" else float(cell) for cell in line.split(" | ")[6:]] for line in
                 (line.strip("| ") for line in lines[2:])]  # fmt: skip
    print(*lines, sep="\n")
    for row in rows(arguments.count, len(found)):
        values = (row.stream, row.stream_90, row.q, row.gain_error, row.gain_90, row.correlation_error)
        lines.append("| " + " | ".join([*row.cells, *("–" if np.isnan(v) else f"{v:.3f}" for v in values)]) + " |")
        print(lines[-1], flush=True)
        found.append(values)
        if arguments.write:
            command = f"python -m benchmarks.block_theory --count {arguments.count} --write {arguments.write}"
            arguments.write.write_text(
                page(command, summary(np.array(found), arguments.count), lines), encoding="utf-8"
            )
    print(f"\n{summary(np.array(found), arguments.count)}\n{time.monotonic() - begun:.0f} s")


def summary(table: np.ndarray, count: int) -> str:
    """The table in four sentences; its columns are the figures of `Row`."""
    mean, least, most = (function(table, axis=0) for function in (np.nanmean, np.nanmin, np.nanmax))
    return (
        f"{len(table)} blocks, {count} networks each. Inside the 99 % band at every block: of the streams "
        f"{mean[0]:.3f} (worst row {least[0]:.3f}), of the q {mean[2]:.3f} ({least[2]:.3f}). Between the 5 and the "
        f"95 % quantile at the end, where 0.9 is right: of the streams {mean[1]:.3f}, of the gains {mean[4]:.3f}. The "
        f"median log10 gain is off by at most {most[3]:.3f}, the mean correlation anywhere by at most {most[5]:.3f}."
    )


def page(command: str, summary: str, lines: list[str]) -> str:
    """The results as a page."""
    return "\n".join(
        [
            "# Residual blocks against real random networks",
            "",
            f"`{command}`, {day_and_machine()}.",
            "",
            summary,
            "",
            "Bands are for networks whose gradient does not explode, and such networks are counted against them, in",
            "blocks where at most one in ten would explode in ten blocks more (– elsewhere). Quantiles are for all.",
            "The correlation of a pair is held against that of pairs drawn by the finite-width theory, both relative "
            + "to the infinitely wide map",
            "from where each pair enters the first block.",
            "",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    main()
