import numpy as np
import pytest

from hush.theory import Field
from tests.theory.positions.dense_oracle import correlated, field_of


def test_uniform_says_what_it_was_given() -> None:
    field = Field.uniform((5,), 2.0, 0.3, inputs=2, between_inputs=0.4)
    assert field.variance == pytest.approx(2.0)
    assert field.position_correlation() == pytest.approx(0.3)
    assert field.input_correlation() == pytest.approx(0.4)
    assert field.total == pytest.approx(10.0)


def test_of_inputs_averages_over_channels() -> None:
    x = np.random.default_rng(0).standard_normal((2, 7, 3, 4))
    field = Field.of_inputs(x)
    assert field.shape == (3, 4)
    assert field.kernel[0, 1, 5, 2] == pytest.approx((x[0, :, 1, 1] * x[1, :, 0, 2]).mean())
    assert field.mean[1, 11] == pytest.approx(x[1, :, 2, 3].mean())


def test_effective_positions_count_independent_ones() -> None:
    assert Field.uniform((16,)).effective_positions() == pytest.approx(16.0)
    assert Field.uniform((16,), 3.0, 1.0).effective_positions() == pytest.approx(1.0)
    assert Field.uniform((16,), 1.0, 0.5).effective_positions(1.0) == pytest.approx(256 / (16 + 240 * 0.5))


@pytest.mark.parametrize("shape", [(6,), (3, 4)])
def test_full_and_averaged_are_inverse_for_stationary_fields(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    full = field_of(correlated(size), shape)
    stationary = full.averaged()
    assert stationary.variance == pytest.approx(full.variance)
    back = stationary.full()
    assert np.allclose(back.averaged().kernel, stationary.kernel)
    assert np.allclose(back.kernel[0, 0], back.kernel[0, 0].T)


def test_errors_are_sentences() -> None:
    with pytest.raises(ValueError, match=r"correlation must lie in \[−1, 1\], got 1.5"):
        Field.uniform((3,), 1.0, 1.5)
    with pytest.raises(ValueError, match="9000 positions is more than fits into memory"):
        Field.uniform((9000,))
    with pytest.raises(ValueError, match=r"must have the shape \(inputs, inputs, 3, 3\), got \(1, 1, 3, 2\)"):
        Field((3,), np.zeros((1, 1, 3, 2)), np.zeros((1, 3)))
