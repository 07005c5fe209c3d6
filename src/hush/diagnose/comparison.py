"""What was measured beside what was predicted: the work behind `hush.diagnose(model, inputs)`."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hush.diagnose.arguments import Batch, Inputs, read_inputs
from hush.diagnose.block_figures import judge_model
from hush.diagnose.block_verdict import write_block_verdict
from hush.diagnose.diagnosis import Diagnosis
from hush.diagnose.expectation import COVERAGE, Expected, expect
from hush.diagnose.hooks import Wanted
from hush.diagnose.measure import Loss, Measured, gain_log10, measure_model
from hush.diagnose.prediction import Prediction, predict
from hush.diagnose.table_rows import any_row, chain_row, stream_points
from hush.diagnose.verdict import write_verdict
from hush.nn.checks import check_activations
from hush.nn.flow import Flow, layer_kind, weight_layers
from hush.nn.recognise import activations_of
from hush.nn.structure import listed, source_name
from hush.nn.tracing import trace_flow
from hush.theory import Design
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["diagnose_model"]


def diagnose_model(
    model: nn.Module,
    inputs: Inputs,
    targets: Tensor | None = None,
    *,
    design: Design | None = None,
    loss: Loss | None = None,
    chunk: int = 128,
    allow: tuple[type[nn.Module], ...] = (),
) -> Diagnosis:
    """Run `model` on `inputs` and say, layer by layer, whether it follows the theory, and whether it should train.

    A layer is one call of an activation, module or function: h its input, φ(h) its output. Sums of a residual stream
    and its branches are read too. The model is run in eval mode, in chunks, and left exactly as it was: no hook, no
    gradient, no changed buffer or random state stays behind. Only BatchNorm works as in training, with the statistics
    of each chunk, where there is more than one input; its running statistics are neither used nor changed.

    A plain chain of layers is set beside the exact theory of chains at its width and depth. Any other model is set
    beside what mean-field theory expects of it function by function, from the variances of its own weights; where
    there is no rule for a function the prediction starts again from what was measured there, and the verdict names it.

    Batch:
        inputs: a tensor, a tuple of the model's arguments, or a dictionary of named ones, batch first.
        targets: class numbers (cross-entropy) or values (squared error) for the first output, for the gradient;
            without them a random linear probe of all outputs is differentiated.
        design: what the model was made for; without it σ_w, σ_b and φ are read off the model.
        loss: (outputs, targets) ↦ scalar, summed over the batch, in place of the two above; `outputs` is whatever the
            model returns.
        chunk: how many inputs are run at once, which bounds the memory.
        allow: activation classes that may stand beside the design's own.

    Raises:
        ValueError: if the model has no weights or no activation, the inputs are empty, constant, not finite or of the
            wrong dtype, the targets do not fit, or the design is for another activation than the model uses.
    """
    _check_weights(model)
    arguments = read_inputs(model, inputs)
    if design is not None:
        check_activations(model, design, allow)
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    if targets is not None and len(targets) != arguments.count:
        raise ValueError(f"{arguments.count} inputs need {arguments.count} targets, got {len(targets)}.")
    # Two inputs tell the order of data flow as well as all of them.
    two = arguments.part(0, 2)
    flow = trace_flow(model, two.kwargs or two.args)
    chain = _as_chain(model, arguments, flow, targets, loss, chunk, design)
    if chain is not None:
        measured, prediction = chain
        return _of_chain(model, arguments, measured, prediction, flow, targets is None and loss is None, design)
    return _of_any(model, arguments, targets, loss, chunk, design)


def _check_weights(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ValueError(f"{name} is lazy and has no shape yet; run the model once on an example batch first.")
        if parameter.is_meta:
            raise ValueError(f"{name} is on the meta device and holds no values; call model.to_empty(device=…) first.")
    if not any(parameter.dim() > 1 for parameter in model.parameters()):
        raise ValueError(f"{type(model).__name__} has no Linear or Conv layer, so there is nothing to do here.")


def _as_chain(
    model: nn.Module,
    arguments: Batch,
    flow: Flow,
    targets: Tensor | None,
    loss: Loss | None,
    chunk: int,
    design: Design | None,
) -> tuple[Measured, Prediction] | None:
    """Measured and predicted by the theory of chains; None for everything else."""
    if not flow.activations or not flow.calls:
        return None
    if any(operation.kind != "activation" for operation in flow.operations):
        return None
    # Activations applied as functions stand behind the heads of a chain, or it is none.
    measured = measure_model(model, arguments, targets, loss, chunk, Wanted(frozenset()))
    prediction = predict(measured, model, flow, weight_layers(model), design)
    return None if prediction is None else (measured, prediction)


def _of_chain(
    model: nn.Module,
    arguments: Batch,
    measured: Measured,
    prediction: Prediction,
    flow: Flow,
    probe: bool,
    design: Design | None,
) -> Diagnosis:
    gains = gain_log10(measured.readings)
    layers = weight_layers(model)
    rows = tuple(
        chain_row(i, reading, gains[i], _reads(flow.activations[i].reads, layers), prediction)
        for i, reading in enumerate(measured.readings)
    )
    explode, vanish = _shares(gains)
    return Diagnosis(
        model=type(model).__name__,
        inputs=arguments.count,
        gradient_of="a random probe" if probe else "the loss",
        layers=rows,
        explode=explode,
        vanish=vanish,
        predicted_explode=prediction.bands.explode,
        predicted_vanish=prediction.bands.vanish,
        coverage=prediction.bands.coverage,
        no_prediction="",
        verdict=write_verdict(rows, prediction, explode, vanish, design),
        predicted_indistinguishable=None if prediction.apart is None else prediction.apart.expected.indistinguishable,
    )


def _of_any(
    model: nn.Module,
    arguments: Batch,
    targets: Tensor | None,
    loss: Loss | None,
    chunk: int,
    design: Design | None,
) -> Diagnosis:
    expectation = expect(model, arguments, chunk)
    measured = measure_model(model, arguments, targets, loss, chunk, expectation.wanted)
    if not measured.readings:
        raise ValueError(_no_activation(model))
    gains = gain_log10(measured.readings)
    reason = _not_finite(model)
    expected = expectation.layers if not reason else (None,) * len(measured.readings)
    if len(expected) != len(measured.readings):
        reason = (
            reason or "the model takes another path with other inputs, so what was followed is not what was measured"
        )
        expected = (None,) * len(measured.readings)
    rows = tuple(
        any_row(i, reading, gains[i], figures)
        for i, (reading, figures) in enumerate(zip(measured.readings, expected, strict=True))
    )
    if not reason and all(figures is None for figures in expected):
        reason = "what the activations read could not be followed back to the input"
    stream = () if reason else tuple(stream_points(measured, expectation))
    explode, vanish = _shares(gains)
    verdict = judge_model(measured, rows, gains, design, measured.batched)
    restarts = tuple(
        dict.fromkeys(f"{r.function} in {r.within or type(model).__name__!r}" for r in expectation.restarts)
    )
    odds = _odds(expected) if not reason else (None, None)
    return Diagnosis(
        model=type(model).__name__,
        inputs=arguments.count,
        gradient_of="a random probe" if targets is None and loss is None else "the loss",
        layers=rows,
        explode=explode,
        vanish=vanish,
        predicted_explode=odds[0],
        predicted_vanish=odds[1],
        coverage=None if reason else COVERAGE,
        no_prediction=reason,
        verdict=write_block_verdict(
            rows, stream, verdict, reason, restarts, measured.batched, (explode, vanish), _twins(model)
        ),
        stream=stream,
        block_verdict=verdict,
        restarts=restarts,
        batch_statistics=measured.batched,
    )


def _no_activation(model: nn.Module) -> str:
    kind = type(model).__name__
    if next(activations_of(model), None) is not None:
        return f"none of the activation modules of {kind} ran on these inputs, so there is nothing to read."
    return (
        f"{kind} has no activation to read: no module that works entry by entry, and no function such as relu that a "
        f"layer reads; hush.diagnose looks at what goes into activations and what comes out."
    )


def _not_finite(model: nn.Module) -> str:
    """Why weights make a prediction impossible; empty if they do not."""
    broken = [name for name, p in model.named_parameters() if p.is_floating_point() and not bool(p.isfinite().all())]
    owners = [name.rpartition(".")[0] or name for name in broken]
    return f"the weights of {listed(owners)} are not finite" if broken else ""


def _twins(model: nn.Module) -> tuple[str, ...]:
    """The weights that hold the same random numbers as an earlier one, with that one in front: copies of a layer."""
    groups: dict[tuple[object, ...], list[tuple[str, Tensor]]] = {}
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if values.dim() > 1 and values.is_floating_point() and float(values.std()) > 0.0:
            groups.setdefault((*values.shape, float(values.sum())), []).append((name, values))
    found = []
    for group in groups.values():
        copies = [name for name, values in group[1:] if torch.equal(values, group[0][1])]
        found += [group[0][0], *copies] if copies else []
    return tuple(found)


def _shares(gains: NDArray[np.float64]) -> tuple[float, float]:
    """Of the inputs, those whose gradient explodes and those whose vanishes."""
    return float((gains.max(0) > EXPLODING_GAIN_LOG10).mean()), float((gains[0] < VANISHING_GAIN_LOG10).mean())


def _odds(expected: tuple[Expected | None, ...]) -> tuple[float | None, float | None]:
    """The same as expected of networks of this kind: the odds at the worst layer, and at the first."""
    found = [figures for figures in expected if figures is not None and figures.gain_log10 is not None]
    if not found:
        return None, None

    def above(figures: Expected, bound: float) -> float:
        gain, spread = figures.gain_log10 or 0.0, max(figures.gain_spread, 1e-6)
        return 0.5 * math.erfc((bound - gain) / (spread * math.sqrt(2.0)))

    return max(above(f, EXPLODING_GAIN_LOG10) for f in found), 1.0 - above(found[0], VANISHING_GAIN_LOG10)


def _reads(sources: frozenset[str], layers: dict[str, nn.Module]) -> str:
    """layer1 Conv2d, or: stem Conv2d + 3 more."""
    names = sorted(sources)
    if not names:
        return ""
    kind = f" {layer_kind(layers[names[0]])}" if names[0] in layers else ""
    rest = f" + {len(names) - 1} more" if len(names) > 1 else ""
    return f"{source_name(names[0])}{kind}{rest}"
