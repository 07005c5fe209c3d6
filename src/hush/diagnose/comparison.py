"""What was measured beside what was predicted: the work behind `hush.diagnose(model, inputs)`."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hush.diagnose.diagnosis import Diagnosis, Layer
from hush.diagnose.hooks import ActivationHooks
from hush.diagnose.measure import Loss, gain_log10, measure_model
from hush.diagnose.prediction import Prediction, predict
from hush.diagnose.verdict import write_verdict
from hush.nn.checks import check_activations, check_inputs, check_model
from hush.nn.flow import Flow, layer_kind
from hush.nn.recognise import activations_of
from hush.nn.structure import activation_functions, source_name
from hush.nn.tracing import trace_flow
from hush.theory import Band, Design
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["diagnose_model"]


def diagnose_model(
    model: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    targets: Tensor | None = None,
    *,
    design: Design | None = None,
    loss: Loss | None = None,
    chunk: int = 128,
    allow: tuple[type[nn.Module], ...] = (),
) -> Diagnosis:
    """Run `model` on `inputs` and say, layer by layer, whether it follows the theory.

    A layer is one call of an activation module: h its input, φ(h) its output. The model is run in eval mode, in
    chunks, and left exactly as it was: no hook, no gradient, no changed buffer or random state stays behind.

    There is theory for plain chains of layers only. Any other model is measured all the same; its verdict says what
    was seen in it and that nothing is predicted.

    Arguments:
        inputs: a tensor, or a tuple of the model's arguments, batch first.
        targets: class numbers (cross-entropy) or values (squared error) for the first output, for the gradient;
            without them a random linear probe of all outputs is differentiated.
        design: what the model was made for; without it σ_w, σ_b and φ are read off the model.
        loss: (outputs, targets) ↦ scalar, summed over the batch, in place of the two above; `outputs` is whatever the
            model returns.
        chunk: how many inputs are run at once, which bounds the memory.
        allow: activation classes that may stand beside the design's own.

    Raises:
        ValueError: if the model has no Linear or Conv or no activation module, the inputs are empty, constant, not
            finite or of the wrong dtype, the targets do not fit, or the design is for another activation than the
            model uses.
    """
    layers = check_model(model)
    arguments = check_inputs(model, inputs)
    count = arguments[0].shape[0]
    if design is not None:
        check_activations(model, design, allow)
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    if any(x.shape[0] != count for x in arguments):
        lengths = ", ".join(str(x.shape[0]) for x in arguments)
        raise ValueError(f"every argument needs the same number of inputs, batch first, got {lengths}.")
    if targets is not None and len(targets) != count:
        raise ValueError(f"{count} inputs need {count} targets, got {len(targets)}.")
    # Two inputs tell the order of data flow as well as all of them.
    flow = trace_flow(model, tuple(x[:2] for x in arguments))
    _check_activation_modules(model, flow)
    hooks = measure_model(model, arguments, targets, loss, chunk)
    prediction = predict(hooks, model, flow, layers, design)
    gains = gain_log10(hooks)
    rows = tuple(_rows(hooks, gains, flow, layers, prediction if isinstance(prediction, Prediction) else None))
    expected = prediction.bands if isinstance(prediction, Prediction) else None
    explode = float((gains.max(0) > EXPLODING_GAIN_LOG10).mean())
    vanish = float((gains[0] < VANISHING_GAIN_LOG10).mean())
    return Diagnosis(
        model=type(model).__name__,
        inputs=count,
        gradient_of="a random probe" if targets is None and loss is None else "the loss",
        layers=rows,
        explode=explode,
        vanish=vanish,
        predicted_explode=None if expected is None else expected.explode,
        predicted_vanish=None if expected is None else expected.vanish,
        coverage=None if expected is None else expected.coverage,
        no_prediction=prediction if isinstance(prediction, str) else "",
        verdict=write_verdict(rows, prediction, explode, vanish, design),
    )


def _check_activation_modules(model: nn.Module, flow: Flow) -> None:
    if flow.activations:
        return
    kind, functions = type(model).__name__, activation_functions(model, flow)
    if functions:
        seen = "; ".join(f"{function} in {places}" for function, places in functions.items())
        raise ValueError(
            f"{kind} applies its activations as functions ({seen}), which hooks cannot read; call modules in "
            f"their place, nn.ReLU() for relu and the like (nn.TransformerEncoderLayer takes activation=nn.ReLU())."
        )
    if next(activations_of(model), None) is not None:
        raise ValueError(f"none of the activation modules of {kind} ran on these inputs, so there is nothing to read.")
    raise ValueError(
        f"{kind} has no activation module to read; hush.diagnose sees modules, not functions, so call nn.ReLU(), "
        f"design.module() or the like in forward."
    )


def _rows(
    hooks: ActivationHooks,
    gains: NDArray[np.float64],
    flow: Flow,
    layers: dict[str, nn.Module],
    prediction: Prediction | None,
) -> Iterator[Layer]:
    for i, reading in enumerate(hooks.readings):
        q = torch.cat(reading.q).cpu().numpy()
        squares = torch.cat(reading.squared_gradients)
        # Which band stands beside which figure; none without a prediction.
        bands = None if prediction is None else prediction.bands
        q_band = _at(None if bands is None else bands.q, i)
        yield Layer(
            index=i + 1,
            name=reading.name,
            activation=str(reading.module),
            reads=_reads(flow.activations[i].reads, layers) if i < len(flow.activations) else "",
            units=reading.units,
            positions=reading.positions,
            q=float(np.median(q)),
            q_band=q_band,
            inside=None if q_band is None else float(np.mean((q >= q_band[0]) & (q <= q_band[1]))),
            sparsity=reading.sparsity,
            sparsity_band=_at(None if bands is None else bands.sparsity, i),
            saturated=reading.saturated,
            saturated_band=_at(None if bands is None else bands.saturation, i),
            dead=reading.dead,
            dead_predicted=None if prediction is None else prediction.dead[i],
            correlation=reading.correlation,
            correlation_band=_at(None if prediction is None else prediction.correlation, i),
            gradient=float(squares.mean().sqrt()),
            gain_log10=float(np.median(gains[i])),
            gain_log10_band=_at(None if bands is None else bands.gain_log10, i),
        )


def _reads(sources: frozenset[str], layers: dict[str, nn.Module]) -> str:
    """layer1 Conv2d, or: stem Conv2d + 3 more."""
    names = sorted(sources)
    if not names:
        return ""
    kind = f" {layer_kind(layers[names[0]])}" if names[0] in layers else ""
    rest = f" + {len(names) - 1} more" if len(names) > 1 else ""
    return f"{source_name(names[0])}{kind}{rest}"


def _at(band: Band | None, i: int) -> tuple[float, float] | None:
    return None if band is None else (band.low[i], band.high[i])
