"""Norms: over the units of a position (layer, RMS), of an input (group), or of a batch (batch); the variance behind one
is known, whatever came before.

    layer  (x − mean)/std over units        rms  x/√mean x²        batch  over inputs and positions, for every unit
    D_in = D_out · E[γ²]/variance · (1 − what is projected out)
"""

from dataclasses import replace

import torch
from torch import Tensor

from hush.diagnose.walk.backward import scaled
from hush.diagnose.walk.context import Context
from hush.diagnose.walk.noise import blend
from hush.diagnose.walk.picking import pick_units
from hush.diagnose.walk.population import (
    Population,
    exchangeable_moments,
    joined_places,
    moments_of_places,
    second_moments,
)

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]


def layer_norm(context: Context, x: Population, weight: Tensor | None, bias: Tensor | None, eps: float) -> Population:
    x = context.with_units_along(x, -1)
    centred = x.values - x.values.mean(1, keepdim=True)
    return _normalised(context, x, centred, _power(centred), weight, bias, eps, 2.0 / max(2, x.units))


def rms_norm(context: Context, x: Population, weight: Tensor | None, eps: float | None) -> Population:
    x = context.with_units_along(x, -1)
    return _normalised(context, x, x.values, _power(x.values), weight, None, eps or 0.0, 1.0 / max(2, x.units))


def group_norm(
    context: Context, x: Population, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Population:
    """Over the positions and the units of a group; what a group's units share over positions is taken out too."""
    x = context.with_units_along(x, 1)
    centred = x.values - x.values.mean(1, keepdim=True)
    size, p = max(1, x.units // groups), x.positions
    k = exchangeable_moments(centred)
    # What the units of a group have in common over positions, within an input and between two.
    common = (k[0, 0] / p + (1.0 - 1.0 / p) * k[0, 1]) / size
    between = (k[0, 2] / p + (1.0 - 1.0 / p) * k[0, 3]) / size
    if size < 8:
        # Few units: each loses a visible part of what its own positions have in common.
        left = k - moments_of_places(common, common, between, between, common)
        centred = context.draws.gaussian(left)
    power = max(1e-12, float(k[0, 0] - common))
    return _normalised(context, x, centred, power, weight, bias, eps, 2.0 / max(2, size * p))


def batch_norm(context: Context, x: Population, weight: Tensor | None, bias: Tensor | None, eps: float) -> Population:
    """With the statistics of the batch, as in training."""
    x = context.with_units_along(x, 1)
    moments = exchangeable_moments(x.values)
    p, b = x.positions, context.batch
    common = float(
        moments[0, 0] / (p * b)
        + moments[0, 1] * (p - 1) / (p * b)
        + moments[0, 2] * (b - 1) / (p * b)
        + moments[0, 3] * (p - 1) * (b - 1) / (p * b)
    )
    centred = context.draws.gaussian(moments - common) if x.gaussian else _without(context, x.values, common)
    power = max(1e-12, float(moments[0, 0]) - common)
    found = _normalised(context, x, centred, power, weight, bias, eps, min(0.5, 2.0 / (p * b)))
    # The batch as a whole has this variance. One input differs from it, as it did before: all that is taken out is what
    # the inputs have in common.
    squares = x.values[[0, 2]].square()
    squares = squares - squares.mean(1, keepdim=True)
    alike = float((squares[0] * squares[1]).mean() / squares[0].square().mean().clamp(min=1e-300))
    kept = (max(0.0, 1.0 - alike) ** 0.5) * min(4.0, float(moments[0, 0]) / power)
    return replace(found, exact=False, scale=blend((kept, context.total(x))))


def _power(values: Tensor) -> float:
    return float(values.square().mean())


def _without(context: Context, values: Tensor, common: float) -> Tensor:
    """The values less their unit's own mean, of variance `common`, as far as the five places tell it.

    Of a Gaussian unit the mean given the places is linear in them, and the rest of it is independent.
    """
    moments = second_moments(values)
    shared = torch.full((5,), common, dtype=torch.float64)
    solved = torch.linalg.lstsq(moments + 1e-9 * moments.trace() * torch.eye(5, dtype=torch.float64), shared[:, None])
    coefficients = solved.solution[:, 0]
    rest = max(0.0, common - float(coefficients @ shared))
    mean = coefficients @ values + rest**0.5 * context.draws.normal(values.shape[1])
    left: Tensor = values - mean
    return left


def _normalised(
    context: Context,
    x: Population,
    centred: Tensor,
    power: float,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    lost: float,
) -> Population:
    # Scaled by the sample too, so that the second moment is exactly what the norm makes it.
    sample = _power(centred[0])
    values = centred * ((power / sample if sample > 0.0 else 1.0) / (power + eps)) ** 0.5
    factor = (1.0 - lost) / (power + eps)
    if weight is not None:
        values = values * pick_units(weight)
        factor *= float(weight.detach().double().square().mean())
    if bias is not None:
        values = values + pick_units(bias)
    node = context.record.new(scaled(x.node, factor))
    return Population(
        joined_places(values, x.positions), x.sites, node, exact=True, gaussian=x.gaussian, layers=x.layers
    )
