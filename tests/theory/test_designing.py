"""design(): what it chooses, what it refuses, how it prints and survives JSON."""

import json
import math

import pytest

from hush import Design, design
from hush.theory import (
    InputCorrelations,
    InputNorms,
    Stability,
    finite_width,
    largest_safe_clip,
    threshold_from_sparsity,
)

KEYS = [
    "activation", "sparsity", "threshold", "clip", "q_star", "sigma_w2", "sigma_b2", "chi1", "v_prime", "v_second",
    "fixed_points", "width", "depth", "gain_log10", "odds", "verdict", "separation", "lost_at_depth",
]  # fmt: skip


def test_with_width_and_depth_the_clip_is_the_largest_safe_one() -> None:
    made = design("crelu", 0.85, width=300, depth=100)
    assert made.clip == largest_safe_clip("crelu", 0.85, 300, 100)
    assert made.threshold == threshold_from_sparsity("crelu", 0.85)
    assert made.chi1 == pytest.approx(1.0)
    assert made.odds is not None
    assert made.odds.explode <= 0.01
    assert made.trains
    assert made.phi().sparsity(1.0) == pytest.approx(0.85)


def test_with_a_slope_that_is_used_and_judged() -> None:
    made = design("cst", 0.85, v_prime=0.9, width=300, depth=100)
    assert made.v_prime == pytest.approx(0.9)
    assert made.trains is False
    assert made.verdict.startswith("V′(q*) = 0.90 and V″ = 0.90: a second stable point at q = 5.34; at width 300, ")
    assert "initialisations in 10 explode" in made.verdict
    assert made.verdict.endswith("it will not train.")


def test_with_a_clip_that_is_used() -> None:
    made = design("crelu", 0.85, clip=1.17)
    assert made.clip == 1.17
    assert made.v_prime == pytest.approx(0.7, abs=0.005)
    assert made.trains is None
    assert made.odds is None
    assert made.verdict.endswith("Give width and depth for the odds.")


def test_unclipped_leans_on_one_side() -> None:
    made = design("shifted_relu", 0.7, width=300, depth=100)
    assert made.clip is None
    assert made.input_variance == 0.75
    assert made.fixed_points[0].stability is Stability.STABLE_FROM_BELOW
    assert "stable from below only" in made.verdict
    assert made.trains is False


def test_relu_is_neutral() -> None:
    made = design("shifted_relu", 0.5, width=300, depth=100)
    assert made.input_variance == 1.0
    assert [p.stability for p in made.fixed_points] == [Stability.NEUTRAL]
    assert "every q is a fixed point" in made.verdict
    assert made.trains


def test_a_network_too_narrow_for_its_depth_is_told_so() -> None:
    made = design("crelu", 0.95, v_prime=0.3, width=30, depth=200)
    assert made.trains is False
    assert "hardly learn" in made.verdict


def test_a_low_clip_at_high_sparsity_makes_inputs_indistinguishable() -> None:
    made = design("crelu", 0.85, v_prime=0.5, width=300, depth=100)
    assert made.odds is not None
    assert made.odds.indistinguishable > 0.5
    assert made.trains is False
    assert made.lost_at_depth is not None
    assert f"indistinguishable from layer {made.lost_at_depth} on" in made.verdict
    assert "take a larger clip" in made.verdict
    assert any(name == "indistinguishable from layer" for name, _ in made.rows())
    curve = made.distinguishability()
    assert (curve.at_end, curve.lost_at_depth) == (made.separation, made.lost_at_depth)
    with pytest.raises(ValueError, match="depends on width and depth; this design has none"):
        design("crelu", 0.85, v_prime=0.5).distinguishability()


def test_where_no_clip_is_safe_the_verdict_says_so() -> None:
    made = design("crelu", 0.85, width=200, depth=78)
    assert made.trains is False
    assert "No clip is safe at this depth" in made.verdict


