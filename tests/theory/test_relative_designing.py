"""Designs with thresholds relative to the layer's own size."""

import math

import pytest
from scipy.stats import norm

import hush
from hush.theory import activation_names, entry_of, largest_safe_clip, slope_and_curvature_of_clip, variance_map

NAMES = [name for name in activation_names() if entry_of(name).relative]


@pytest.mark.parametrize("q_star", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("name", NAMES)
def test_a_chain_on_the_edge_whatever_the_scale(name: str, q_star: float) -> None:
    made = hush.design(name, 0.85, width=200, depth=30, q_star=q_star)
    tail = 0.15 if not entry_of(name).odd else 0.075
    assert made.threshold == pytest.approx(norm.isf(tail))  # in units of rms(h): q* is not in it
    assert made.clip == (2.0 if entry_of(name).clipped else None)
    psi = made.phi().psi
    assert made.sigma_w2 == pytest.approx(1.0 / psi.slope_moment(1, 1.0))
    assert made.v_prime == pytest.approx(psi.second_moment(1.0) / psi.slope_moment(1, 1.0))
    assert made.sigma_b2 == pytest.approx(q_star * (1.0 - made.v_prime))
    assert made.v_second == 0.0
    assert made.input_variance == q_star  # q* is stable from above too
    (point,) = made.fixed_points
    assert point.value == pytest.approx(q_star)
    assert variance_map(made.phi(), 100.0 * q_star, made.sigma_w, made.sigma_b) < 100.0 * q_star
    assert made.trains
    assert "the only fixed point" in made.verdict
    assert "late on" not in made.verdict  # what the paper saw of low clips says nothing here
    assert hush.Design.from_json(made.to_json()) == made
    assert "rms(h)" in str(made)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", ["residual", "feedforward", "gated"])
def test_blocks_of_a_stream(block: str, name: str) -> None:
    for more in ({}, {"norm": "rms"}):
        made = hush.design(name, 0.95, width=48, depth=5, block=block, **more)
        assert made.trains
        assert made.odds is not None
        # No norm is needed to keep it.
        assert made.odds.sparsity_lost == 0.0
        assert made.keeps_sparsity
        assert made.block().sparsity(3.0) == pytest.approx(0.95)
        assert hush.Design.from_json(made.to_json()) == made


def test_a_clip_by_its_slope() -> None:
    made = hush.design("relative_crelu", 0.85, v_prime=0.3, q_star=4.0)
    assert made.v_prime == pytest.approx(0.3)
    assert slope_and_curvature_of_clip("relative_crelu", made.threshold, made.clip, 4.0) == pytest.approx((0.3, 0.0))
    with pytest.raises(ValueError, match=r"gives V′\(q\*\) = 0.7; without a clip it is 0.463"):
        hush.design("relative_crelu", 0.85, v_prime=0.7)


def test_through_the_scale_or_not() -> None:
    through, constant = (
        hush.design("relative_relu", 0.85, width=100, depth=20, through_scale=choice) for choice in (None, False)
    )
    assert through.through_scale
    assert not constant.through_scale
    assert through.sigma_w2 == constant.sigma_w2
    # Along h less comes back than in other directions through the scale, and more without.
    assert through.gain_log10 is not None
    assert constant.gain_log10 is not None
    assert through.gain_log10.median < constant.gain_log10.median - 0.4
    assert not constant.module().through_scale  # type: ignore[union-attr]
    assert "through_scale" not in hush.design("crelu", 0.85, clip=1.0).to_dict()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hush.design("crelu", 0.85, clip=1.0, through_scale=True), "through_scale = True is for thresholds"),
        (lambda: hush.design("relative_relu", 0.85, clip=1.0), "relative_crelu has one"),
        (lambda: hush.design("relative_crelu", 0.85, clip=1e9), r"at most 1e\+06 rms\(h\)"),
        (lambda: hush.design("relative_crelu", 0.85, clip=math.inf), "without a clip relative_crelu is relative_relu"),
        (lambda: hush.design("relative_relu", 0.3), r"the sparsity of relative_relu lies in \[0.5, 1\)"),
        (lambda: largest_safe_clip("relative_crelu", 0.85, 100, 10), "needs no clip to be safe"),
    ],
)
def test_mistakes(call, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
