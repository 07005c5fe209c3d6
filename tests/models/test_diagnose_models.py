"""`hush.diagnose` on models of timm and transformers: everything is followed, and predicted as it is measured."""

import math

import pytest
import torch
from torch import nn

import hush

IMAGES = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(0))
TOKENS = {"input_ids": torch.randint(0, 100, (8, 12), generator=torch.Generator().manual_seed(0))}


def timm_model(name: str, **options: object) -> nn.Module:
    timm = pytest.importorskip("timm", reason="needs timm, of the extra `models`: make test-models")
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=10, **options)


def transformers_model(kind: str) -> nn.Module:
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers, of the extra `models`: make test-models"
    )
    small = {"vocab_size": 100, "bos_token_id": 0, "eos_token_id": 1}
    usual = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, **small}
    torch.manual_seed(0)
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, **small))
    if kind == "llama":
        config = transformers.LlamaConfig(num_key_value_heads=2, **usual)
        return transformers.LlamaForCausalLM(config)
    return transformers.BertModel(transformers.BertConfig(**usual))


def check(diagnosis: hush.diagnose.Diagnosis, gain: float) -> None:
    assert not diagnosis.no_prediction
    assert not diagnosis.restarts
    assert diagnosis.stream
    inside = [layer.q_band[0] <= layer.q <= layer.q_band[1] for layer in diagnosis.layers]
    assert sum(inside) >= 0.9 * len(inside)
    for layer in diagnosis.layers:
        assert abs(layer.sparsity - layer.sparsity_predicted) < 0.05
        if layer.gain_log10_predicted is not None and math.isfinite(layer.gain_log10):
            assert abs(layer.gain_log10 - layer.gain_log10_predicted) < gain


@pytest.mark.parametrize(
    ("name", "options", "gain"),
    [
        ("resnet18", {}, 0.6),
        ("vit_tiny_patch16_224", {"img_size": 64, "patch_size": 16, "depth": 4, "global_pool": "avg"}, 0.6),
        ("mixer_s32_224", {"img_size": 64}, 0.6),
        ("convnext_atto", {"depths": (1, 1, 2, 1)}, 0.6),
    ],
)
def test_timm(name: str, options: dict, gain: float) -> None:
    diagnosis = hush.diagnose(timm_model(name, **options), IMAGES)
    check(diagnosis, gain)
    # timm gives Mixer a head of zeros, from which no gradient comes.
    assert diagnosis.trains is (None if name.startswith("mixer") else True)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_transformers(kind: str) -> None:
    diagnosis = hush.diagnose(transformers_model(kind), TOKENS)
    check(diagnosis, 0.6)
    assert diagnosis.trains is True
    assert all(layer.positions == 12 for layer in diagnosis.layers if "pooler" not in layer.name)
