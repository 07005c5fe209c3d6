"""Second derivatives, torch.func, tracing, scripting, exporting: an accelerated model goes through all of them."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.autograd.functional import hessian, hvp, jacobian, vhp

import hush.nn as hn
from hush.sparse import accelerate

from .alike import assert_alike, assert_same_gradients, engine_runs, mlp, twins
from .conftest import assert_near

# torch scripts its forward-mode decompositions, and dynamo makes an instance of an autograd Function: both deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b, self.c = nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        h = self.act(self.a(x))
        return self.c(torch.relu(self.b(h)) + h)


def relu_mlp():
    return mlp(make=nn.ReLU)


MODELS = pytest.mark.parametrize("make", [relu_mlp, Custom])
ALL = pytest.mark.parametrize("make", [relu_mlp, Custom, mlp])


def loss(model):
    return lambda x: (model(x).square().sum(-1) + model(x).sin().sum(-1)).sum()


@MODELS
@pytest.mark.parametrize("second", [hessian, lambda f, x: hvp(f, x, torch.ones_like(x))[1],
                                    lambda f, x: vhp(f, x, torch.ones_like(x))[1], jacobian])  # fmt: skip
def test_hessians_and_their_products(make, second):
    plain, fast = twins(make())
    x = torch.randn(2, 12)
    expected = second(loss(plain), x)
    assert expected.abs().max() > 0
    assert_near(second(loss(fast), x), expected, 1e-4)


@ALL
def test_a_batch_of_gradients(make):
    plain, fast = twins(make())
    x, rows, found = torch.randn(3, 12), torch.randn(4, 3, 5), []
    for model in (plain, fast):
        y = x.clone().requires_grad_()
        found.append(torch.autograd.grad(model(y), [y, *model.parameters()], rows, is_grads_batched=True))
    for expected, actual in zip(*found, strict=True):
        assert not actual.requires_grad
        assert_near(actual, expected, 1e-4)


@ALL
def test_a_gradient_penalty(make):
    plain, fast = twins(make())
    x = torch.randn(6, 12)

    def penalty(model, x):
        (gradient,) = torch.autograd.grad(loss(model)(x), x, create_graph=True)
        return (gradient.norm(dim=-1) - 1.0).square() + loss(model)(x)

    with engine_runs():
        assert_alike(plain, fast, x)
    assert_alike(plain, fast, x, penalty)


@ALL
def test_second_gradients_of_the_parameters(make):
    plain, fast = twins(make())
    x, results = torch.randn(6, 12), []
    for model in (plain, fast):
        first = torch.autograd.grad(loss(model)(x), list(model.parameters()), create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), list(model.parameters())))
    for e, a in zip(*results, strict=True):
        assert_near(a, e, 1e-4)


def _func_cases():
    f = torch.func

    def of_parameters(model, x):
        given = {k: p.detach() for k, p in model.named_parameters()}
        return f.grad(lambda p: f.functional_call(model, p, (x,)).square().sum())(given)

    def per_sample(model, x):
        given = {k: p.detach() for k, p in model.named_parameters()}
        one = f.grad(lambda p, row: f.functional_call(model, p, (row,)).square().sum())
        return f.vmap(one, in_dims=(None, 0))(given, x)

    return {
        "grad": lambda m, x: f.grad(loss(m))(x),
        "vjp": lambda m, x: f.vjp(m, x)[1](torch.ones(len(x), 5))[0],
        "jvp": lambda m, x: f.jvp(m, (x,), (torch.ones_like(x),))[1],
        "jacrev": lambda m, x: f.jacrev(m)(x),
        "jacfwd": lambda m, x: f.jacfwd(m)(x),
        "hessian": lambda m, x: f.hessian(loss(m))(x),
        "vmap": lambda m, x: f.vmap(m)(x),
        "vmap of a batch": lambda m, x: f.vmap(m)(x.expand(3, *x.shape)),
        "functional_call": lambda m, x: f.functional_call(m, {k: 2 * p for k, p in m.named_parameters()}, (x,)),
        "grad of the parameters": of_parameters,
        "gradients of each sample": per_sample,
    }


@ALL
@pytest.mark.parametrize("case", _func_cases().values(), ids=_func_cases().keys())
def test_torch_func(make, case):
    plain, fast = twins(make())
    x, results = torch.randn(4, 12), []
    for model in (plain, fast):
        try:
            results.append(case(model, x))
        except NotImplementedError as error:  # forward mode through the activations of hush.nn
            results.append(error)
    expected, actual = results
    if isinstance(expected, NotImplementedError):
        assert type(actual) is NotImplementedError
        return
    pairs = [(expected, actual)] if isinstance(expected, torch.Tensor) else [(expected[k], actual[k]) for k in expected]
    for e, a in pairs:
        assert e.abs().max() > 0
        assert_near(a, e, 1e-4)


@MODELS
def test_an_ensemble_by_stack_module_state(make):
    pairs = [twins(make()) for _ in range(3)]
    x, results = torch.randn(4, 12), []
    for models in zip(*pairs, strict=True):
        parameters, buffers = torch.func.stack_module_state(list(models))
        base = copy.deepcopy(models[0]).to("meta")
        one = lambda p, b, x: torch.func.functional_call(base, (p, b), (x,))  # noqa: B023, E731
        results.append(torch.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x))
    assert_near(results[1], results[0], 1e-4)


@MODELS
def test_forward_mode(make):
    plain, fast = twins(make())
    x, results = torch.randn(4, 12), []
    for model in (plain, fast):
        with forward_ad.dual_level():
            out = forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x))))
            results.append((out.primal, out.tangent))
    assert results[1][1] is not None
    assert_near(results[1][0], results[0][0], 1e-4)
    assert_near(results[1][1], results[0][1], 1e-4)


@MODELS
def test_forward_mode_of_the_parameters(make):
    plain, fast = twins(make())
    x, tangents, results = torch.randn(4, 12), [torch.randn_like(p) for p in plain.parameters()], []
    for model in (plain, fast):
        with forward_ad.dual_level():
            given = {
                name: forward_ad.make_dual(p.detach(), t)
                for (name, p), t in zip(model.named_parameters(), tangents, strict=True)
            }
            results.append(forward_ad.unpack_dual(torch.func.functional_call(model, given, (x,))).tangent)
    assert_near(results[1], results[0], 1e-4)


@ALL
def test_autocast(make):
    plain, fast = twins(make())
    x = torch.randn(9, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(x).dtype == plain(x).dtype == torch.bfloat16
        assert_near(fast(x), plain(x), 2e-2)
        for model in (plain, fast):
            model(x).float().square().sum().backward()
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad, 3e-2)


@ALL
@pytest.mark.parametrize("dynamic", [False, True])
def test_export(make, dynamic):
    plain, fast = twins(make())
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if dynamic else {}
    program = torch.export.export(fast, (torch.randn(9, 12),), **shapes)
    x = torch.randn(5 if dynamic else 9, 12)
    assert_near(program.module()(x), plain(x))


@MODELS
def test_fx(make):
    plain, fast = twins(make())
    traced, x = torch.fx.symbolic_trace(fast), torch.randn(9, 12)
    assert_alike(plain, traced, x)


@MODELS
def test_jit_trace_and_script(make):
    plain, fast = twins(make())
    x = torch.randn(9, 12)
    assert_near(torch.jit.trace(fast, x)(x), plain(x))
    assert_near(torch.jit.script(fast)(x), plain(x))
    assert_alike(plain, fast, x)


@ALL
def test_compiles_whole(make):
    plain, fast = twins(make())
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    x = torch.randn(9, 12)
    with torch.no_grad():
        assert_near(compiled(x), plain(x))
    for model in (plain, compiled):
        model(x).square().sum().backward()
    assert_same_gradients(plain, fast)
    assert_alike(plain, fast, x)  # and uncompiled after that


def test_compiled_and_edited():
    plain, fast = twins(mlp())
    x = torch.randn(9, 12)
    compiled = torch.compile(fast, backend="aot_eager")
    assert_near(compiled(x), plain(x))
    for model in (plain, fast):
        torch.manual_seed(1)
        model[-1] = nn.Linear(24, 3)
        model[1].threshold = 0.3
    assert_near(compiled(x), plain(x))


def test_modes_and_subclasses_see_every_call():
    plain, fast = twins(relu_mlp())
    x = torch.randn(9, 12)

    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            return 2.0 * out if function is nn.functional.linear else out

    class Tagged(torch.Tensor):
        pass

    with Doubling():
        assert_near(fast(x), plain(x))
    out = fast(x.as_subclass(Tagged))
    assert type(out) is type(plain(x.as_subclass(Tagged)))
    assert_near(out.as_subclass(torch.Tensor), plain(x))


def test_a_sparse_input_does_what_it_does():
    plain, fast = twins(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)))
    inputs, said = (torch.randn(9, 12) * (torch.rand(9, 12) > 0.7)).to_sparse(), []
    for model in (plain, fast):
        try:
            said.append(model(inputs))
        except Exception as error:
            said.append(type(error))
    if isinstance(said[0], torch.Tensor):
        assert_near(said[1], said[0])
    else:
        assert said[0] is said[1]


def test_reentrant_and_nested_transforms_leave_nothing_behind():
    plain, fast = twins(relu_mlp())
    x = torch.randn(4, 12)
    for _ in range(2):
        torch.func.jacrev(fast)(x)
        torch.func.vmap(fast)(x)
        with engine_runs():
            assert_alike(plain, fast, x)


def test_accelerated_inside_a_transform():
    """accelerate itself may be called where a transform is under way; the model is then what it was."""
    x = torch.randn(4, 12)
    plain = relu_mlp()

    def f(x):
        return accelerate(copy.deepcopy(plain))(x).square().sum()

    assert_near(torch.func.grad(f)(x), torch.func.grad(lambda x: plain(x).square().sum())(x), 1e-4)
    assert isinstance(plain[1], nn.ReLU)
    assert not isinstance(plain[1], hn.CReLU)
