"""init_ on models of timm and transformers, where those are installed."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import hush
from hush.nn.graph import trace_graph
from hush.nn.graph.roles import read_roles
from hush.nn.recognise import activations_of

DESIGN = hush.design("crelu", 0.8, v_prime=0.7, width=256, depth=12)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What other libraries warn of is not for this suite to judge."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def with_design(model: nn.Module) -> nn.Module:
    for name, module in list(activations_of(model)):
        if not isinstance(module, nn.Tanh):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, DESIGN.module())
    return model


def check(model: nn.Module, x: Any) -> None:
    """Every pre-activation at q*, every layer's share of zeros near the design's."""
    hush.init_(model, DESIGN, x, generator=torch.Generator().manual_seed(0), allow=(nn.Tanh,))
    graph = trace_graph(model, x)
    active = [node for node in graph.of_kind("activation") if node.phi == DESIGN.phi()]
    assert active
    for node in active:
        assert abs(graph[node.inputs[0]].second_moment - 1.0) < 4.0 * math.sqrt(2.0 / node.features)


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM"])
def test_hugging_face(kind: str) -> None:
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers, of the extra `models`: make test-models"
    )
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 99}
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = getattr(transformers, kind).config_class(**tokens, **sizes)
    model = with_design(getattr(transformers, kind)(config))
    x = {"input_ids": torch.randint(3, 99, (4, 12), generator=torch.Generator().manual_seed(1))}
    roles = [role.role for role in read_roles(trace_graph(model, x), DESIGN.phi())]
    assert roles.count("writes to the stream") == 4
    assert all(roles.count(name) == 2 for name in ("query", "key", "value"))
    assert roles.count("up") == (2 if kind.startswith("Llama") else 0)
    check(model, x)


def test_timm() -> None:
    timm = pytest.importorskip("timm", reason="needs timm, of the extra `models`: make test-models")
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=4)
    check(with_design(vit), x)
    assert float(vit.cls_token.detach().square().mean()) > 0.5
    convnext = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), num_classes=4)
    check(with_design(convnext), x)
    assert math.isclose(float(convnext.stages[0].blocks[0].gamma.detach().mean()), 0.5)
    check(with_design(timm.create_model("resnet18", num_classes=4)), x)
