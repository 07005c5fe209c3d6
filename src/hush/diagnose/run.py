"""Measure, predict, compare: what stands behind `hush.diagnose(model, inputs)`."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)
from torch.utils._pytree import tree_leaves

from hush.diagnose.diagnosis import Diagnosis, Layer
from hush.diagnose.prediction import Prediction, predict
from hush.diagnose.tap import Tap
from hush.diagnose.verdict import verdict
from hush.nn.checks import check_activations, check_inputs, check_model
from hush.nn.flow import quietly, trace_flow
from hush.nn.recognise import activations_of
from hush.theory import Band, Design
from hush.theory.training_rule import EXPLODING_GAIN_LOG10, VANISHING_GAIN_LOG10

__all__ = ["Loss", "run"]

Loss = Callable[[Tensor, Tensor | None], Tensor]


def run(
    model: nn.Module,
    inputs: Tensor | tuple[Tensor, ...],
    targets: Tensor | None,
    *,
    design: Design | None,
    loss: Loss | None,
    chunk: int,
    allow: tuple[type[nn.Module], ...],
) -> Diagnosis:
    """See `hush.diagnose.verb.Verb.__call__`, which documents it."""
    layers = check_model(model)
    arguments = check_inputs(model, inputs)
    count = arguments[0].shape[0]
    if design is not None:
        check_activations(model, design, allow)
    if next(activations_of(model), None) is None:
        raise ValueError(
            f"{type(model).__name__} has no activation module to read; hush.diagnose sees modules, not functions, so "
            f"call nn.ReLU(), design.module() or the like in forward."
        )
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    if targets is not None and len(targets) != count:
        raise ValueError(f"{count} inputs need {count} targets, got {len(targets)}.")
    tap = measure(model, arguments, targets, loss, chunk)
    # Two inputs tell the order of data flow as well as all of them.
    prediction = predict(tap, trace_flow(model, tuple(x[:2] for x in arguments)), layers, design)
    gains = _gains(tap)
    rows = tuple(_rows(tap, gains, prediction if isinstance(prediction, Prediction) else None))
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
        verdict=verdict(rows, prediction, explode, vanish, design),
    )


def measure(
    model: nn.Module, arguments: tuple[Tensor, ...], targets: Tensor | None, loss: Loss | None, chunk: int
) -> Tap:
    """Run the model forward and backward on `chunk` inputs at a time; nothing stays behind but the statistics."""
    generator = torch.Generator().manual_seed(0)
    with quietly(model), torch.enable_grad(), Tap(model) as tap:
        for start in range(0, arguments[0].shape[0], chunk):
            part = slice(start, start + chunk)
            # Gradients are asked for, not accumulated: .grad stays as it is.
            leaves = [x[part].detach().clone().requires_grad_(x.is_floating_point()) for x in arguments]
            wanted = [x for x in leaves if x.requires_grad] or [p for p in model.parameters() if p.requires_grad]
            # A copy, so that a model that begins in place does not write to a leaf.
            outputs = model(*(x.clone() for x in leaves))
            output = next(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad)
            value = _scalar(output, None if targets is None else targets[part], loss, generator)
            torch.autograd.grad(value, wanted, allow_unused=True)
    return tap


def _scalar(output: Tensor, targets: Tensor | None, loss: Loss | None, generator: torch.Generator) -> Tensor:
    if loss is not None:
        return loss(output, targets)
    if targets is None:
        return (output * torch.randn(output.shape, generator=generator).to(output)).sum()
    if targets.is_floating_point():
        return 0.5 * (output - targets).square().sum()
    return F.cross_entropy(output, targets, reduction="sum")


def _gains(tap: Tap) -> np.ndarray:
    """log10 |δ_l|²/|δ_L|², (layers, inputs); −∞ where no gradient arrives."""
    reached = [reading.squared_gradients for reading in tap.readings]
    if not all(reached):
        missing = next(reading.name for reading in tap.readings if not reading.squared_gradients)
        raise ValueError(f"no gradient reaches {missing!r}: the output does not depend on it, or forward detaches it.")
    squares = np.stack([torch.cat(parts).cpu().numpy() for parts in reached])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(squares)
        # A dead last layer passes nothing on: that is a vanished gradient, not an undefined one.
        return np.where(np.isneginf(logs) | np.isneginf(logs[-1]), -np.inf, logs - logs[-1])


def _rows(tap: Tap, gains: np.ndarray, prediction: Prediction | None) -> Iterator[Layer]:
    for i, reading in enumerate(tap.readings):
        q = torch.cat(reading.q).cpu().numpy()
        squares = torch.cat(reading.squared_gradients)
        # Which band stands beside which figure; none without a prediction.
        bands = None if prediction is None else prediction.bands
        q_band = _at(None if bands is None else bands.q, i)
        yield Layer(
            index=i + 1,
            name=reading.name,
            activation=str(reading.module),
            units=reading.units,
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


def _at(band: Band | None, i: int) -> tuple[float, float] | None:
    return None if band is None else (band.low[i], band.high[i])
