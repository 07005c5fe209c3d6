"""The operators against dense float64, over shapes, densities, activations, threads."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hush.sparse import Activation, act_linear, chain
from hush.sparse.gradients import dense_chain

from .conftest import OF_CHAINS, assert_near


def layers(widths, seed=0, bias=True):
    g = torch.Generator().manual_seed(seed)
    weights = [torch.randn(o, i, generator=g) / max(i, 1) ** 0.5 for i, o in itertools.pairwise(widths)]
    return weights, [torch.randn(w.shape[0], generator=g) if bias else None for w in weights]


def check(h, weights, biases, phis, tolerance=1e-5):
    """Output and every gradient of the chain, against float64."""
    ours = [t if t is None else t.clone().requires_grad_() for t in [h, *weights, *biases]]
    n = len(weights)
    out = chain(ours[0], ours[1 : n + 1], ours[n + 1 :], phis)
    oracle = [t if t is None else t.double().requires_grad_() for t in [h, *weights, *biases]]
    # float32 decides who is active; the oracle takes thresholds as float32 numbers too.
    phis64 = [
        dataclasses.replace(p, threshold=torch.tensor(p.threshold).item(), clip=torch.tensor(p.clip).item())
        for p in phis
    ]
    expected = dense_chain(oracle[0], oracle[1 : n + 1], oracle[n + 1 :], phis64)
    # A unit just above its threshold carries the rounding of a pre-activation that is large beside it.
    floor = 1e-12 if n == 1 or not h.numel() else 2.0**-23 * max(1.0, h.abs().max().item())
    assert_near(out, expected, tolerance, floor)
    # Seeded, so that whatever fails fails again.
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    out.backward(grad)
    expected.backward(grad.double())
    for a, e in zip(ours, oracle, strict=True):
        if a is not None:
            assert_near(a.grad, e.grad, tolerance, floor)


@settings(max_examples=60, deadline=None, derandomize=True)
@example(batch=8, widths=[32, 41, 12, 1], name="cst", shift=0.0, threads=1, bias=False, seed=221)
@given(
    batch=st.integers(0, 40),
    widths=st.lists(st.integers(1, 90), min_size=2, max_size=4),
    name=st.sampled_from(sorted(OF_CHAINS)),
    shift=st.sampled_from([-30.0, -1.0, 0.0, 0.7, 30.0]),
    threads=st.integers(1, 4),
    bias=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_chain_matches_dense_float64(batch, widths, name, shift, threads, bias, seed):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        weights, biases = layers(widths, seed, bias)
        h = torch.randn(batch, widths[0], generator=torch.Generator().manual_seed(seed)) + shift
        # One activation in float32: the later layers' inputs differ in rounding, so units at a kink may differ.
        first = OF_CHAINS[name]
        check(h, weights[:1], biases[:1], [first])
        check(h, weights, biases, [first] * len(weights), tolerance=1e-5)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("batch", "width"), [(128, 300), (1, 300), (3, 1024), (70, 1030), (16, 2500)])
def test_sizes_that_take_other_paths(batch, width, chain_phi):
    weights, biases = layers([width, width])
    check(torch.randn(batch, width), weights, biases, [chain_phi])


def test_more_samples_than_16_bits_count():
    weights, biases = layers([3, 2])
    check(torch.randn(70_000, 3), weights, biases, [Activation.crelu(0.2, 0.9)])


def test_slope_is_zero_at_the_kinks():
    h = torch.tensor([[0.5, 0.5 + 0.75, 1.0]], requires_grad=True)
    act_linear(h, torch.eye(3), None, Activation.crelu(0.5, 0.75)).sum().backward()
    assert h.grad.tolist() == [[0.0, 0.0, 1.0]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_inf_propagate_as_dense(bad, chain_phi):
    h = torch.randn(4, 20)
    h[1, 3] = bad
    w, b = torch.rand(7, 20) + 0.1, torch.randn(7)
    ours, dense = act_linear(h, w, b, chain_phi), dense_chain(h, [w], [b], [chain_phi])
    assert_near(ours, dense)
    assert_near(ours[[0, 2, 3]], dense[[0, 2, 3]])


def test_leading_dimensions_and_strides():
    w, b, phi = torch.randn(5, 6), torch.randn(5), Activation.relu()
    h = torch.randn(6, 4, 3).permute(1, 2, 0)
    assert_near(act_linear(h, w, b, phi), dense_chain(h.double(), [w.double()], [b.double()], [phi]))
    assert act_linear(torch.randn(6), w, b, phi).shape == (5,)
    assert act_linear(torch.randn(0, 6), w, b, phi).shape == (0, 5)


def test_gradients_of_a_part_of_the_inputs():
    h, w, b = torch.randn(8, 30), torch.randn(9, 30), torch.randn(9)
    for wanted in range(1, 8):
        ours = [t.clone().requires_grad_(bool(wanted >> i & 1)) for i, t in enumerate((h, w, b))]
        theirs = [t.detach().clone().requires_grad_(t.requires_grad) for t in ours]
        act_linear(*ours, Activation.cst(0.3, 1.0)).square().sum().backward()
        dense_chain(theirs[0], [theirs[1]], [theirs[2]], [Activation.cst(0.3, 1.0)]).square().sum().backward()
        for a, e in zip(ours, theirs, strict=True):
            assert (a.grad is None) == (e.grad is None)
            if a.grad is not None:
                assert_near(a.grad, e.grad)


def test_bf16_weights_for_inference():
    h, w = torch.randn(33, 70), torch.randn(50, 70).bfloat16()
    for rows in (h, h[:1]):
        out = act_linear(rows, w, None, Activation.shifted_relu(0.5))
        assert_near(out, dense_chain(rows.double(), [w.double()], [None], [Activation.shifted_relu(0.5)]))


def test_wrong_arguments_are_sentences():
    h, w = torch.randn(2, 6), torch.randn(5, 6)
    with pytest.raises(ValueError, match=r"must be \(out, 6\)"):
        act_linear(h, torch.randn(5, 7), None, Activation.relu())
    with pytest.raises(ValueError, match="must agree"):
        act_linear(h, w.double(), None, Activation.relu())
    with pytest.raises(ValueError, match="bias of shape"):
        act_linear(h, w, torch.randn(6), Activation.relu())
    with pytest.raises(ValueError, match="positive"):
        Activation.crelu(0.1, -1.0)
    with pytest.raises(ValueError, match="at least 0"):
        Activation.cst(-0.1, 1.0)


def test_opcheck():
    h, w, b = (t.requires_grad_() for t in (torch.randn(7, 33), torch.randn(20, 33), torch.randn(20)))
    torch.library.opcheck(torch.ops.hush.chain.default, (h, [w, b], [0], [0], [0.5], [1.0]))
    torch.library.opcheck(torch.ops.hush.chain.default, (h.detach(), [w.detach()], [], [1], [0.5], [1.0]))


def test_double_dtype_falls_through():
    h, w = torch.randn(3, 6, dtype=torch.float64, requires_grad=True), torch.randn(5, 6, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: act_linear(x, w, None, Activation.cst(0.3, 1.0)), (h,))


def test_expanded_gradient_of_an_empty_batch():
    w = torch.randn(2, 6, requires_grad=True)
    act_linear(torch.randn(0, 6), w, None, Activation.relu()).sum().backward()
    assert w.grad.abs().max() == 0