def test_the_inputs_own_cosines_count() -> None:
    alike, one_norm = InputCorrelations((0.5,), (0.9999,)), InputNorms((0.5,), (1.0,))
    made, twins = (
        design("crelu", 0.8, v_prime=0.7, width=300, depth=10, norms=one_norm, **more)
        for more in ({}, {"correlations": alike})
    )
    assert made.separation is not None
    assert twins.separation is not None
    assert twins.separation < 0.1 * made.separation


@pytest.mark.parametrize("a", [0.25, 9.0])
def test_q_star_is_a_unit(a: float) -> None:
    one, scaled = (design("cst", 0.8, v_prime=0.7, q_star=q) for q in (1.0, a))
    assert scaled.threshold == pytest.approx(math.sqrt(a) * one.threshold)
    assert scaled.clip == pytest.approx(math.sqrt(a) * (one.clip or 0.0))
    assert scaled.sigma_w2 == pytest.approx(one.sigma_w2)
    assert scaled.sigma_b2 == pytest.approx(a * one.sigma_b2)
    assert scaled.v_second == pytest.approx(one.v_second / a)


@pytest.mark.parametrize(
    "arguments",
    [
        {"activation": "crelu", "sparsity": 0.85, "width": 300, "depth": 30},
        {"activation": "cst", "sparsity": 0.85, "v_prime": 0.9},
        {"activation": "soft_threshold", "sparsity": 0.5, "width": 100, "depth": 20},
        {"activation": "shifted_relu", "sparsity": 0.5},
    ],
)
def test_json_round_trip(arguments: dict) -> None:
    made = design(**arguments)
    assert Design.from_json(made.to_json()) == made
    plain = json.loads(made.to_json())
    assert list(plain) == KEYS
    if made.odds is not None:
        assert list(plain["gain_log10"]) == ["q10", "median", "q90"]
        assert list(plain["odds"]) == ["explode", "vanish", "indistinguishable"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"activation": "crelu"}', "null"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="this is not a hush design"):
        Design.from_json(text)


