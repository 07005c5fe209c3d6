"""From readings and what is expected of them to the rows of a diagnosis."""

from collections.abc import Iterator
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from hush.diagnose.diagnosis import Layer, Range, StreamPoint
from hush.diagnose.expectation import Expectation, Expected
from hush.diagnose.measure import Measured, gain_log10
from hush.diagnose.prediction import Prediction
from hush.diagnose.reading import Reading
from hush.theory import Band

__all__ = ["any_row", "chain_row", "stream_points"]


def chain_row(i: int, reading: Reading, gains: NDArray[np.float64], reads: str, prediction: Prediction) -> Layer:
    """A layer of a plain chain, beside the bands of the theory of chains."""
    bands, correlation = prediction.bands, prediction.correlation
    return Layer(
        **_measured(i, reading, gains, (bands.q.low[i], bands.q.high[i])),
        reads=reads,
        sparsity_band=_at(bands.sparsity, i),
        saturated_band=_at(bands.saturation, i),
        dead_predicted=prediction.dead[i],
        correlation_band=_at(correlation, i),
        gain_log10_band=_at(bands.gain_log10, i),
        q_predicted=bands.q.median[i],
        sparsity_predicted=bands.sparsity.median[i],
        saturated_predicted=bands.saturation.median[i],
        correlation_predicted=None if correlation is None else correlation.median[i],
        gain_log10_predicted=bands.gain_log10.median[i],
    )


def any_row(i: int, reading: Reading, gains: NDArray[np.float64], expected: Expected | None) -> Layer:
    """A layer of any model, beside what the walk along its run expects; None for nothing."""
    several = reading.correlation is not None
    return Layer(
        **_measured(i, reading, gains, None if expected is None else expected.q_band),
        reads="" if expected is None else expected.reads,
        sparsity_band=None if expected is None else expected.sparsity_band,
        saturated_band=None,
        dead_predicted=None,
        correlation_band=None,
        gain_log10_band=None if expected is None else expected.gain_log10_band,
        token_correlation=reading.token_correlation,
        q_predicted=None if expected is None else expected.q,
        sparsity_predicted=None if expected is None else expected.sparsity,
        saturated_predicted=None if expected is None else expected.saturated,
        correlation_predicted=expected.correlation if expected is not None and several else None,
        token_correlation_predicted=None if expected is None else expected.token_correlation,
        gain_log10_predicted=None if expected is None else expected.gain_log10,
    )


class _Figures(TypedDict):
    index: int
    name: str
    activation: str
    units: int
    positions: int
    q: float
    q_band: Range | None
    inside: float | None
    sparsity: float
    saturated: float
    dead: float
    correlation: float | None
    gradient: float
    gain_log10: float


def _measured(i: int, reading: Reading, gains: NDArray[np.float64], q_band: Range | None) -> _Figures:
    q = torch.cat(reading.q).cpu().numpy()
    return {
        "index": i + 1,
        "name": reading.name,
        "activation": str(reading.module),
        "units": reading.units,
        "positions": reading.positions,
        "q": float(np.median(q)),
        "q_band": q_band,
        "inside": None if q_band is None else float(np.mean((q >= q_band[0]) & (q <= q_band[1]))),
        "sparsity": reading.sparsity,
        "saturated": reading.saturated,
        "dead": reading.dead,
        "correlation": reading.correlation,
        "gradient": float(torch.cat(reading.squared_gradients).mean().sqrt()),
        "gain_log10": float(np.median(gains)),
    }


def stream_points(measured: Measured, expectation: Expectation) -> Iterator[StreamPoint]:
    """The residual stream; nothing where the measured run added other branches than the one that was followed."""
    streams = [reading for reading in measured.streams if reading.squared_gradients]
    if len(streams) != len(expectation.stream):
        return
    gains = gain_log10(streams) if streams else np.zeros((0, 1))
    for i, (reading, expected) in enumerate(zip(streams, expectation.stream, strict=True)):
        yield StreamPoint(
            index=i + 1,
            name=reading.name,
            p=float(np.median(torch.cat(reading.q).cpu().numpy())),
            p_band=None if expected is None else expected.q_band,
            p_predicted=None if expected is None else expected.q,
            correlation=reading.correlation,
            correlation_predicted=None if expected is None or reading.correlation is None else expected.correlation,
            token_correlation=reading.token_correlation,
            token_correlation_predicted=None if expected is None else expected.token_correlation,
            gradient=float(torch.cat(reading.squared_gradients).mean().sqrt()),
            gain_log10=float(np.median(gains[i])),
            gain_log10_band=None if expected is None else expected.gain_log10_band,
            gain_log10_predicted=None if expected is None else expected.gain_log10,
        )


def _at(band: Band | None, i: int) -> tuple[float, float] | None:
    return None if band is None else (band.low[i], band.high[i])
