"""timm's and Hugging Face's own models after `swap_activations`: accelerated, their gradients are the same."""

import copy

import pytest
import torch
from torch import nn

import hush
from hush.sparse import crossover, lone_linear

DESIGN = hush.design("crelu", 0.85, v_prime=0.5)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 50}


def vit() -> tuple[nn.Module, torch.Tensor]:
    timm = pytest.importorskip("timm", reason="needs timm, of the extra `models`: make test-models")
    return timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2), torch.randn(2, 3, 32, 32)


def _transformers():  # type: ignore[no-untyped-def]
    return pytest.importorskip("transformers", reason="needs transformers, of the extra `models`: make test-models")


def bert() -> tuple[nn.Module, torch.Tensor]:
    t = _transformers()
    sizes = {**SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return t.BertForMaskedLM(t.BertConfig(**sizes)), torch.arange(16).reshape(2, 8)


def llama() -> tuple[nn.Module, torch.Tensor]:
    t = _transformers()
    return t.LlamaForCausalLM(t.LlamaConfig(**SIZES)), torch.arange(16).reshape(2, 8)


CASES = {"timm ViT": (vit, 768, 2), "BERT": (bert, 48, 2), "Llama": (llama, 48, 4)}


@pytest.mark.parametrize(("make", "hidden", "before"), CASES.values(), ids=CASES.keys())
def test_the_gradients_of_a_librarys_model(make, hidden, before, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """`before`: so many Linears stand in front of an activation of `hidden` units, in two layers."""
    torch.manual_seed(0)
    plain, x = make()
    hush.nn.swap_activations(plain, DESIGN, example=x)
    monkeypatch.setattr(lone_linear, "_LEAST_WORK", 1)
    monkeypatch.setattr(crossover, "ensure_measured", lambda *a, **k: None)
    monkeypatch.setattr(crossover, "limit", lambda *a, by_gradient=False: 0.6)
    calls, real = [], lone_linear.sparse_products
    monkeypatch.setattr(lone_linear, "sparse_products", lambda *a, **k: calls.append(a[1].shape) or real(*a, **k))
    fast = hush.sparse.accelerate(copy.deepcopy(plain).train())
    assert len(hush.sparse.report(fast).gated) == (2 if make is llama else 0)  # the unchanged forward of Hugging Face's
    # timm's Mlp calls its children one after another; BERT's two Linears are in modules of their own.
    fused = (("blocks.0.mlp.fc2",), ("blocks.1.mlp.fc2",)) if make is vit else ()
    assert hush.sparse.report(fast).taken == fused
    for model in (plain.train(), fast):
        out = model(x)
        (out if isinstance(out, torch.Tensor) else out.logits).square().sum().backward()
    # timm's last layer has others too: of its outputs only the class token's are read.
    assert [shape[-1] for shape in calls].count(hidden) == before
    for (name, p), q in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, rtol=0, atol=1e-4 * p.grad.abs().max().item() + 1e-7)