def test_it_prints_as_a_table_with_the_verdict() -> None:
    lines = str(design("crelu", 0.85, v_prime=0.7, width=300, depth=100)).splitlines()
    assert lines[0].split() == ["activation", "crelu"]
    assert any(line.startswith("odds to explode") for line in lines)
    assert lines[-1].endswith("it should train.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "mish"}, "unknown activation 'mish'; hush designs shifted_relu, soft_threshold, crelu, cst"),
        ({"activation": "gelu"}, "gelu has no threshold to choose, its share of zeros is 0; leave the sparsity out"),
        ({}, "crelu needs a clip: give width and depth to have it chosen, or v_prime, or clip"),
        ({"clip": 1.0, "v_prime": 0.5}, "v_prime = 0.5 and clip = 1.0 contradict each other"),
        ({"width": 300}, "width and depth go together, got width = 300 and depth = None"),
        ({"clip": 0.0}, "clip must be positive, got 0.0"),
        ({"clip": math.inf}, "clip must be finite, got inf; without a clip crelu is shifted_relu"),
        ({"v_prime": 1.5}, "strictly between 0 and 1, got 1.5"),
        ({"sparsity": 0.2, "clip": 1.0}, r"the sparsity of crelu lies in \[0.5, 1\), got 0.2"),
        ({"q_star": -1.0, "clip": 1.0}, "q_star must be positive and finite, got -1.0"),
        ({"width": 300, "depth": 0}, "depth must be a whole number of at least 2, got 0"),
        ({"activation": "shifted_relu", "clip": 1.0}, "shifted_relu has no clip to choose.* got clip = 1.0"),
        ({"activation": "shifted_relu", "v_prime": 0.5}, "shifted_relu has no clip to choose.* got v_prime = 0.5"),
    ],
)
def test_bad_arguments_get_a_sentence(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        design(**{"activation": "crelu", "sparsity": 0.85} | arguments)


class TestPositions:
    """For a CNN the gradient's norm is a sum over positions too, and so is its spread."""

    def test_they_reach_the_odds(self) -> None:
        made = {n: design("crelu", 0.85, v_prime=0.8, width=100, depth=60, positions=n) for n in (1, 64)}
        spreads = {n: one.gain_log10.q90 - one.gain_log10.q10 for n, one in made.items() if one.gain_log10 is not None}
        assert spreads[64] < spreads[1]
        assert made[1].odds is not None
        assert made[64].odds is not None
        assert made[64].odds.vanish < 0.5 * made[1].odds.vanish
        chain = finite_width(made[64].phi(), made[64].sigma_w, made[64].sigma_b, 100, 60, positions=64)
        assert (made[64].odds.explode, made[64].odds.vanish) == (chain.explode, chain.vanish)
        assert finite_width(made[64].block(), width=100, depth=60) == chain

    def test_they_reach_the_safe_clip(self) -> None:
        clips = [largest_safe_clip("crelu", 0.85, 100, 60, positions=n) for n in (1, 64)]
        assert clips[0] != clips[1]
        assert design("crelu", 0.85, width=100, depth=60, positions=64).clip == clips[1]

    def test_they_are_part_of_the_design(self) -> None:
        made = design("crelu", 0.85, v_prime=0.8, width=100, depth=20, positions=64)
        assert json.loads(made.to_json())["positions"] == 64
        assert Design.from_json(made.to_json()) == made
        assert ("positions", "64") in made.rows()

    def test_older_json_without_them_is_that_of_an_mlp(self) -> None:
        made = design("crelu", 0.85, v_prime=0.8, width=100, depth=20)
        assert "positions" not in json.loads(made.to_json())
        assert Design.from_json(made.to_json()).positions == 1

    def test_they_are_whole_numbers(self) -> None:
        with pytest.raises(ValueError, match="positions must be a whole number of at least 1, got 0"):
            design("crelu", 0.85, v_prime=0.8, width=100, depth=20, positions=0)
        with pytest.raises(ValueError, match="positions must be a whole number of at least 1, got 0"):
            design("crelu", 0.85, v_prime=0.8, positions=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clip": 1e300}, r"clip must be at most 1e\+06 √q\*, got 1e\+300, .* without a clip crelu is shifted_relu"),
        ({"clip": 1e-300}, r"clip must be at least 1e-09 √q\*, got 1e-300, which lets no gradient pass"),
        ({"v_prime": 0.7, "q_star": 1e300}, "q_star must lie between 1e-28 and 1e.28, got 1e.300; it is only a unit"),
        ({"v_prime": 0.7, "q_star": 1e-300}, "q_star must lie between 1e-28 and 1e.28, got 1e-300; it is only a unit"),
        ({"width": 300, "depth": 1_000_000}, "depth must be at most 10000, got 1000000"),
        ({"width": 10**13, "depth": 10}, "width must be at most 1000000000000, got 10000000000000"),
    ],
)
def test_extremes_are_refused_in_a_sentence(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        design(**{"activation": "crelu", "sparsity": 0.85} | arguments)


@pytest.mark.parametrize("q_star", [1e-28, 1e28])
@pytest.mark.parametrize("name", ["crelu", "cst", "shifted_relu", "soft_threshold"])
def test_at_the_ends_of_the_range_of_units_it_says_the_same(name: str, q_star: float) -> None:
    choice = {"v_prime": 0.8} if name in ("crelu", "cst") else {}
    one, far = (design(name, 0.8, width=200, depth=30, q_star=q, **choice) for q in (1.0, q_star))
    assert one.odds is not None
    assert far.odds is not None
    assert far.odds.explode == pytest.approx(one.odds.explode, abs=2e-3)
    assert far.sigma_w2 == pytest.approx(one.sigma_w2)
    assert far.verdict.rpartition(";")[2] == one.verdict.rpartition(";")[2]


def test_the_deepest_chain_fits_into_memory() -> None:
    made = design("crelu", 0.7, v_prime=0.5, width=10_000, depth=3000)
    assert made.odds is not None
    assert 0.0 <= made.odds.explode <= 1.0
