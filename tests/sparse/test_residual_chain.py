"""Residual chains against dense float64, with dense float32 beside: norms, scales, activations, shapes, threads."""

import itertools
from dataclasses import replace

import pytest
import torch

from hush.sparse import Activation, Norm, ResidualBlock, engine_calls, residual_chain
from hush.sparse.residual_block import dense_residual, parameters_of, with_parameters

from .conftest import ACTIVATIONS

# No norm over one or two units: there n(x) is ±1 whatever x is, and its derivative a difference of equal numbers.
SHAPES = {1: [(0, 5), (1, 33), (40, 300)], 2: [(1, 7), (9, 50)]}
FORMS = [
    (Norm.NONE, False),
    (Norm.RMS, False),
    (Norm.RMS, True),
    (Norm.LAYER, False),
    (Norm.LAYER, True),
]


def blocks(width, count, norm, affine, phi, seed, bias=True, learned=False, units=None):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g)

    return [
        ResidualBlock(
            normal(width, units or width) / width**0.5,
            normal(width) / 10 if bias else None,
            phi,
            norm,
            1e-5 if norm else 0.0,
            1 + normal(width) / 5 if affine else None,
            normal(width) / 5 if affine and norm is Norm.LAYER else None,
            torch.tensor(0.7 - layer) if learned else 0.6,
            normal(units, width) / width**0.5 if units else None,
            normal(units) / 10 if units and bias else None,
        )
        for layer in range(count)
    ]


def nearest_kink(x, chain):
    """How near a unit of any block comes to a threshold or a clip, in float64."""
    distance = float("inf")
    for block in with_parameters(chain, parameters_of(chain)[1], [p.double() for p in parameters_of(chain)[0]]):
        h = replace(block, phi=Activation.identity()).activations(x).abs()
        for kink in (block.phi.threshold, block.phi.threshold + block.phi.clip):
            distance = min(distance, (h - kink).abs().min().item() if h.numel() else distance)
        x = dense_residual(x, [block])
    return distance


def inputs(batch, width, chain, number):
    """Within rounding of a kink a unit may go either way, so these stay off them."""
    seeds = (torch.Generator().manual_seed(seed) for seed in itertools.count(number, 1000))
    draws = (torch.randn(batch, width, generator=seed) * 2 + 0.3 for seed in seeds)
    return next(x for x in draws if nearest_kink(x.double(), chain) > 1e-6)


def results(run, x, chain, grad, dtype):
    """Output, then the gradients of x and of every parameter."""
    parameters, places = parameters_of(chain)
    leaves = [t.detach().to(dtype).clone().requires_grad_() for t in (x, *parameters)]
    out = run(leaves[0], with_parameters(chain, places, leaves[1:]))
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(dtype))]


def check(x, chain, factor=6.0):
    """No further from float64 than a few times what dense float32 is, or than its rounding."""
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    ours, dense = (results(run, x, chain, grad, torch.float32) for run in (residual_chain, dense_residual))
    exact = results(dense_residual, x, chain, grad, torch.float64)
    for a, d, e in zip(ours, dense, exact, strict=True):
        assert a.shape == e.shape
        if e.numel():
            scale = e.abs().max().item()
            allowed = factor * (d - e).abs().max().item() + 4e-6 * scale + 1e-7
            assert (a - e).abs().max().item() <= allowed


