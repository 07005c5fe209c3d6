"""One suite for every activation: value, zeros, derivative, dtypes, memory, and all of torch's transforms."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hush
from hush import theory
from hush.nn import functional
from tests.helpers import assert_sparsity

# Exact in every dtype, so that the kinks can be hit.
TAU, CLIP = 0.5, 1.25


@dataclass(frozen=True)
class Case:
    module: nn.Module
    phi: theory.PiecewiseLinear
    functional: object

    def __str__(self) -> str:
        return type(self.module).__name__


CASES = [
    Case(hush.nn.ShiftedReLU(TAU), theory.shifted_relu(TAU), lambda x: functional.shifted_relu(x, TAU)),
    Case(hush.nn.SoftThreshold(TAU), theory.soft_threshold(TAU), lambda x: functional.soft_threshold(x, TAU)),
    Case(hush.nn.CReLU(TAU, CLIP), theory.crelu(TAU, CLIP), lambda x: functional.crelu(x, TAU, CLIP)),
    Case(hush.nn.CST(TAU, CLIP), theory.cst(TAU, CLIP), lambda x: functional.cst(x, TAU, CLIP)),
    Case(hush.nn.FATReLU(TAU), theory.fatrelu(TAU), lambda x: functional.fatrelu(x, TAU)),
]
each = pytest.mark.parametrize("case", CASES, ids=str)
# torch.compile itself calls something it has deprecated.
compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def special(dtype: torch.dtype) -> Tensor:
    """The values where activations go wrong: zeros, kinks and their neighbours, infinities, subnormals, NaN."""
    info = torch.finfo(dtype)
    kinks = [0.0, TAU, TAU + CLIP]
    values = [v for k in kinks for v in (k, k * (1 + info.eps), k * (1 - info.eps))]
    values += [info.tiny / 4, info.tiny, info.max, math.inf, 1.0, 1e-3]
    return torch.tensor([*values, *(-v for v in values), math.nan], dtype=dtype)


def derivative(function: object, x: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    y = function(x)
    return torch.autograd.grad(y, x, torch.ones_like(y))[0]


@each
def test_equals_its_theory(case: Case, generator: torch.Generator) -> None:
    x = torch.cat([special(torch.float64), 2 * torch.randn(1000, dtype=torch.float64, generator=generator)])
    assert np.array_equal(case.module(x).numpy(), case.phi(x.numpy()), equal_nan=True)
    assert torch.equal(case.module(x).nan_to_num(9), case.functional(x).nan_to_num(9))
    finite = x[~x.isnan()]
    assert np.array_equal(derivative(case.module, finite).numpy(), case.phi.derivative(finite.numpy()))
    assert hush.nn.phi_of(case.module) == case.phi


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_dtypes(case: Case, dtype: torch.dtype, generator: torch.Generator) -> None:
    x = torch.cat([special(dtype), (2 * torch.randn(500, generator=generator)).to(dtype)])
    y = case.module(x)
    exact = torch.from_numpy(case.phi(x.double().numpy())).to(dtype)
    assert y.dtype is dtype
    torch.testing.assert_close(y, exact, rtol=torch.finfo(dtype).eps, atol=0.0, equal_nan=True)
    # The derivative follows the output: none through a zero, none through a saturated unit.
    slope = derivative(case.module, x)
    saturated = y.abs() == CLIP if math.isfinite(case.phi.bound()) else torch.zeros_like(y, dtype=torch.bool)
    passing = (y != 0) & ~saturated
    # At NaN torch's own kernels pass or stop the gradient as the length of the tensor falls.
    assert torch.equal(slope[~y.isnan()], passing.to(dtype)[~y.isnan()])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("clip", [1.17, 1.0650, 3e-7, 0.0031], ids=str)
@pytest.mark.parametrize("kind", [functional.crelu, functional.cst])
def test_a_clip_that_is_not_representable_still_saturates(kind, clip: float, dtype: torch.dtype) -> None:
    x = torch.tensor([5.0, 0.25 + 2 * clip, 0.25 + clip / 2], dtype=dtype)
    slope = derivative(lambda x: kind(x, 0.25, clip), x)
    assert slope[0] == 0.0
    assert kind(x, 0.25, clip)[0] == torch.tensor(clip, dtype=dtype)


@each
def test_zeros_are_exact(case: Case, generator: torch.Generator) -> None:
    x = torch.randn(100_000, generator=generator)
    assert_sparsity(case.module(x), case.phi.sparsity(1.0), 0.006)
    silent = torch.tensor([0.0, -0.0, TAU, TAU / 2, -TAU / 2] * 9)
    assert_sparsity(case.module(silent), 1.0)


@pytest.mark.parametrize("function", [functional.shifted_relu, functional.soft_threshold, functional.fatrelu])
def test_threshold_zero(function) -> None:
    x = torch.tensor([-2.0, -0.0, 0.0, 3.0] * 8)
    y = function(x, 0.0)
    assert not torch.signbit(y[y == 0]).any()
    # A unit that is exactly zero passes no gradient, also where the two kinks of the soft threshold meet.
    assert torch.equal(derivative(lambda x: function(x, 0.0), x), (y != 0).float())


@each
def test_nan_passes(case: Case) -> None:
    assert case.module(torch.full((20,), math.nan)).isnan().all()


@each
def test_gradcheck_away_from_kinks(case: Case, generator: torch.Generator) -> None:
    x = 2 * torch.randn(200, dtype=torch.float64, generator=generator)
    near = torch.stack([(x.abs() - k).abs() < 1e-3 for k in (TAU, TAU + CLIP)]).any(0)
    x = x[~near].requires_grad_()
    assert torch.autograd.gradcheck(case.module, (x,))
    assert torch.autograd.gradgradcheck(lambda x: case.module(x) ** 2, (x,))


@each
def test_backward_keeps_only_the_output(case: Case, generator: torch.Generator) -> None:
    x = torch.randn(64, 30, generator=generator, requires_grad=True)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        y = case.module(x)
    assert [t.data_ptr() for t in kept] == [y.data_ptr()]


@each
def test_memory_format(case: Case, generator: torch.Generator) -> None:
    x = torch.randn(2, 3, 4, 5, generator=generator).to(memory_format=torch.channels_last).requires_grad_()
    y = case.module(x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.is_contiguous(memory_format=torch.channels_last)


@each
def test_func_transforms(case: Case, generator: torch.Generator) -> None:
    x = torch.randn(4, 6, dtype=torch.float64, generator=generator)

    def loss(row: Tensor) -> Tensor:
        return case.module(row).square().sum()

    assert torch.equal(torch.func.vmap(case.module)(x), case.module(x))
    assert torch.equal(torch.func.vmap(case.module, in_dims=1, out_dims=1)(x), case.module(x))
    expected = 2 * case.module(x) * torch.from_numpy(case.phi.derivative(x.numpy()))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x), expected)
    hessian = torch.func.jacrev(torch.func.jacrev(loss))(x[0])
    torch.testing.assert_close(hessian, torch.diag(2 * torch.from_numpy(case.phi.derivative(x[0].numpy()))))


@compiles
@each
def test_compiles_without_a_break(case: Case) -> None:
    x = special(torch.bfloat16)
    compiled = torch.compile(case.module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x).nan_to_num(9), case.module(x).nan_to_num(9))
    x = x[~x.isnan()]
    assert torch.equal(derivative(compiled, x), derivative(case.module, x))


@compiles
def test_inductor_agrees_in_half_precision(generator: torch.Generator) -> None:
    """Fused kernels compute in float32: the saturated units must not come back to life there."""
    modules = [hush.nn.CReLU(0.3, 1.17), hush.nn.CST(0.3, 1.17), hush.nn.FATReLU(0.3)]

    def all_of_them(x: Tensor) -> Tensor:
        return torch.stack([module(x) for module in modules])

    x = torch.cat([special(torch.bfloat16)[:-1], torch.randn(200, generator=generator).to(torch.bfloat16)])
    x = torch.cat([x, torch.tensor([5.0, -5.0], dtype=torch.bfloat16)]).requires_grad_()
    compiled = torch.compile(all_of_them, fullgraph=True)
    assert torch.equal(compiled(x).nan_to_num(9), all_of_them(x).nan_to_num(9))
    # Where x − τ only rounds to m, the fused kernel may see it unrounded.
    clear = ((x.abs() - 1.47).abs() > 0.02).detach()
    assert torch.equal(derivative(compiled, x)[clear], derivative(all_of_them, x)[clear])


@each
def test_exports(case: Case, generator: torch.Generator) -> None:
    x = torch.randn(3, 7, generator=generator)
    program = torch.export.export(case.module, (x,))
    assert torch.equal(program.module()(x), case.module(x))


def test_modules_say_what_they_are() -> None:
    assert repr(hush.nn.CReLU(1.0364, 1.17)) == "CReLU(threshold=1.0364, clip=1.17)"
    assert repr(hush.nn.SoftThreshold(0.5)) == "SoftThreshold(threshold=0.5)"
    assert not list(hush.nn.CST(1.0, 1.0).state_dict())


@pytest.mark.parametrize("name", theory.ACTIVATIONS)
def test_design_gives_its_module(name: str) -> None:
    clip = 1.1 if name in theory.CLIPPED else None
    design = hush.design(name, 0.8, clip=clip)
    assert hush.nn.phi_of(design.module()) == design.phi()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: hush.nn.ShiftedReLU(-1.0), "threshold must be finite and at least 0, got -1.0"),
        (lambda: hush.nn.FATReLU(math.inf), "threshold must be finite"),
        (lambda: hush.nn.CReLU(1.0, 0.0), "clip must be positive, got 0.0"),
        (lambda: hush.nn.CST(1.0, math.nan), "clip must be positive, got nan"),
        (lambda: functional.cst(torch.arange(3), 1.0, 1.0), "floating-point tensor, got torch.int64"),
    ],
)
def test_bad_values(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


@compiles
@each
def test_compiles_for_dynamic_shapes(case: Case, generator: torch.Generator) -> None:
    compiled = torch.compile(case.module, fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (5, 17):
        x = torch.randn(size, 3, generator=generator)
        assert torch.equal(derivative(compiled, x), derivative(case.module, x))
