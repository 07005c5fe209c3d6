import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional

from hush.theory import Activate, AveragePooling, Field, GlobalAverage, MaxPooling, relu
from tests.theory.positions.dense_oracle import channels, correlated, field_of, moments


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_average_is_torch_s_on_every_channel(kernel: int, stride: int, padding: int) -> None:
    step = AveragePooling(kernel, stride, padding)
    field = field_of(correlated(24), (4, 6))
    x = torch.tensor(channels(field.kernel[0, 0], 40).reshape(1, 40, 4, 6), requires_grad=True)
    y = functional.avg_pool2d(x, kernel, stride, padding)
    after = step.forward(field)
    assert np.allclose(after.kernel[0, 0], moments(y[0].detach().flatten(1).numpy()))
    gradient = field_of(correlated(after.positions), after.shape)
    y.backward(torch.tensor(channels(gradient.kernel[0, 0], 40).reshape(1, 40, *after.shape)))
    assert np.allclose(step.backward(gradient, field).kernel[0, 0], moments(x.grad[0].flatten(1).numpy()))


@pytest.mark.parametrize("step", [AveragePooling(2), AveragePooling(3, 1, 1)])
def test_average_of_stationary_fields(step: AveragePooling) -> None:
    field = field_of(correlated(24), (4, 6)).averaged()
    after = step.forward(field)
    if step.padding == 0:
        assert np.allclose(after.full().kernel, step.forward(field.full()).kernel)
    gradient = field_of(correlated(after.positions), after.shape).averaged()
    back = step.backward(gradient, field)
    if step.padding == 0:
        assert np.allclose(back.kernel, step.backward(gradient.full(), field.full()).averaged().kernel)
    # A constant gradient arrives whole: each window hands on as much as it gets.
    flat = Field.uniform(after.shape, 1.0, 1.0, stationary=True)
    assert step.backward(flat, field).total == pytest.approx(after.positions * after.positions / field.positions)


def test_global_average_keeps_what_positions_share() -> None:
    field = Field.uniform((4, 4), 2.0, 0.3, inputs=2, between_inputs=0.5)
    after = GlobalAverage().forward(field)
    assert after.variance == pytest.approx(2.0 * (1 + 15 * 0.3) / 16)
    assert after.input_correlation() == pytest.approx(0.5)
    back = GlobalAverage().backward(Field.uniform((1,)), field.first())
    assert back.position_correlation() == pytest.approx(1.0)
    assert back.total == pytest.approx(1 / 16)
    stationary = Field.uniform((4, 4), 2.0, 0.3, inputs=2, between_inputs=0.5, stationary=True)
    assert np.allclose(GlobalAverage().forward(stationary).kernel[:, :, 0], after.kernel[:, :, 0, 0])


def largest_of(count: int, correlation: float, power: int) -> float:
    """E[max^power] of exchangeable Gaussians by their common factor: a double integral, by the trapezoidal rule."""

    z = np.linspace(-8.0, 8.0, 801)
    density = count * stats.norm.pdf(z) * stats.norm.cdf(z) ** (count - 1)
    values = np.sqrt(correlation) * z[:, None] + np.sqrt(1.0 - correlation) * z
    return float(stats.norm.pdf(z) @ values**power @ density) * 0.02**2


@pytest.mark.parametrize(("kernel", "correlation"), [(2, 0.0), (2, 0.5), (3, 0.3)])
@pytest.mark.parametrize("stationary", [False, True])
def test_maximum_of_exchangeable_gaussians(kernel: int, correlation: float, stationary: bool) -> None:
    mode = "circular" if stationary else "zeros"
    field = Field.uniform((6, 6), 1.0, correlation, stationary=stationary)
    step = MaxPooling(None, kernel, mode=mode)  # type: ignore[arg-type]
    after = step.forward(field)
    assert after.mean.mean() == pytest.approx(largest_of(kernel**2, correlation, 1), abs=0.02)
    assert after.variance == pytest.approx(largest_of(kernel**2, correlation, 2), rel=0.02)
    assert step.error(field) < 0.02


def test_maximum_is_torch_s_forward_and_backward() -> None:
    step, field = MaxPooling(relu(), 3, 2, 1), field_of(correlated(16), (4, 4))
    count = 20_000
    x = torch.tensor(channels(field.kernel[0, 0], count, seed=5).reshape(1, count, 4, 4), requires_grad=True)
    y = functional.max_pool2d(x.relu(), 3, 2, 1)
    after = step.forward(field)
    assert np.allclose(after.kernel[0, 0], moments(y[0].detach().flatten(1).numpy()), rtol=0.05)
    gradient = field_of(correlated(4, seed=1), (2, 2))
    y.backward(torch.tensor(channels(gradient.kernel[0, 0], count, seed=6).reshape(1, count, 2, 2)))
    expected = moments(x.grad[0].flatten(1).numpy())
    back = step.backward(gradient, field)
    assert np.allclose(back.kernel[0, 0], expected, atol=0.12)
    assert back.total == pytest.approx(np.trace(expected), rel=0.03)
    assert step.preactivations(field)[0].q == pytest.approx(field.variance)


def test_errors_are_sentences() -> None:
    behind = Activate(relu()).forward(Field.uniform((4,)))
    with pytest.raises(ValueError, match="give it the activation in front of it"):
        MaxPooling().forward(behind)
    with pytest.raises(ValueError, match="no borders; take mode='circular'"):
        MaxPooling().forward(Field.uniform((4,), stationary=True))
    with pytest.raises(ValueError, match="must keep its size up to the stride"):
        AveragePooling(2).forward(Field.uniform((5,), stationary=True))
