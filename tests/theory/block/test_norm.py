"""Norms: what they do to a stream, and their backward pass against differences of the forward pass."""

import numpy as np
import pytest

from hush.theory.block.norm import backward_through, check_norm, hold, normalise


@pytest.mark.parametrize("norm", [None, "rms", "layer"])
def test_backward_is_the_derivative_of_forward(norm) -> None:
    rng = np.random.default_rng(0)
    x, gradient, direction = rng.standard_normal((3, 4, 7))
    x = 1.7 * x + 0.3
    normalised, scale = normalise(norm, x)
    step = 1e-6
    forward = (normalise(norm, x + step * direction)[0] - normalise(norm, x - step * direction)[0]) / (2.0 * step)
    back = backward_through(norm, normalised, scale, gradient)
    assert (back * direction).sum(1) == pytest.approx((gradient * forward).sum(1), rel=1e-7)


def test_what_comes_out_has_second_moment_one() -> None:
    x = 3.0 + np.random.default_rng(1).standard_normal((2, 50))
    rms, layer = normalise("rms", x)[0], normalise("layer", x)[0]
    assert np.mean(rms**2, axis=1) == pytest.approx([1.0, 1.0])
    assert np.mean(layer**2, axis=1) == pytest.approx([1.0, 1.0])
    assert np.mean(layer, axis=1) == pytest.approx([0.0, 0.0], abs=1e-12)
    assert np.mean(rms, axis=1).min() > 0.5
    assert np.array_equal(normalise("rms", np.zeros((1, 3)))[0], np.zeros((1, 3)))


def test_a_stream_that_has_run_away_is_held() -> None:
    x = np.array([[1e200, -1e200], [1.0, 2.0]]) * 1e-50
    held = hold(x)
    assert np.array_equal(held[1], x[1])
    assert np.sqrt(np.mean(held[0] ** 2)) == pytest.approx(1e15)


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="norm must be None, 'rms' or 'layer', got 'batch'"):
        check_norm("batch")
