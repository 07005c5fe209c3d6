"""The verdict of a diagnosis, in words."""

from hush.diagnose.diagnosis import Layer
from hush.diagnose.prediction import Prediction
from hush.theory import Design
from hush.theory.training_rule import TRAINABLE_ODDS

__all__ = ["verdict"]


def verdict(
    layers: tuple[Layer, ...], prediction: Prediction | str, explode: float, vanish: float, design: Design | None
) -> str:
    """Where q goes, how sparse the layers are, what becomes of the gradient, and what follows from it."""
    outside = next((layer for layer in layers if layer.leaves_band), None)
    sentences = [_variance(layers, prediction, outside), _sparsity(layers, prediction)]
    end = _gradient(explode, vanish)
    if isinstance(prediction, Prediction) and outside is not None and max(explode, vanish) <= TRAINABLE_ODDS:
        end += "; but it does not follow the theory"
        wanted = design.input_variance if design is not None else None
        if wanted is not None and not 0.5 <= prediction.q_start / wanted <= 1.6:
            end += f": the inputs have |x|²/N = {prediction.q_start:.3g} and the design wants {wanted:g}"
        else:
            end += ": were its weights drawn by hush.init_, and its inputs scaled as the report advised?"
    end = end.rstrip(".")
    sentences.append(end if end.endswith("?") else f"{end}.")
    if isinstance(prediction, Prediction) and prediction.note:
        sentences.append(f"Of the bands: {prediction.note}.")
    return " ".join(sentences)


def _variance(layers: tuple[Layer, ...], prediction: Prediction | str, outside: Layer | None) -> str:
    first, last = layers[0], layers[-1]
    if isinstance(prediction, str):
        return f"No prediction: {prediction}. q goes from {first.q:.3g} to {last.q:.3g} over {len(layers)} layers;"
    if outside is None or outside.q_band is None:
        return f"q stays inside its band from the first layer to the last of {len(layers)};"
    low, high = outside.q_band
    return (
        f"q leaves its band at layer {outside.index} of {len(layers)} ({outside.name}: median {outside.q:.3g}, band "
        f"{low:.3g} to {high:.3g}, {1.0 - (outside.inside or 0.0):.0%} of the inputs outside) and stands at "
        f"{last.q:.3g} in the last;"
    )


def _sparsity(layers: tuple[Layer, ...], prediction: Prediction | str) -> str:
    mean = sum(layer.sparsity for layer in layers) / len(layers)
    if isinstance(prediction, str):
        return f"{mean:.3f} of the units are exactly zero."
    expected = sum(prediction.bands.sparsity.median) / len(layers)
    return f"{mean:.3f} of the units are exactly zero, {expected:.3f} expected."


def _gradient(explode: float, vanish: float) -> str:
    text = f"The gradient grows more than thirtyfold on its way back for {explode:.0%} of the inputs"
    if vanish > 0.01:
        text += f" and vanishes for {vanish:.0%}"
    if explode > TRAINABLE_ODDS:
        return f"{text}: it will not train"
    if vanish > TRAINABLE_ODDS:
        return f"{text}: the first layers will hardly learn"
    return f"{text}: it should train"
