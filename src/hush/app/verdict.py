"""The verdict in a headline and a sentence, on the Edge of Chaos and off it."""

from dataclasses import dataclass

from hush.theory import Design, FiniteWidth, Phase, Separations
from hush.theory.training_rule import INDISTINGUISHABLE_ODDS, TRAINABLE_ODDS

__all__ = ["Verdict", "judge", "judge_stream"]


@dataclass(frozen=True)
class Verdict:
    """Whether it trains by the calibrated rule, in large letters and with its reasons."""

    trains: bool
    headline: str
    sentence: str


def judge(design: Design, finite: FiniteWidth, phase: Phase | None, apart: Separations) -> Verdict:
    """The design's own verdict on the Edge of Chaos (phase None); off it, the phase and the odds decide."""
    trains = finite.trains and apart.indistinguishable <= INDISTINGUISHABLE_ODDS
    sentence = design.verdict if phase is None else _off_edge(finite, phase, apart)
    return Verdict(trains, _headline(finite, trains), sentence)


def judge_stream(design: Design) -> Verdict:
    """Of blocks on a residual stream: the design's own verdict, and the first of the four odds that is too high."""
    odds = design.odds
    assert odds is not None  # the page always has a width and a depth
    trains = bool(design.trains)
    reasons = (
        (odds.explode, "gradients explode"),
        (odds.vanish, "gradients vanish"),
        (odds.indistinguishable, "inputs become indistinguishable"),
    )
    worst = next((words for value, words in reasons if value > TRAINABLE_ODDS), "")
    if not trains:
        return Verdict(False, f"It will not train: {worst}." if worst else "It will not train.", design.verdict)
    headline = "It should train." if design.keeps_sparsity else "It should train, but loses its sparsity."
    return Verdict(True, headline, design.verdict)


def _headline(finite: FiniteWidth, trains: bool) -> str:
    if finite.explode > TRAINABLE_ODDS:
        return "It will not train: gradients explode."
    if finite.vanish > TRAINABLE_ODDS:
        return "It will not train: gradients vanish."
    return "It should train." if trains else "It will hardly train: inputs become indistinguishable."


def _off_edge(finite: FiniteWidth, phase: Phase, apart: Separations) -> str:
    if phase.q_star is None or phase.chi1 is None:
        where = "no fixed point attracts q, which runs away"
    elif phase.q_star == 0.0:
        where = f"every signal dies out, and χ₁ = {phase.chi1:.3g}"
    else:
        where = f"q settles at {phase.q_star:.3g}, where χ₁ = {phase.chi1:.3g} ({phase.regime.value})"
    odds = f"{finite.explode:.0%} of the initialisations explode and {finite.vanish:.0%} vanish"
    if apart.lost_at_depth is not None:
        odds += f", and inputs become indistinguishable from layer {apart.lost_at_depth} on"
    return f"Off the Edge of Chaos: {where}; at width {finite.width}, depth {finite.depth}, {odds}."
