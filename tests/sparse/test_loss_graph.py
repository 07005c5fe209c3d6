"""What a fused step reads off the graph of a loss, and that leaves outside the model are none the worse for it."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hush.nn as hn
from hush.sparse import accelerate, step
from hush.sparse.loss_graph import LossGraph

from .test_step import Twins, square


def body(layers=3, width=12):
    pairs = [m for _ in range(layers) for m in (hn.ShiftedReLU(0.1), nn.Linear(width, width))]
    return nn.Sequential(*pairs)


def head_and_body():
    return nn.Sequential(nn.Linear(12, 12), *body())


def test_it_finds_stretches_leaves_and_readers():
    model = head_and_body()
    accelerate(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    graph = LossGraph(square(model, torch.randn(4, 12)) + model[-1].weight.sum())
    # The first Linear by itself, then the three pairs.
    assert sorted(len(node.parameters) for node in graph.stretches) == [2, 6]
    assert {id(p) for p in model.parameters()} == set(graph.leaves)
    assert graph.edges[id(model[-1].weight)] == 2
    assert graph.edges[id(model[2].weight)] == 1
    assert all(graph.readers[memory] == 1 for node in graph.stretches for memory in node.call.memories)
    assert not graph.has_foreign_functions


def test_a_frozen_parameter_is_no_leaf():
    model = head_and_body()
    model[2].weight.requires_grad_(False)
    accelerate(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    graph = LossGraph(square(model, torch.randn(4, 12)))
    assert id(model[2].weight) not in graph.leaves
    assert id(model[2].bias) in graph.leaves


def test_a_stretch_that_reads_the_data_itself_is_stepped():
    twins = Twins(body())
    for _ in range(3):
        twins.both(square)
    twins.assert_same()


def test_leaves_outside_the_model_get_their_gradients():
    twins = Twins(head_and_body())
    ours, theirs = (torch.full((12,), 2.0, requires_grad=True) for _ in range(2))
    x, y = (twins.x.clone().requires_grad_() for _ in range(2))
    (twins.plain(y) * theirs).square().mean().backward()
    twins.theirs.step()
    twins.theirs.zero_grad()
    step(twins.fast, (twins.fast(x) * ours).square().mean())
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(x.grad, y.grad)
    twins.assert_same()


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_in_the_graph(reentrant):
    """A reentrant one refuses a backward that names its inputs."""
    twins = Twins(head_and_body())

    def loss(model, x):
        x = x.clone().requires_grad_()
        return square(model, checkpoint(torch.tanh, x, use_reentrant=reentrant))

    graph = LossGraph(loss(twins.fast, twins.x))
    assert graph.has_foreign_functions == reentrant
    for _ in range(2):
        twins.both(loss)
    twins.assert_same()


def test_a_weight_that_is_computed_leads_further():
    """A tensor in the place of a parameter is no leaf: what it was computed from is."""
    model = head_and_body()
    accelerate(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    made = nn.Parameter(model[4].weight.detach().clone())
    del model[4]._parameters["weight"]
    model[4].weight = made * 1.0
    graph = LossGraph(square(model, torch.randn(4, 12)))
    assert id(made) in graph.leaves
