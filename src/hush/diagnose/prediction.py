"""What the theory expects of a model at its own width and depth, from the norms of its own inputs."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hush.diagnose.measure import Measured
from hush.diagnose.telling_apart import ToldApart, tell_apart
from hush.nn.flow import INPUT, Flow
from hush.nn.structure import activation_functions, obstacles
from hush.nn.weights import fan_in
from hush.theory import Band, Bands, Block, Chain, Design, InputNorms, bands, correlation_band, dead_units

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True)
class Prediction:
    """Bands for each layer, and what they were made from.

    Attributes:
        block: what the model repeats; its positions are the fewest that a channel has in any layer, 1 in an MLP.
        q_start: the mean variance of the first layer over the inputs.
        apart: how far apart these inputs stay; None for a single one.
        note: what else there is to say of the bands, in sentences.
    """

    block: Block
    bands: Bands
    correlation: Band | None
    dead: tuple[float, ...]
    q_start: float
    apart: ToldApart | None
    note: str


def predict(
    measured: Measured, model: nn.Module, flow: Flow, layers: dict[str, nn.Module], design: Design | None
) -> Prediction | None:
    """The prediction; None for anything but a plain chain: layer, activation, layer, activation, all the same φ."""
    readings = measured.readings
    hidden = flow.order[: len(readings)]
    if not _is_plain_chain(measured, model, flow, layers, design):
        return None
    first = layers[hidden[0]]
    block = _chain(measured, [layers[name] for name in hidden[1:]], design)
    squares = torch.cat(measured.first_squares) * _weight_variance(first) + _bias_variance(first)
    k_1 = squares[squares > 0.0].cpu().numpy()
    start, norms = float(k_1.mean()), InputNorms.from_samples(k_1)
    # The noise of a layer goes with 1/N, so unequal widths count by their harmonic mean.
    width = max(2, round(len(readings) / sum(1.0 / reading.units for reading in readings)))
    depth = len(readings)
    expected = bands(block, width=width, depth=depth, q_start=start, norms=norms)
    correlation = None
    dead = np.asarray(expected.sparsity.median)
    if readings[0].cosines:
        pairs = readings[0].cosines[0].double().cpu().numpy()
        correlation = correlation_band(block, width=width, depth=depth, q_start=start, correlations=pairs)
        q, rho = np.asarray(expected.q.median), np.asarray(correlation.median)
        dead = dead_units(block.phi, q, rho, readings[0].inputs)
    return Prediction(
        block=block,
        bands=expected,
        correlation=correlation,
        dead=tuple(float(v) for v in dead),
        q_start=start,
        apart=tell_apart(
            measured, block, width, start, norms, expected.q.median[-1] if design is None else design.q_star
        ),
        note=_note(layers, hidden, block, design),
    )


def _chain(measured: Measured, inner: list[nn.Module], design: Design | None) -> Chain:
    """The block of the design if there is one, else as the weights show it; with the positions of these inputs."""
    # The gradient's norm is a sum over the positions of a feature map, which makes it steadier the more there are.
    positions = min(reading.positions for reading in measured.readings)
    if design is not None:
        return replace(design.chain(), positions=positions)
    phi = measured.readings[0].phi
    assert phi is not None  # _is_plain_chain said so
    # The median, so that a single odd layer shows as odd instead of shifting what is expected of all.
    sigma_w2 = float(np.median([_weight_variance(layer) for layer in inner]))
    sigma_b2 = float(np.median([_bias_variance(layer) for layer in inner]))
    return Chain(phi, math.sqrt(sigma_w2), math.sqrt(sigma_b2), positions)


def _is_plain_chain(
    measured: Measured, model: nn.Module, flow: Flow, layers: dict[str, nn.Module], design: Design | None
) -> bool:
    """Whether the theory of chains speaks of this model; of every other the walk along its run does."""
    depth, phis = len(measured.readings), {reading.phi for reading in measured.readings}
    # An activation applied as a function may stand behind a head, and nowhere else.
    hidden = tuple(operation for operation in flow.operations if not operation.sources <= flow.outputs)
    if obstacles(model, flow) or activation_functions(model, replace(flow, operations=hidden)) or flow.used_again:
        return False
    if depth < 2 or len(phis) > 1 or None in phis:
        return False
    return _alternates(measured, flow) and _has_weights(flow.order[:depth], layers, design)


def _alternates(measured: Measured, flow: Flow) -> bool:
    """Layer, activation, layer, activation, and nothing between them; behind the last activation there may be heads."""
    depth, order = len(measured.readings), [INPUT, *(call.layer for call in flow.calls)]
    if depth != len(flow.activations) or depth > len(flow.calls):
        return False
    for i, call in enumerate(flow.calls):
        if call.reads != {order[min(i, depth)]}:
            return False
        if i >= depth:
            continue
        activation = flow.activations[i]
        if activation.reads != {call.layer} or activation.through or (i and call.through):
            return False
    return True


def _has_weights(hidden: tuple[str, ...], layers: dict[str, nn.Module], design: Design | None) -> bool:
    """Finite ones, which say what σ_w is where no design does."""
    variances = [_weight_variance(layers[name]) for name in hidden]
    if not all(map(math.isfinite, variances)) or variances[0] == 0.0:
        return False
    return design is not None or float(np.median(variances[1:])) > 0.0


def _weight_variance(layer: Any) -> float:
    """σ_w² as the weights show it: fan-in × mean of W²."""
    return _mean_square(layer.weight) * fan_in(layer.weight)


def _bias_variance(layer: Any) -> float:
    return 0.0 if layer.bias is None else _mean_square(layer.bias)


def _mean_square(parameter: Tensor) -> float:
    return float(torch.linalg.vector_norm(parameter.detach(), dtype=torch.float64)) ** 2 / parameter.numel()


def _note(layers: dict[str, nn.Module], hidden: tuple[str, ...], block: Chain, design: Design | None) -> str:
    """What the bands leave out, and where the design was made for other feature maps than these; or nothing."""
    notes = []
    kinds = [layers[name] for name in hidden]
    if any(getattr(layer, "padding_mode", "") == "zeros" and any(_sizes(layer)) for layer in kinds):
        notes.append("Zero padding takes variance away at the borders, which the bands leave out.")
    if design is not None and design.odds is not None and design.positions != block.positions:
        notes.append(
            f"The odds of the design are for positions={design.positions}, and the bands are for the "
            f"{block.positions} that a channel has here: give hush.design positions={block.positions}."
        )
    return " ".join(notes)


def _sizes(layer: nn.Module) -> tuple[int, ...]:
    padding = getattr(layer, "padding", 0)
    return padding if isinstance(padding, tuple) else (1,) if padding == "same" else (0,)
