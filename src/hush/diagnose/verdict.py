"""The verdict on a plain chain, in words; and what is said of a model of which nothing can be predicted."""

import math

from hush.diagnose.diagnosis import Layer
from hush.diagnose.prediction import Prediction
from hush.nn.structure import listed
from hush.theory import Design
from hush.theory.training_rule import TRAINABLE_ODDS

__all__ = ["describe_measured", "write_verdict"]


def write_verdict(
    layers: tuple[Layer, ...],
    prediction: Prediction,
    explode: float,
    vanish: float,
    design: Design | None,
) -> str:
    """Of a chain: where q goes, how sparse the layers are, what becomes of the gradient and of the difference between
    inputs, and what follows from it."""
    outside = next((layer for layer in layers if layer.leaves_band), None)
    sentences = [
        f"{_variance(layers, outside)}; {_sparsity(layers)}, {_mean(prediction.bands.sparsity.median):.3f} expected.",
        _outlook(prediction, outside, explode, vanish, design),
    ]
    if prediction.note:
        sentences.append(prediction.note)
    return " ".join(sentences)


def describe_measured(layers: tuple[Layer, ...], reason: str, explode: float, vanish: float) -> list[str]:
    """Every sentence here states a measurement; what becomes of it in training is left open."""
    first, last = layers[0], layers[-1]
    sentences = [f"Nothing is predicted: {reason}."]
    if len(layers) == 1:
        sentences.append(f"Measured at the one activation: q is {first.q:.3g}; {_sparsity(layers)}.")
    else:
        sentences.append(f"Measured over {len(layers)} activations: {_growth(layers)}; {_sparsity(layers)}.")
        sentences.append(f"|δ| at {first.name!r} is {_power(0.5 * first.gain_log10)} that at {last.name!r};")
        sentences.append(f"the {_shares(explode, vanish)}.")
    if broken := [layer.name for layer in layers if not math.isfinite(layer.q)]:
        sentences.append(f"From {broken[0]!r} on the activations are no longer finite.")
    if dead := [layer.name for layer in layers if layer.dead == 1.0]:
        sentences.append(f"Gives out zeros only, for all of these inputs: {listed(dead)}.")
    if explode > TRAINABLE_ODDS:
        sentences.append("So the gradient explodes on its way through the activations, as measured.")
    elif vanish > TRAINABLE_ODDS and len(layers) == 1:
        sentences.append(f"For {vanish:.0%} of the inputs no gradient gets through it, as measured.")
    elif vanish > TRAINABLE_ODDS:
        sentences.append("So the gradient vanishes on its way through the activations, as measured.")
    return sentences


def _power(exponent: float) -> str:
    """10^exponent, as how many times something is something else: a median over the inputs."""
    if exponent == math.inf:
        return "not finite, against"
    return f"{10.0**exponent:.3g} times (median over the inputs)" if exponent < 300.0 else f"10^{exponent:.3g} times"


def _growth(layers: tuple[Layer, ...]) -> str:
    """q at both ends, by how much it grew or shrank, and where it is largest if that is in between."""
    first, last, top = layers[0], layers[-1], max(layers, key=lambda layer: layer.q)
    text = f"q goes from {first.q:.3g} to {last.q:.3g}"
    ratio = last.q / first.q if first.q > 0.0 else 1.0
    if math.isfinite(ratio) and not 0.5 <= ratio <= 2.0:
        text += f" (×{ratio:.3g})"
    if top.q > 2.0 * max(first.q, last.q):
        text += f", with {top.q:.3g} at {top.name!r}"
    return text


def _outlook(
    prediction: Prediction,
    outside: Layer | None,
    explode: float,
    vanish: float,
    design: Design | None,
) -> str:
    text = f"The {_shares(explode, vanish)}"
    if explode > TRAINABLE_ODDS:
        return f"{text}: it will not train."
    if vanish > TRAINABLE_ODDS:
        return f"{text}: the first layers will hardly learn."
    apart = prediction.apart
    if apart is not None and apart.indistinguishable:
        expected = apart.expected
        return (
            f"{text}; in networks of this kind inputs become indistinguishable from layer {expected.lost_at_depth} on: "
            f"two of these end at 1 − ρ = {expected.at_end:.1e}, {apart.measured:.1e} as measured, and need "
            f"{expected.bounds[-1]:.1e}: it will hardly train."
        )
    if outside is None:
        return f"{text}: it should train."
    text += ": it should train; but it does not follow the theory"
    wanted = design.input_variance if design is not None else None
    if wanted is not None and not 0.5 <= prediction.q_start / wanted <= 1.6:
        return f"{text}: the inputs have |x|²/N = {prediction.q_start:.3g} and the design wants {wanted:g}."
    return f"{text}: were its weights drawn by hush.init_, and its inputs scaled as the report advised?"


def _variance(layers: tuple[Layer, ...], outside: Layer | None) -> str:
    last = layers[-1]
    if outside is None or outside.q_band is None:
        return f"q stays inside its band from the first layer to the last of {len(layers)}"
    low, high = outside.q_band
    return (
        f"q leaves its band at layer {outside.index} of {len(layers)} ({outside.name}: median {outside.q:.3g}, band "
        f"{low:.3g} to {high:.3g}, {1.0 - (outside.inside or 0.0):.0%} of the inputs outside) and stands at "
        f"{last.q:.3g} in the last"
    )


def _sparsity(layers: tuple[Layer, ...]) -> str:
    return f"{_mean([layer.sparsity for layer in layers]):.3f} of the units are exactly zero"


def _shares(explode: float, vanish: float) -> str:
    text = f"gradient grows more than thirtyfold on its way back for {explode:.0%} of the inputs"
    return f"{text} and vanishes for {vanish:.0%}" if vanish > 0.01 else text


def _mean(values: "list[float] | tuple[float, ...]") -> float:
    return sum(values) / len(values)