@pytest.mark.parametrize(("norm", "affine"), FORMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_matches_dense_float64(norm, affine, threads):
    torch.set_num_threads(threads)
    cases = itertools.product(SHAPES[threads], (False, True), (False, True))
    for number, ((batch, width), bias, learned) in enumerate(cases):
        # One block for the activation with a jump: behind it a unit at its threshold may go either way.
        name = sorted(ACTIVATIONS)[number % len(ACTIVATIONS)]
        chain = blocks(width, 1 if name == "fatrelu" else 3, norm, affine, ACTIVATIONS[name], number, bias, learned)
        before = engine_calls()
        check(inputs(batch, width, chain, number), chain)
        assert engine_calls() == before + 1


# (batch, width, units): narrower, wider, as wide, a single unit, and more samples than go together.
TWO_MATRICES = {
    1: [(0, 5, 7), (1, 33, 20), (40, 300, 300), (7, 3, 2), (50, 17, 1)],
    2: [(9, 50, 70), (130, 16, 64)],
}


@pytest.mark.parametrize(("norm", "affine"), FORMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_two_matrices_match_dense_float64(norm, affine, threads):
    torch.set_num_threads(threads)
    cases = itertools.product(TWO_MATRICES[threads], (False, True), (False, True))
    for number, ((batch, width, units), bias, learned) in enumerate(cases):
        name = sorted(ACTIVATIONS)[number % len(ACTIVATIONS)]
        count = 1 if name == "fatrelu" else 3
        chain = blocks(width, count, norm, affine, ACTIVATIONS[name], number, bias, learned, units)
        before = engine_calls()
        check(inputs(batch, width, chain, number), chain)
        assert engine_calls() == before + 1


def test_blocks_of_one_and_of_two_matrices_in_one_chain():
    one, two = (blocks(24, 2, Norm.LAYER, True, Activation.crelu(0.4, 1.0), 3, units=n) for n in (None, 40))
    wider = blocks(24, 1, Norm.NONE, False, Activation.cst(0.4, 1.0), 4, units=90)
    check(torch.randn(11, 24, generator=torch.Generator().manual_seed(0)), [one[0], two[0], *wider, two[1], one[1]])


def test_weights_that_are_not_numbers_stay_in_their_rows():
    # A vector of weights that is read beyond the end of its row must not carry what follows into the sums.
    (block,) = blocks(20, 1, Norm.RMS, True, Activation.crelu(0.2, 1.0), 0, units=9)
    block.inner_weight[4] = float("inf")
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    hidden = torch.nn.functional.linear(block.normed(x), block.inner_weight, block.inner_bias)
    ours, dense = residual_chain(x, [block]), dense_residual(x, [block])
    assert not torch.isfinite(hidden[:, 4]).any()
    torch.testing.assert_close(ours, dense, equal_nan=True)


def test_a_stream_far_from_zero_keeps_its_precision():
    chain = blocks(64, 2, Norm.LAYER, True, Activation.crelu(0.8, 1.0), 3)
    check(torch.randn(8, 64) + 50.0, chain)


def test_more_samples_than_16_bits_count():
    check(torch.randn(66_000, 5), blocks(5, 1, Norm.RMS, True, Activation.crelu(0.2, 0.9), 0))


@pytest.mark.parametrize("units", [None, 31])
@pytest.mark.parametrize("norm", list(Norm))
def test_nan_and_inf_propagate_as_dense(norm, units):
    chain = blocks(20, 2, norm, bool(norm), Activation.crelu(0.5, 0.8), 0, units=units)
    for bad in (float("nan"), float("inf")):
        x = torch.randn(4, 20)
        x[1, 3] = bad
        ours, dense = residual_chain(x, chain), dense_residual(x, chain)
        torch.testing.assert_close(ours, dense, equal_nan=True)


def test_a_learned_scale_of_zero_has_its_gradient():
    chain = blocks(16, 2, Norm.RMS, True, Activation.relu(), 0)
    zero = [ResidualBlock(b.weight, b.bias, b.phi, b.norm, b.eps, b.gain, None, torch.tensor(0.0)) for b in chain]
    check(torch.randn(5, 16), zero)


@pytest.mark.parametrize("units", [None, 19])
def test_gradients_of_a_part_of_the_parameters(units):
    chain = blocks(12, 2, Norm.LAYER, True, Activation.cst(0.3, 1.0), 0, learned=True, units=units)
    parameters, places = parameters_of(chain)
    x = torch.randn(6, 12)
    for wanted in range(len(parameters) + 1):
        found = []
        for run in (residual_chain, dense_residual):
            leaves = [t.clone().requires_grad_(i == wanted) for i, t in enumerate((x, *parameters))]
            run(leaves[0], with_parameters(chain, places, leaves[1:])).square().sum().backward()
            found.append([leaf.grad for leaf in leaves])
        for ours, dense in zip(*found, strict=True):
            assert (ours is None) == (dense is None)
            if dense is not None:
                torch.testing.assert_close(ours, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("units", [None, 9])
def test_second_derivatives(units):
    chain = blocks(6, 2, Norm.RMS, True, Activation.crelu(0.3, 5.0), 0, learned=True, units=units)
    parameters, places = parameters_of(chain)
    found = []
    for run in (residual_chain, dense_residual):
        leaves = [t.clone().requires_grad_() for t in (torch.linspace(-2, 2, 18).view(3, 6), *parameters)]
        out = run(leaves[0], with_parameters(chain, places, leaves[1:]))
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        found.append(torch.autograd.grad(penalty, leaves))
    for ours, dense in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-3, atol=1e-4)


def test_a_bias_may_change_before_the_backward_and_the_scale_keeps_its_gradient():
    found = []
    for run in (residual_chain, dense_residual):
        (block,) = blocks(8, 1, Norm.RMS, False, Activation.relu(), 0, learned=True)
        scale, bias = block.scale.clone().requires_grad_(), block.bias.clone()
        changed = ResidualBlock(block.weight, bias, block.phi, block.norm, block.eps, scale=scale)
        out = run(torch.linspace(-1, 1, 16).view(2, 8), [changed]).sum()
        bias.add_(5.0)
        out.backward()
        found.append(scale.grad)
    torch.testing.assert_close(*found)


def test_other_dtypes_run_on_torch():
    chain = blocks(5, 2, Norm.LAYER, True, Activation.cst(0.3, 1.0), 0)
    parameters, places = parameters_of(chain)
    leaves = [t.double().requires_grad_() for t in (torch.randn(3, 5), *parameters)]
    assert torch.autograd.gradcheck(lambda x, *p: residual_chain(x, with_parameters(chain, places, p)), leaves)
    half = [ResidualBlock(b.weight.bfloat16(), b.bias, b.phi, b.norm, b.eps, b.gain, b.shift, b.scale) for b in chain]
    rounded = [ResidualBlock(b.weight.float(), b.bias, b.phi, b.norm, b.eps, b.gain, b.shift, b.scale) for b in half]
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(residual_chain(x, [_major(b) for b in half]), dense_residual(x, rounded))


def _major(block):
    weight = block.weight.t().contiguous().t()
    return ResidualBlock(weight, block.bias, block.phi, block.norm, block.eps, block.gain, block.shift, block.scale)


def test_wrong_arguments_are_sentences():
    (block,) = blocks(6, 1, Norm.NONE, False, Activation.relu(), 0)
    with pytest.raises(ValueError, match=r"must be \(5, 5\)"):
        residual_chain(torch.randn(2, 5), [block])
    with pytest.raises(ValueError, match="at least one block"):
        residual_chain(torch.randn(2, 5), [])
    with pytest.raises(ValueError, match="a gain needs a norm"):
        residual_chain(torch.randn(2, 6), [ResidualBlock(block.weight, None, block.phi, gain=torch.ones(6))])
    with pytest.raises(ValueError, match=r"inner_weight of block 0 has shape \(4, 5\); it must be \(4, 6\)"):
        residual_chain(
            torch.randn(2, 6), [ResidualBlock(torch.ones(6, 4), None, block.phi, inner_weight=torch.ones(4, 5))]
        )
    with pytest.raises(ValueError, match="no inner weight"):
        residual_chain(torch.randn(2, 6), [ResidualBlock(block.weight, None, block.phi, inner_bias=torch.ones(6))])
    with pytest.raises(ValueError, match="but the input is"):
        residual_chain(torch.randn(2, 6), [ResidualBlock(block.weight.double(), None, block.phi)])


@pytest.mark.parametrize("units", [None, 53])
@pytest.mark.parametrize(("norm", "affine"), FORMS)
def test_threads_share_the_work_and_change_no_bit(norm, affine, units):
    # Blocks belong to threads and groups of samples pass by: more blocks than threads, groups of unequal sizes, and
    # fewer samples than groups.
    chain = blocks(40, 13, norm, affine, Activation.crelu(0.4, 1.0), 5, learned=True, units=units)
    for batch in (1, 2, 9):
        x = torch.randn(batch, 40, generator=torch.Generator().manual_seed(batch))
        found = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(results(residual_chain, x, chain, x, torch.float32))
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("units", [None, 30])
def test_a_batch_is_its_samples_one_by_one(units):
    torch.set_num_threads(2)
    chain = blocks(37, 5, Norm.LAYER, True, Activation.crelu(0.4, 1.0), 5, units=units)
    x = torch.randn(6, 37)
    with torch.no_grad():
        whole = residual_chain(x, chain)
        assert torch.equal(whole, torch.cat([residual_chain(row, chain) for row in x.split(1)]))
    assert torch.equal(whole, residual_chain(x.requires_grad_(), chain).detach())
