"""What the theory expects of a model at its own width and depth, from the norms of its own inputs."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hush.diagnose.hooks import ActivationHooks
from hush.nn.flow import INPUT, Flow
from hush.nn.structure import activation_functions, listed, obstacles, source_name
from hush.nn.weights import fan_in
from hush.theory import Band, Bands, Block, Chain, Design, InputNorms, bands, correlation_band, dead_units

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True)
class Prediction:
    """Bands for each layer, and what they were made from.

    Attributes:
        block: what the model repeats; its positions are the fewest that a channel has in any layer, 1 in an MLP.
        q_start: the mean variance of the first layer over the inputs.
        note: what else there is to say of the bands, in sentences.
    """

    block: Block
    bands: Bands
    correlation: Band | None
    dead: tuple[float, ...]
    q_start: float
    note: str


def predict(
    hooks: ActivationHooks, model: nn.Module, flow: Flow, layers: dict[str, nn.Module], design: Design | None
) -> Prediction | str:
    """The prediction, or the reason why there is none.

    The theory speaks of a plain chain: layer, activation, layer, activation, all activations the same φ.
    """
    readings = hooks.readings
    hidden = flow.order[: len(readings)]
    reason = _obstacle(hooks, model, flow, layers, design)
    if reason:
        return reason
    first = layers[hidden[0]]
    block = _chain(hooks, [layers[name] for name in hidden[1:]], design)
    squares = torch.cat(hooks.first_squares) * _weight_variance(first) + _bias_variance(first)
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
        note=_note(layers, hidden, block, design),
    )


def _chain(hooks: ActivationHooks, inner: list[nn.Module], design: Design | None) -> Chain:
    """The block of the design if there is one, else as the weights show it; with the positions of these inputs."""
    # The gradient's norm is a sum over the positions of a feature map, which makes it steadier the more there are.
    positions = min(reading.positions for reading in hooks.readings)
    if design is not None:
        return replace(design.chain(), positions=positions)
    phi = hooks.readings[0].phi
    assert phi is not None  # _obstacle said so
    # The median, so that a single odd layer shows as odd instead of shifting what is expected of all.
    sigma_w2 = float(np.median([_weight_variance(layer) for layer in inner]))
    sigma_b2 = float(np.median([_bias_variance(layer) for layer in inner]))
    return Chain(phi, math.sqrt(sigma_w2), math.sqrt(sigma_b2), positions)


def _obstacle(
    hooks: ActivationHooks, model: nn.Module, flow: Flow, layers: dict[str, nn.Module], design: Design | None
) -> str | None:
    """Why the theory has nothing to say about this model; None if it has."""
    depth = len(hooks.readings)
    if seen := obstacles(model, flow):
        return f"there is theory for plain chains of layers only, and this is none: {'; '.join(seen)}"
    hidden = [operation for operation in flow.operations if not operation.sources <= flow.outputs]
    if functions := activation_functions(model, replace(flow, operations=tuple(hidden))):
        function, places = next(iter(functions.items()))
        return f"the activation {function} is called as a function in {places}, which hooks cannot read; use its module"
    if flow.used_again:
        return f"{listed(flow.used_again)} is called more than once, and the theory takes every layer's weights for new"
    unknown = next((reading for reading in hooks.readings if reading.phi is None), None)
    if unknown is not None:
        return f"{unknown.name!r} is {unknown.module}, whose φ is not in the registry"
    if len({reading.phi for reading in hooks.readings}) > 1:
        kinds = dict.fromkeys(str(reading.module) for reading in hooks.readings)
        return f"the activations are not all the same: {listed(kinds, quoted=False)}"
    if depth < 2:
        return "it takes at least two layers with an activation"
    return _not_alternating(hooks, flow) or _no_weights(flow.order[:depth], layers, design)


def _not_alternating(hooks: ActivationHooks, flow: Flow) -> str | None:
    """Layer, activation, layer, activation, and nothing between them; behind the last activation there may be heads."""
    depth, order = len(hooks.readings), [INPUT, *(call.layer for call in flow.calls)]
    if depth != len(flow.activations) or depth > len(flow.calls):
        return f"{len(flow.calls)} weight layers with {depth} activations do not alternate"
    for i, call in enumerate(flow.calls):
        last = order[min(i, depth)]
        if call.reads != {last}:
            return f"{call.layer!r} reads {_sum(call.reads)}, where a chain would have it read {source_name(last)}"
        if i >= depth:
            continue
        activation = flow.activations[i]
        if activation.reads != {call.layer}:
            return f"{hooks.readings[i].name!r} reads {_sum(activation.reads)}, where {call.layer} would be next"
        before = call.through if i else frozenset()
        if between := sorted(before | activation.through):
            return f"{listed(between, quoted=False)} stands between the layers, at {call.layer!r}"
    return None


def _sum(sources: frozenset[str]) -> str:
    return " + ".join(source_name(source) for source in sorted(sources)) or "nothing that could be followed"


def _no_weights(hidden: tuple[str, ...], layers: dict[str, nn.Module], design: Design | None) -> str | None:
    variances = {name: _weight_variance(layers[name]) for name in hidden}
    if broken := [name for name, variance in variances.items() if not math.isfinite(variance)]:
        return f"the weights of {listed(broken)} are not finite"
    if variances[hidden[0]] == 0.0:
        return f"the weights of the first layer, {hidden[0]!r}, are all zero"
    if design is None and np.median(list(variances.values())[1:]) == 0.0:
        return "most weights are zero, and no design says what they should be"
    return None


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
