"""How far apart two inputs stay: the law against pairs that are simulated unit by unit, and its limits."""

import numpy as np
import pytest

from hush.theory import (
    IMAGE_CORRELATIONS,
    IMAGE_NORMS,
    Chain,
    InputCorrelations,
    InputNorms,
    choose_clip,
    design,
    identity,
    largest_safe_clip,
    separations,
)
from hush.theory.block.pair_draws import draw_pair
from hush.theory.training_rule import KEPT_DIFFERENCE, separation_bound

ONE_NORM = InputNorms((0.5,), (1.0,))


def simulated(chain: Chain, width: int, depth: int, pairs: int) -> np.ndarray:
    """1 − cos at every layer, all units drawn; shape (layers, pairs)."""
    rng = np.random.default_rng(5)
    k_a, k_b = IMAGE_NORMS.at(rng.standard_normal((2, pairs)))
    rho = IMAGE_CORRELATIONS.at(rng.standard_normal(pairs))
    x_a, x_b = draw_pair(k_a, k_b, rho * np.sqrt(k_a * k_b), width, rng)
    found = np.empty((depth, pairs))
    for layer in range(depth):
        if layer:
            x_a, x_b = chain.next_pair(x_a, x_b, rng)
        units = [x / np.sqrt((x**2).sum(1, keepdims=True)) for x in (x_a, x_b)]
        found[layer] = 0.5 * ((units[0] - units[1]) ** 2).sum(1)
    return found


@pytest.mark.parametrize(
    ("name", "sparsity", "slope", "width", "depth"),
    [("crelu", 0.85, 0.7, 64, 25), ("cst", 0.9, 0.5, 200, 20), ("crelu", 0.7, 0.7, 128, 40)],
)
def test_quantiles_hold_against_simulated_pairs(
    name: str, sparsity: float, slope: float, width: int, depth: int
) -> None:
    chain = design(name, sparsity, v_prime=slope).chain()
    law = separations(chain, width, depth, pairs=4000)
    found = simulated(chain, width, depth, 300)
    for layer in (depth // 2, depth - 1):
        for level in (0.1, 0.5, 0.9):
            assert np.mean(found[layer] < law.quantiles[level][layer]) == pytest.approx(level, abs=0.085)


def test_a_very_wide_network_follows_the_correlation_map() -> None:
    chain = design("crelu", 0.8, v_prime=0.6).chain()
    law = separations(chain, 10**9, 30, norms=ONE_NORM, correlations=InputCorrelations((0.5,), (0.3,)))
    rho = 0.3
    for layer in range(30):
        assert law.quantiles[0.5][layer] == pytest.approx(1.0 - rho, rel=0.01)
        rho = chain.covariance(rho, 1.0, 1.0)


def test_a_straight_line_keeps_what_it_is_given() -> None:
    law = separations(Chain(identity(), 1.0, 0.0), 10**9, 40, norms=ONE_NORM)
    np.testing.assert_allclose(law.quantiles[0.5], law.quantiles[0.5][0], rtol=1e-2)  # chains run in single precision
    assert law.lost_at_depth is None


def test_narrow_networks_lose_more() -> None:
    chain = design("crelu", 0.85, v_prime=0.5).chain()
    narrow, wide = (separations(chain, width, 60) for width in (64, 2000))
    assert narrow.at_end < 0.05 * wide.at_end
    assert narrow.indistinguishable > 0.5 > wide.indistinguishable
    assert narrow.lost_at_depth is not None
    assert narrow.lost[narrow.lost_at_depth - 1] > 0.5 >= narrow.lost[narrow.lost_at_depth - 2]


def test_the_bound_falls_with_the_square_of_depth_and_is_capped() -> None:
    assert separation_bound(0.1, 100) == pytest.approx(KEPT_DIFFERENCE / (0.1 * 100**2))
    assert separation_bound(0.1, 3) == separation_bound(0.0, 50) == pytest.approx(10**-2.5)


def test_the_clip_is_raised_where_the_calm_one_loses_the_inputs() -> None:
    calm = largest_safe_clip("crelu", 0.85, 200, 74)
    chosen = choose_clip("crelu", 0.85, 200, 74)
    assert (chosen.raised, chosen.safe) == (True, True)
    assert calm < chosen.clip < 1.1 * calm
    roomy = choose_clip("crelu", 0.85, 300, 30)
    assert (roomy.raised, roomy.safe) == (False, True)
    assert roomy.clip == largest_safe_clip("crelu", 0.85, 300, 30)
    lost = choose_clip("crelu", 0.9, 128, 50)
    assert (lost.raised, lost.safe) == (False, False)
    assert choose_clip("crelu", 0.85, 300, 30, q_star=4.0).clip == pytest.approx(2.0 * roomy.clip)


class TestInputCorrelations:
    """Quantiles of the cosine of two inputs."""

    def test_from_inputs(self) -> None:
        rng = np.random.default_rng(0)
        common = rng.standard_normal(400)
        inputs = np.sqrt(0.4) * common + np.sqrt(0.6) * rng.standard_normal((300, 400))
        found = InputCorrelations.from_inputs(inputs.reshape(300, 20, 20))
        assert found.at(np.zeros(1))[0] == pytest.approx(0.4, abs=0.05)

    def test_quantiles_come_back(self) -> None:
        np.testing.assert_allclose(IMAGE_CORRELATIONS.at(np.zeros(3)), 0.28)
        assert np.all(np.abs(IMAGE_CORRELATIONS.at(np.array([-9.0, 9.0]))) < 1.0)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: InputCorrelations((0.5,), (1.0,)), r"values must lie within \(−1, 1\)"),
            (lambda: InputCorrelations((0.5, 0.4), (0.1, 0.2)), "levels must increase"),
            (lambda: InputCorrelations((0.5,), (0.1, 0.2)), "equally long, got 1 and 2"),
            (lambda: InputCorrelations.from_samples([]), "cosines must lie between"),
            (lambda: InputCorrelations.from_inputs(np.ones(3)), "at least two rows"),
            (lambda: InputCorrelations.from_inputs(np.zeros((2, 3))), "not zero throughout"),
        ],
    )
    def test_what_is_refused(self, make, message: str) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(ValueError, match=message):
            make()


def test_what_is_refused() -> None:
    chain = design("crelu", 0.8, v_prime=0.6).chain()
    with pytest.raises(ValueError, match="pairs must lie between 1 and 4000, got 0"):
        separations(chain, 100, 10, pairs=0)
    with pytest.raises(ValueError, match="depth must be a whole number of at least 2"):
        separations(chain, 100, 1)
