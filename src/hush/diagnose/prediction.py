"""What the theory expects of a model at its own width and depth, from the norms of its own inputs."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hush.diagnose.tap import Tap
from hush.nn.flow import Flow
from hush.nn.weights import fan_in
from hush.theory import Band, Bands, Design, InputNorms, bands, correlation_band, dead_units

__all__ = ["Prediction", "predict"]

# What may stand between a layer, its activation and the next layer without changing what the theory says.
_TRANSPARENT = (nn.Dropout, nn.Flatten, nn.Identity, nn.Unflatten)


@dataclass(frozen=True)
class Prediction:
    """Bands for each layer, and the (σ_w², σ_b²) and mean |x|²/N they start from."""

    bands: Bands
    correlation: Band | None
    dead: tuple[float, ...]
    sigma_w2: float
    sigma_b2: float
    q_start: float
    note: str


def predict(tap: Tap, flow: Flow, layers: dict[str, nn.Module], design: Design | None) -> Prediction | str:
    """The prediction, or the reason why there is none.

    The theory speaks of a plain chain: layer, activation, layer, activation, all activations the same φ.
    """
    readings = tap.readings
    hidden = flow.order[: len(readings)]
    reason = _obstacle(tap, flow, len(readings))
    if reason:
        return reason
    phi = readings[0].phi
    assert phi is not None  # _obstacle said so
    first, *inner = (layers[name] for name in hidden)
    if design is None:
        # The median, so that a single odd layer shows as odd instead of shifting what is expected of all.
        sigma_w2 = float(np.median([_weight_variance(layer) for layer in inner]))
        sigma_b2 = float(np.median([_bias_variance(layer) for layer in inner]))
    else:
        sigma_w2, sigma_b2 = design.sigma_w2, design.sigma_b2
    squares = torch.cat(tap.first_squares) * _weight_variance(first) + _bias_variance(first)
    k_1 = squares[squares > 0.0].cpu().numpy()
    # The noise of a layer goes with 1/N, so unequal widths count by their harmonic mean.
    width = round(len(readings) / sum(1.0 / reading.units for reading in readings))
    size = (max(width, 2), len(readings))
    sigmas, q_start = (math.sqrt(sigma_w2), math.sqrt(sigma_b2)), float(k_1.mean())
    norms, positions = InputNorms.from_samples(k_1), min(reading.positions for reading in readings)
    expected = bands(phi, *sigmas, *size, q_start=q_start, norms=norms, positions=positions)
    correlation = None
    dead = np.asarray(expected.sparsity.median)
    if readings[0].cosines:
        pairs = readings[0].cosines[0].double().cpu().numpy()
        correlation = correlation_band(phi, *sigmas, *size, q_start=q_start, correlations=pairs)
        q, rho = np.asarray(expected.q.median), np.asarray(correlation.median)
        dead = dead_units(phi, q, rho, readings[0].inputs)
    return Prediction(
        expected, correlation, tuple(float(v) for v in dead), sigma_w2, sigma_b2, q_start, _note(layers, hidden)
    )


def _obstacle(tap: Tap, flow: Flow, depth: int) -> str | None:
    """Why the theory has nothing to say about this model; None if it has."""
    kinds = {reading.phi for reading in tap.readings}
    if None in kinds:
        odd = next(reading for reading in tap.readings if reading.phi is None)
        return f"hush has no theory for {odd.module}"
    if len(kinds) > 1:
        return "the model mixes different activations"
    if depth < 2:
        return "it takes at least two layers with an activation"
    if not flow.is_chain:
        return "the model is not a plain chain of layers (it branches, adds residuals or uses a layer twice)"
    if not depth <= len(flow.order) <= depth + 1:
        return f"{len(flow.order)} weight layers with {depth} activations are not layer, activation, layer, activation"
    for module, calls in tap.between.items():
        if calls < depth and not isinstance(module, _TRANSPARENT):
            return f"{type(module).__name__} stands between the layers"
    return None


def _weight_variance(layer: Any) -> float:
    """σ_w² as the weights show it: fan-in × mean of W²."""
    return _mean_square(layer.weight) * fan_in(layer.weight)


def _bias_variance(layer: Any) -> float:
    return 0.0 if layer.bias is None else _mean_square(layer.bias)


def _mean_square(parameter: Tensor) -> float:
    return float(torch.linalg.vector_norm(parameter.detach(), dtype=torch.float64)) ** 2 / parameter.numel()


def _note(layers: dict[str, nn.Module], hidden: tuple[str, ...]) -> str:
    kinds = [layers[name] for name in hidden]
    if any(getattr(layer, "padding_mode", "") == "zeros" and any(_sizes(layer)) for layer in kinds):
        return "zero padding takes variance away at the borders, which they leave out"
    return ""


def _sizes(layer: nn.Module) -> tuple[int, ...]:
    padding = getattr(layer, "padding", 0)
    return padding if isinstance(padding, tuple) else (1,) if padding == "same" else (0,)
