"""The finite-width chain against real random networks and the paper's tables."""

import math

import numpy as np
import pytest

from benchmarks.finite_width import LEVELS, random_networks
from hush.theory import (
    IMAGE_NORMS,
    Chain,
    InputNorms,
    activation,
    chain_draws,
    crelu,
    design,
    edge_of_chaos,
    finite_width,
    relu,
    shifted_relu,
    threshold_from_sparsity,
    variance_map,
)
from hush.theory.chain_run import run_chains
from hush.theory.training_rule import EXPLODING_GAIN_LOG10


@pytest.mark.parametrize(("width", "depth"), [(100, 30), (300, 20), (1000, 5)])
@pytest.mark.parametrize(("name", "sparsity", "v_prime"), [("crelu", 0.85, 0.7), ("cst", 0.8, 0.9)])
def test_quantiles_are_those_of_real_networks(
    width: int, depth: int, name: str, sparsity: float, v_prime: float
) -> None:
    count = 200
    made = design(name, sparsity, v_prime=v_prime)
    q, gain = random_networks(made.phi(), made.sigma_w, made.sigma_b, width, depth, count)
    chain = finite_width(made.phi(), made.sigma_w, made.sigma_b, width, depth)
    for level in LEVELS:
        # Of a calibrated prediction a share `level` lies below its quantile; four standard errors of that count.
        slack = 4.0 * math.sqrt(level * (1.0 - level) / count)
        for layer in (0, 1, depth // 2, depth - 1):
            assert abs(np.mean(q[:, layer] < chain.q_quantiles[level][layer]) - level) < slack
        assert abs(np.mean(gain < chain.gain_log10[level]) - level) < slack + 0.03


def test_a_very_wide_network_follows_the_variance_map() -> None:
    phi, sigma_w, sigma_b = crelu(1.0, 1.0), 2.5, 0.6
    chain = finite_width(phi, sigma_w, sigma_b, 10**8, 12, q_start=2.0, norms=InputNorms((0.5,), (1.0,)))
    q = 2.0
    for layer in range(12):
        assert chain.q_quantiles[0.5][layer] == pytest.approx(q, rel=1e-3)
        assert chain.q_quantiles[0.9][layer] == pytest.approx(q, rel=2e-3)
        q = variance_map(phi, q, sigma_w, sigma_b)


@pytest.mark.parametrize("sizes", [[(300, 30), (300, 60), (300, 100)], [(3000, 30), (1000, 30), (300, 30)]])
def test_depth_and_narrowness_raise_the_odds(sizes: list[tuple[int, int]]) -> None:
    designs = [design("crelu", 0.85, v_prime=0.9, width=width, depth=depth) for width, depth in sizes]
    exploding = [made.odds.explode for made in designs if made.odds is not None]
    assert exploding == sorted(exploding)
    assert exploding[-1] > 1.3 * exploding[0]


def test_odds_do_not_depend_on_the_unit_of_q() -> None:
    one = design("cst", 0.8, v_prime=0.85, width=300, depth=60)
    other = design("cst", 0.8, v_prime=0.85, width=300, depth=60, q_star=7.0)
    assert one.odds is not None
    assert other.odds is not None
    assert other.odds.explode == pytest.approx(one.odds.explode, abs=2e-3)


def test_a_failed_row_of_the_paper_explodes() -> None:
    # Shifted ReLU at s = 0.7, depth 100: the paper's five runs all ended at chance.
    phi = shifted_relu(threshold_from_sparsity("shifted_relu", 0.7))
    w2, b2 = edge_of_chaos(phi, 1.0)
    chain = finite_width(phi, math.sqrt(w2), math.sqrt(b2), 300, 100, q_start=0.75)
    assert not chain.trains
    assert chain.gain_log10[0.9] > EXPLODING_GAIN_LOG10


def test_it_is_reproducible_and_seeded() -> None:
    arguments = (activation("crelu", 1.0, 1.0), 2.5, 0.6, 100, 20)
    once = finite_width(*arguments)
    run_chains.cache_clear()
    assert finite_width(*arguments) == once
    assert finite_width(*arguments, seed=1) != finite_width(*arguments)


def test_it_does_not_depend_on_what_was_asked_before() -> None:
    phi = activation("crelu", 1.0, 1.0)

    def fresh(*depths: int) -> object:
        run_chains.cache_clear()
        chain_draws._stream.cache_clear()
        return [finite_width(phi, 2.5, 0.6, 100, depth) for depth in depths][-1]

    assert fresh(20) == fresh(3, 20) == fresh(50, 7, 20)


def test_quantiles_by_layer_are_those_of_the_chains() -> None:
    phi, width, depth = activation("cst", 1.0, 1.2), 80, 15
    w2, b2 = edge_of_chaos(phi, 1.0)
    chain = finite_width(phi, math.sqrt(w2), math.sqrt(b2), width, depth)
    k, gains = run_chains(Chain(phi, math.sqrt(w2), math.sqrt(b2)), width, depth, 1.0, IMAGE_NORMS)
    for level, row in chain.gain_quantiles.items():
        np.testing.assert_allclose(row, [*np.quantile(gains, level, axis=1), 0.0], rtol=1e-6, atol=1e-7)
        assert row[0] == pytest.approx(chain.gain_log10[level], rel=1e-6)
    # A unit's own sampling noise widens the spread of q beyond that of k, and hardly moves its median.
    low, median, high = (np.array(chain.q_quantiles[level]) for level in (0.05, 0.5, 0.95))
    assert np.all(high - low > np.quantile(k, 0.95, axis=1) - np.quantile(k, 0.05, axis=1))
    np.testing.assert_allclose(median, np.median(k, axis=1), rtol=0.03)


def test_silent_and_saturated_extremes_are_quiet() -> None:
    dead = finite_width(shifted_relu(30.0), 1.0, 0.1, 50, 10)
    assert dead.vanish == 1.0
    runaway = finite_width(relu(), 10.0, 0.0, 50, 40)
    assert runaway.explode == 1.0


@pytest.mark.parametrize(("width", "depth"), [(1, 10), (100, 1), (0, 10), (100, -3), (100.5, 10)])
def test_sizes_out_of_range(width: float, depth: int) -> None:
    with pytest.raises(ValueError, match=r"(width|depth) must be a whole number of at least 2"):
        finite_width(relu(), 1.0, 0.0, width, depth)  # type: ignore[arg-type]
