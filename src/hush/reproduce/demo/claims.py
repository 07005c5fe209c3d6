"""What hush claims, each claim beside what this run measured: one that does not hold here says so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hush.reproduce.demo.network_rows import NetworkRow
from hush.reproduce.demo.step_times import StepTime

__all__ = ["ACCURACY_GAP", "SPARSITY_GAP", "Claim", "claims_of"]

# So far below its dense twin is still as accurate, and so far from the target is still held.
ACCURACY_GAP = 0.01
SPARSITY_GAP = 0.01
# A step that is this much quicker is quicker; less is the noise of a machine that does other things too.
_QUICKER = 1.05


@dataclass(frozen=True)
class Claim:
    """A claim, whether it holds in this run, and the figures that say so."""

    claim: str
    holds: bool
    measured: str


def claims_of(
    rows: Sequence[NetworkRow], steps: Sequence[StepTime], sparsity: float, test_images: int
) -> tuple[Claim, ...]:
    """The claims of the demo, held against what it measured.

    Arguments:
        rows: those of the four networks, in the order of `DemoNetworks`.
        sparsity: the target.
        test_images: how many each accuracy was measured on.
    """
    dense, held, drifting, exploding = rows
    return (
        _accuracy(dense, held, test_images),
        _held(held, sparsity),
        _drift(drifting, sparsity),
        _explosion(exploding),
        _verdicts(rows),
        _speed(steps),
    )


def _accuracy(dense: NetworkRow, held: NetworkRow, test_images: int) -> Claim:
    gap = held.test_accuracy - dense.test_accuracy
    seeds = len(held.test_accuracies)
    by = f"{100 * abs(gap):.1f} points {'below' if gap < 0.0 else 'above'}" if round(gap, 3) else "no difference"
    return Claim(
        f"As accurate as its dense twin (at most {100 * ACCURACY_GAP:g} point below)",
        # Accuracies are whole numbers of images: a gap of exactly the limit must not fail by a rounding error.
        gap >= -ACCURACY_GAP - 1e-9,
        f"{held.test_accuracy:.3f} beside {dense.test_accuracy:.3f} ({_seeds(seeds)}, {test_images} test images): {by}",
    )


def _held(held: NetworkRow, sparsity: float) -> Claim:
    far = max(sparsity - held.lowest_layer, held.highest_layer - sparsity)
    return Claim(
        f"{100 * sparsity:g} % zeros in every layer at the end (within {SPARSITY_GAP:g})",
        far <= SPARSITY_GAP,
        f"{held.lowest_layer:.3f} to {held.highest_layer:.3f} over {held.layers} layers on the test set",
    )


def _drift(drifting: NetworkRow, sparsity: float) -> Claim:
    return Claim(
        f"Left alone, the zeros go (more than {SPARSITY_GAP:g} on average)",
        drifting.mean_zeros < sparsity - SPARSITY_GAP,
        f"{drifting.mean_zeros:.3f} on average, {drifting.lowest_layer:.3f} in the lowest layer",
    )


def _explosion(exploding: NetworkRow) -> Claim:
    growth = max((g for g in exploding.gradient_growth if math.isfinite(g)), default=None)
    grew = "" if growth is None else f"; at the first step its gradient grows up to 10^{growth:.1f}-fold backwards"
    return Claim(
        "A chain of shifted ReLUs with as many zeros comes apart, as was said beforehand",
        all(exploding.came_apart) and not exploding.predicted_trains,
        "; ".join(dict.fromkeys(outcome.partition("; ")[0] for outcome in exploding.outcomes)) + grew,
    )


def _verdicts(rows: Sequence[NetworkRow]) -> Claim:
    seen = [held for row in rows for held in row.went_as_predicted]
    right, open_still = seen.count(True), seen.count(None)
    later = f", {open_still} ended too early to tell" if open_still else ""
    measured = f"in {right} of {len(seen)} runs{later}"
    return Claim("What the verdicts said before training came true", right == len(seen), measured)


def _speed(steps: Sequence[StepTime]) -> Claim:
    dense = next(step for step in steps if step.network == "ReLU")
    plain, fast = (step for step in steps if step.network == "CReLU, held")
    gain = dense.ms / fast.ms
    return Claim(
        f"The zeros become speed (a step at least {_QUICKER:g} times as fast as the dense twin's)",
        gain >= _QUICKER,
        f"{gain:.2f} times: {fast.ms:.1f} ms accelerated, {plain.ms:.1f} ms on torch, {dense.ms:.1f} ms for ReLU; "
        f"{fast.fused} of {fast.linears} Linears fused",
    )


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"means of {count} seeds"
