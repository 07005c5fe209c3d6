"""The verdict on a model that is no plain chain, in words: where it leaves its bands, which of four things is wrong.

explodes, vanishes, inputs become indistinguishable, sparsity lost
"""

from hush.diagnose.diagnosis import Layer, StreamPoint
from hush.diagnose.verdict import describe_measured
from hush.nn.structure import listed
from hush.theory.training_rule import BlockVerdict

__all__ = ["write_block_verdict"]


def write_block_verdict(
    layers: tuple[Layer, ...],
    stream: tuple[StreamPoint, ...],
    verdict: BlockVerdict | None,
    reason: str,
    restarts: tuple[str, ...],
    batched: bool,
    shares: tuple[float, float],
    twins: tuple[str, ...] = (),
) -> str:
    """`reason` says why nothing is predicted, and is empty where something is; `shares` explode and vanish; `twins`
    are weights that start as copies of each other."""
    if reason:
        sentences = describe_measured(layers, reason, *shares)
    else:
        sentences = [f"{_variance(layers)}; {_sparsity(layers)}.", *_stream(stream)]
    sentences.append(_outlook(verdict))
    if restarts and not reason:
        sentences.append(
            f"There is no rule for {listed(restarts, quoted=False)}: behind it the prediction starts again from what "
            f"was measured there."
        )
    if twins and not reason:
        sentences.append(
            f"The weights {listed(twins)} start as copies of each other, and the theory takes every layer's for new."
        )
    if batched:
        sentences.append(
            "BatchNorm used the statistics of each chunk of inputs, as in training; it divides by what tells inputs "
            "apart, so whether they become indistinguishable is not judged."
        )
    return " ".join(sentences)


def _variance(layers: tuple[Layer, ...]) -> str:
    known = [layer for layer in layers if layer.q_band is not None]
    outside = [layer for layer in known if layer.leaves_band]
    text = f"q lies in its band in {len(known) - len(outside)} of {len(layers)} layers"
    if outside and outside[0].q_band is not None:
        first = outside[0]
        low, high = outside[0].q_band
        share = "" if first.inside is None else f"{first.inside:.0%} of the inputs inside, "
        text += f" and leaves it first at {first.name!r} ({share}median {first.q:.3g}, band {low:.3g} to {high:.3g})"
    return text


def _sparsity(layers: tuple[Layer, ...]) -> str:
    text = f"{sum(layer.sparsity for layer in layers) / len(layers):.3f} of the units are exactly zero"
    expected = [layer.sparsity_predicted for layer in layers if layer.sparsity_predicted is not None]
    return f"{text}, {sum(expected) / len(expected):.3f} expected" if expected else text


def _stream(stream: tuple[StreamPoint, ...]) -> list[str]:
    if not stream:
        return []
    first, last = stream[0], stream[-1]
    text = f"The stream's variance goes from {first.p:.3g} to {last.p:.3g} over {len(stream)} sums"
    if first.p_predicted is not None and last.p_predicted is not None:
        text += f", {first.p_predicted:.3g} to {last.p_predicted:.3g} expected"
    outside = [p for p in stream if p.p_band is not None and not p.p_band[0] <= p.p <= p.p_band[1]]
    if outside:
        text += f"; it leaves its band at {len(outside)} of them, first in {outside[0].name!r}"
    return [f"{text}."]


def _outlook(verdict: BlockVerdict | None) -> str:
    if verdict is None:
        return (
            "Whether it trains, hush cannot say: it takes at least two inputs, an output for each, and a gradient at "
            "the activations, which a head of zeros gives none."
        )
    named = [
        word
        for word, holds in (
            ("explodes", verdict.explodes),
            ("vanishes", verdict.vanishes),
            ("makes inputs indistinguishable", verdict.indistinguishable),
            ("loses its sparsity", verdict.sparsity_lost),
        )
        if holds
    ]
    if not named:
        return "It should train."
    outlook = "It should train, but it" if verdict.trains else "It will not train: it"
    return f"{outlook} {' and '.join(named)}: {'; '.join(verdict.reasons)}."
