"""ThresholdedGELU and ThresholdedSiLU: values, zeros, derivatives, dtypes, state, and what others make of them."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf, expit
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush
from hush.nn import ThresholdedGELU, ThresholdedSiLU, functional

# The functions in NumPy, independent of torch.
ORACLES = {
    "none": lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))),
    "tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: x * expit(1.702 * x),
}
CASES = [(ThresholdedGELU, kind, ORACLES[kind]) for kind in ORACLES]
CASES.append((ThresholdedSiLU, "silu", lambda x: x * expit(x)))
each = pytest.mark.parametrize(("kind", "name", "oracle"), CASES, ids=[case[1] for case in CASES])


def made(kind: type, name: str, threshold: float) -> nn.Module:
    return kind(threshold) if kind is ThresholdedSiLU else kind(threshold, name)


@each
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.1, 0.4])
def test_large_values_stay_and_the_others_are_zero(kind, name, oracle, threshold: float) -> None:
    x = np.concatenate([np.linspace(-9.0, 9.0, 4001), [-50.0, 50.0]])
    y = oracle(x)
    wanted = np.where(np.abs(y) > threshold, y, 0.0)
    got = made(kind, name, threshold)(torch.from_numpy(x)).numpy()
    assert np.allclose(got, wanted, rtol=1e-12, atol=1e-14)
    if threshold > 0.0:  # else only what underflows is 0, here earlier and there later
        assert np.array_equal(got == 0.0, wanted == 0.0)
        assert (got == 0.0).any()
        assert ((got < 0.0).any()) == (threshold < -y.min())  # the negative side goes last of all


@each
def test_the_derivative_is_that_of_what_stays(kind, name, oracle) -> None:
    x = torch.linspace(-6.0, 6.0, 1201, dtype=torch.float64, requires_grad=True)
    made(kind, name, 0.1)(x).sum().backward()
    points, step = x.detach().numpy(), 1e-5
    slope = (oracle(points + step) - oracle(points - step)) / (2 * step)
    assert np.allclose(x.grad.numpy(), np.where(np.abs(oracle(points)) > 0.1, slope, 0.0), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_zeros_where_the_gradient_has(dtype: torch.dtype) -> None:
    x = torch.linspace(-4.0, 4.0, 4001).to(dtype).requires_grad_()
    threshold = 1.0 / 3.0  # no number of either type
    y = ThresholdedGELU(threshold)(x)
    y.sum().backward()
    rounded = float(torch.tensor(threshold, dtype=dtype))
    assert torch.equal(y == 0, F.gelu(x.detach()).abs() <= rounded)
    assert torch.equal(x.grad == 0, y == 0)


def test_a_nan_passes_and_zeros_are_positive() -> None:
    y = ThresholdedSiLU(0.3)(torch.tensor([math.nan, -0.0, -1e-9, 0.1, -math.inf, math.inf]))
    assert math.isnan(y[0])
    assert torch.equal(torch.signbit(y[1:4]), torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("form", [functional.thresholded_gelu, functional.thresholded_silu, functional.fatrelu])
def test_a_threshold_that_was_never_loaded_shows(form) -> None:
    assert form(torch.ones(3), math.nan).isnan().all()


def test_an_unknown_approximation_is_refused() -> None:
    with pytest.raises(ValueError, match="approximate must be one of none, tanh, sigmoid, got 'cubic'"):
        ThresholdedGELU(0.1, "cubic")


def test_the_state_holds_the_threshold() -> None:
    model = nn.Sequential(nn.Linear(3, 3), ThresholdedGELU(0.7, in_state_dict=True))
    other = nn.Sequential(nn.Linear(3, 3), ThresholdedGELU(0.0))
    other.load_state_dict(model.state_dict())
    assert other[1].threshold == 0.7
    assert repr(other[1]) == "ThresholdedGELU(threshold=0.7)"


def test_the_diagnosis_names_and_the_sparsity_counts_them(generator: torch.Generator) -> None:
    model = nn.Sequential(nn.Linear(64, 64), ThresholdedGELU(0.3), nn.Linear(64, 64), ThresholdedSiLU(0.3))
    x = torch.randn(128, 64, generator=generator)
    counted = hush.sparsity(model, x).layers
    assert counted["1"] == pytest.approx(float((F.gelu(model[0](x)).abs() <= 0.3).double().mean()))
    assert set(counted) == {"1", "3"}
    assert "1" in str(hush.diagnose(model, x))


def test_accelerated_is_the_same(generator: torch.Generator) -> None:
    """The engine leaves the form to torch, and the Linear behind it reads the zeros."""
    model = nn.Sequential(nn.Linear(96, 256), ThresholdedGELU(0.6), nn.Linear(256, 96), ThresholdedSiLU(0.3))
    x = torch.randn(64, 96, generator=generator)
    plain, inputs = _gradients(model, x)
    hush.sparse.accelerate(model)
    fast, inputs_again = _gradients(model, x)
    assert torch.allclose(inputs, inputs_again, atol=1e-5)
    for a, b in zip(plain, fast, strict=True):
        assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("threshold", "drops"), [(0.3, True), (0.0, True), (-0.3, False)])
def test_the_engine_knows_whether_the_gradient_ends_at_zeros(threshold: float, drops: bool) -> None:
    x = torch.zeros(1, requires_grad=True)
    y = F.hardshrink(x, threshold)
    assert functional.drops_gradient_at_zero(y.grad_fn) is drops
    y.backward()
    assert bool(x.grad == 0) is drops
    if threshold >= 0.0:
        assert functional.drops_gradient_at_zero(ThresholdedGELU(threshold)(x).grad_fn)


def _gradients(model: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in model.parameters())], x.grad
