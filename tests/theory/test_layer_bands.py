"""Bands against direct simulation."""

import numpy as np
import pytest

import hush
from hush.theory import (
    IMAGE_NORMS,
    InputNorms,
    bands,
    finite_width,
)
from hush.theory.layer_bands import simultaneous

DESIGN = hush.design("crelu", 0.85, v_prime=0.7)
CHAIN = (DESIGN.phi(), DESIGN.sigma_w, DESIGN.sigma_b)


def test_simultaneous_band_holds_its_share_of_whole_paths() -> None:
    rng = np.random.default_rng(0)
    paths = rng.standard_normal((40, 4000)).cumsum(0)
    for coverage in (0.5, 0.9, 0.99):
        band = simultaneous(paths, coverage)
        inside = ((paths >= np.array(band.low)[:, None]) & (paths <= np.array(band.high)[:, None])).all(0).mean()
        assert coverage <= inside <= coverage + 0.03


def network(width: int, depth: int, inputs: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(q at each layer, log10 gain) of one random network in NumPy, for one input: the oracle."""
    phi, sigma_w, sigma_b = CHAIN
    h = rng.standard_normal((width, inputs.size)) @ inputs / np.sqrt(inputs.size)
    hs, weights = [h], []
    for _ in range(depth - 1):
        weights.append(sigma_w / np.sqrt(width) * rng.standard_normal((width, width)))
        hs.append(weights[-1] @ phi(hs[-1]) + sigma_b * rng.standard_normal(width))
    delta = rng.standard_normal(width) * phi.derivative(hs[-1])
    last = delta @ delta
    for h, weight in zip(reversed(hs[:-1]), reversed(weights), strict=True):
        delta = (weight.T @ delta) * phi.derivative(h)
    with np.errstate(divide="ignore"):
        return np.array([np.mean(h**2) for h in hs]), np.log10(delta @ delta / last)


def test_networks_stay_inside_at_the_stated_rate() -> None:
    width, depth, rng = 100, 30, np.random.default_rng(1)
    runs = [network(width, depth, rng.standard_normal(200), rng) for _ in range(400)]
    one = InputNorms((0.5,), (1.0,))
    band = bands(*CHAIN, width, depth, q_start=1.0, norms=one, coverage=0.9).q
    q = np.array([run[0] for run in runs]).T
    inside = ((q >= np.array(band.low)[:, None]) & (q <= np.array(band.high)[:, None])).all(0).mean()
    # Of all networks, not of the healthy alone, which are 97 in 100 here.
    assert 0.83 <= inside <= 0.94
    gains = np.array([run[1] for run in runs])
    # The median of 400 networks is good to 0.1, and at this width the chain itself lies 0.12 too low (2500 networks).
    assert abs(np.median(gains) - finite_width(*CHAIN, width, depth, norms=one).gain_log10[0.5]) < 0.3


def test_a_design_that_explodes_still_has_a_band() -> None:
    design = hush.design("soft_threshold", 0.7)
    result = bands(design.phi(), design.sigma_w, design.sigma_b, 100, 100, q_start=1.0, norms=IMAGE_NORMS)
    assert result.explode > 0.7
    assert max(result.q.high) < 20.0


@pytest.mark.parametrize("coverage", [0.0, 1.0])
def test_bad_coverage(coverage: float) -> None:
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        bands(*CHAIN, 100, 10, q_start=1.0, norms=IMAGE_NORMS, coverage=coverage)
