"""What the record of a run holds, on models written for it."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

import hush
from hush.nn.graph import Graph, Node, trace_graph
from tests.helpers import ResNet, Transformer, assert_left_as_it_was, snapshot

PHI = hush.nn.CReLU(1.0, 1.0)


def only(graph: Graph, kind: str) -> Node:
    (node,) = graph.of_kind(kind)
    return node


def test_a_chain() -> None:
    model, x = nn.Sequential(nn.Linear(6, 5), PHI, nn.Linear(5, 3)), torch.randn(7, 6)
    graph = trace_graph(model, x)
    assert [node.kind for node in graph] == ["input", "layer", "activation", "layer"]
    assert [node.inputs for node in graph] == [(), (0,), (1,), (2,)]
    assert graph.outputs == (3,)
    assert graph[1].parameters == ("0.weight", "0.bias")
    assert graph[1].options["fan_in"] == 6
    assert graph[2].phi == hush.nn.phi_of(PHI)
    h = model[0](x).detach().double()
    assert math.isclose(graph[1].second_moment, float(h.square().mean()))
    assert math.isclose(graph[1].mean, float(h.mean()))


class ByFunction(nn.Module):
    """Everything by function, and a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4))  # stored as (in, out)
        self.other = nn.Parameter(torch.randn(4, 4))
        self.gamma = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, *, x: Tensor) -> Tensor:
        h = hush.nn.functional.crelu(torch.addmm(torch.zeros(4), x, self.weight), 0.5, 1.0)
        h = h + self.gamma * (F.rms_norm(h, (4,), eps=1e-3) @ self.other.T)
        return h * 2.0 + 1.0


def test_functions_and_keywords() -> None:
    graph = trace_graph(ByFunction(), {"x": torch.randn(5, 8)})
    assert [node.kind for node in graph] == [
        "input",
        "layer",
        "activation",
        "norm",
        "layer",
        "scale",
        "add",
        "scale",
        "add",
    ]
    first, second = graph.of_kind("layer")
    assert first.options["weight_is_in_out"]
    assert first.options["fan_in"] == 8
    assert second.parameters == ("other",)
    assert not second.options["weight_is_in_out"]
    assert graph[2].phi == hush.theory.crelu(0.5, 1.0)
    assert graph[3].options["eps"] == 1e-3
    assert graph[5].options == {"factor": 0.5, "parameter": "gamma"}
    assert graph[6].inputs == (2, 5)
    assert graph[7].options["factor"] == 2.0
    assert graph[8].options["constant"] == 1.0


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.weight = nn.Linear(8, 24), nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        n = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        q, k, v = self.qkv(n).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 2.0 + torch.zeros(3, 3), -1)
        return x + (weights @ v).transpose(1, 2).flatten(2)


def test_norm_and_attention_by_hand() -> None:
    graph = trace_graph(Llama(), torch.randn(2, 3, 8))
    norm, attention = only(graph, "norm"), only(graph, "attention")
    assert norm.inputs == (0,)
    assert norm.options["norm"] == "rms"
    assert math.isclose(norm.second_moment, 1.0, rel_tol=1e-4)
    # One matrix gives all three; which part of it each operand is was followed through every rearrangement.
    assert [graph[index].rows for index in attention.inputs] == [(0, 8), (8, 16), (16, 24)]
    layer = only(graph, "layer").index
    assert {graph[index].origin for index in attention.inputs} == {layer}
    assert graph[attention.options["logits"]].options["part_of"] == attention.index


def test_layer_norm_by_hand_and_a_gate_is_none() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            n = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
            return n * torch.sigmoid(n)

    graph = trace_graph(Both(), torch.randn(4, 8))
    assert only(graph, "norm").options["norm"] == "layer"
    assert only(graph, "product").function == "mul"


@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_transformer_is_opened(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation=PHI, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    before, x = snapshot(model), torch.randn(3, 5, 16)
    expected = model.eval()(x).detach()
    graph = trace_graph(model, x)
    assert math.isclose(graph[graph.outputs[0]].second_moment, float(expected.double().square().mean()), rel_tol=1e-5)
    attention = graph.of_kind("attention")
    assert len(attention) == 2
    assert [graph[index].rows for index in attention[1].inputs] == [(0, 16), (16, 32), (32, 48)]
    assert "layers.1.self_attn.in_proj_weight" in graph[graph[attention[1].inputs[0]].origin].parameters
    assert len(graph.of_kind("norm")) == 4
    assert len([node for node in graph.of_kind("add") if len(node.inputs) == 2]) == 4
    assert_left_as_it_was(model, before)


def test_batch_norm_is_seen_as_in_training_and_left_as_it_was() -> None:
    model = ResNet(PHI).eval()
    model.blocks[0].norm.running_mean.fill_(3.0)
    before = snapshot(model)
    graph = trace_graph(model, 5.0 * torch.randn(4, 3, 8, 8) + 1.0)
    for node in graph.of_kind("norm"):
        assert math.isclose(node.second_moment, 1.0, rel_tol=1e-3)
    assert_left_as_it_was(model, before)
    assert not any(module.training for module in model.modules())


def test_tokens_tables_and_tied_weights() -> None:
    graph = trace_graph(Transformer(PHI), torch.randint(0, 50, (2, 7)))
    assert math.isnan(graph[0].second_moment)
    assert only(graph, "embedding").parameters == ("embedding.weight",)
    assert graph[graph.outputs[0]].parameters == ("embedding.weight",)


def test_in_place_and_constants() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            h += F.relu_(h.clone())
            h *= torch.arange(4.0)
            both = torch.zeros(2, 8)
            both[:, :4] = h
            return both

    graph = trace_graph(InPlace(), torch.randn(2, 4))
    kinds = [(node.kind, node.inputs) for node in graph]
    assert kinds == [
        ("input", ()),
        ("layer", (0,)),
        ("rearrange", (1,)),
        ("activation", (2,)),
        ("add", (1, 3)),
        ("scale", (4,)),
        ("rearrange", (5,)),
    ]
    assert math.isclose(graph[5].options["factor"], math.sqrt(14.0 / 4.0))
