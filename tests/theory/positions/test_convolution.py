import numpy as np
import pytest
import torch
from torch.nn import functional

from hush.theory import Activate, Chain, Convolution, Dense, Field, relu, run_steps
from tests.theory.positions.dense_oracle import channels, correlated, field_of, moments

SHAPES = [
    ((9,), {"kernel": 3, "stride": 1, "padding": 1, "mode": "zeros"}),
    ((9,), {"kernel": 3, "stride": 2, "padding": 0, "dilation": 2, "mode": "zeros"}),
    ((8,), {"kernel": 3, "stride": 2, "padding": 1, "mode": "circular"}),
    ((4, 5), {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 0), "mode": "zeros"}),
    ((4, 4), {"kernel": 3, "stride": 1, "padding": 1, "mode": "circular"}),
]


def convolution(step: Convolution, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = x.ndim - 2
    sides = [p for size in reversed(step.window.along(step.padding, n)) for p in (size, size)]
    x = functional.pad(x, sides, mode="circular" if step.mode == "circular" else "constant")
    function = functional.conv1d if n == 1 else functional.conv2d
    return function(x, weight, stride=step.window.along(step.stride, n), dilation=step.dilation)


@pytest.mark.parametrize(("shape", "options"), SHAPES)
def test_forward_and_backward_are_those_of_torch(shape, options) -> None:
    step = Convolution(1.3, 0.4, **options)
    size = int(np.prod(shape))
    field = field_of(correlated(size), shape)
    c_in, c_out = 30, 8000
    x = torch.tensor(channels(field.kernel[0, 0], c_in).reshape(1, c_in, *shape))
    kernel = step.window.along(step.kernel, len(shape))
    weight = torch.randn(c_out, c_in, *kernel, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight *= 1.3 / np.sqrt(c_in * np.prod(kernel))
    y = convolution(step, x, weight)
    after = step.forward(field)
    assert after.shape == tuple(y.shape[2:])
    assert np.allclose(moments(y[0].flatten(1).numpy()) + 0.4**2, after.kernel[0, 0], atol=0.12, rtol=0.03)
    # Backwards: few channels behind, many in front.
    c_out, c_in = 30, 8000
    gradient = field_of(correlated(after.positions, seed=2), after.shape)
    weight = torch.randn(c_out, c_in, *kernel, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    weight *= 1.3 / np.sqrt(c_in * np.prod(kernel))
    x = torch.zeros(1, c_in, *shape, dtype=torch.float64, requires_grad=True)
    arriving = channels(gradient.kernel[0, 0], c_out).reshape(1, c_out, *after.shape) / np.sqrt(c_out)
    convolution(step, x, weight).backward(torch.tensor(arriving))
    found = x.grad[0].flatten(1).numpy()
    assert np.allclose(found.T @ found, step.backward(gradient, field).kernel[0, 0], atol=0.12, rtol=0.03)


def test_dense_is_a_convolution_of_one_tap() -> None:
    field = field_of(correlated(6))
    gradient = field_of(correlated(6, seed=1))
    one, other = Dense(1.3, 0.2), Convolution(1.3, 0.2, kernel=1, padding=0)
    assert np.allclose(one.forward(field).kernel, other.forward(field).kernel)
    assert np.allclose(one.backward(gradient, field).kernel, other.backward(gradient, field).kernel)


@pytest.mark.parametrize("stride", [1, 2])
def test_stationary_fields_are_averages_of_full_ones(stride: int) -> None:
    step = Convolution(1.3, 0.4, stride=stride, mode="circular")
    field = field_of(correlated(24), (4, 6)).averaged()
    after = step.forward(field)
    assert np.allclose(after.full().kernel, step.forward(field.full()).kernel)
    gradient = field_of(correlated(after.positions), after.shape).averaged()
    back = step.backward(gradient, field)
    assert np.allclose(back.kernel, step.backward(gradient.full(), field.full()).averaged().kernel)
    assert back.total == pytest.approx(1.3**2 * gradient.total)


def test_alike_positions_follow_the_plain_chain() -> None:
    phi, chain = relu(), Chain(relu(), 1.2, 0.5)
    field = Field.uniform((8,), 1.0, 0.3)
    (_, row) = run_steps([Activate(phi), Convolution(1.2, 0.5, mode="circular")], field, Field.uniform((8,)))
    assert row.variance == pytest.approx(chain.variance(1.0))
    assert row.position_correlation == pytest.approx(chain.covariance(0.3, 1.0, 1.0) / chain.variance(1.0))
    both = run_steps([Activate(phi), Convolution(1.2, 0.5, mode="circular")], field, Field.uniform((8,)))
    assert 10 ** both[0].gradient_log10 == pytest.approx(chain.gain(1.0))


def test_zero_padding_takes_variance_at_the_border_and_gradient_through_it() -> None:
    (row,) = run_steps([Convolution(1.0)], Field.uniform((5,)), Field.uniform((5,)))
    assert row.profile == pytest.approx((2 / 3, 1.0, 1.0, 1.0, 2 / 3))
    assert 10**row.gradient_log10 == pytest.approx((3 + 4 / 3) / 5)


def test_errors_are_sentences() -> None:
    with pytest.raises(ValueError, match="no borders for zero padding"):
        Convolution(1.0).forward(Field.uniform((4, 4), stationary=True))
    with pytest.raises(ValueError, match="mode must be 'zeros' or 'circular', got 'reflect'"):
        Convolution(1.0, mode="reflect")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stride must be a whole number of at least 1, got 0"):
        Convolution(1.0, stride=0)
    with pytest.raises(ValueError, match=r"does not fit into \(2,\)"):
        Convolution(1.0, kernel=5, padding=0).forward(Field.uniform((2,)))
    with pytest.raises(ValueError, match="has 2 sizes, but the field has 1 dimensions"):
        Convolution(1.0, kernel=(3, 3)).forward(Field.uniform((4,)))
