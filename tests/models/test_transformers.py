"""Hugging Face's models: activations by name in a configuration, swapped, and through save_pretrained."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import hush
from hush.integrations.huggingface import register_activations
from hush.nn.activations import Thresholded
from hush.nn.sparsifying.known_functions import FORMS

transformers = pytest.importorskip("transformers", reason="needs transformers, of the extra `models`: make test-models")
# What transformers prints as it loads is not under test.
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

DESIGN = hush.design("crelu", 0.85, v_prime=0.5)
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 50,
}
IDS = torch.arange(16).reshape(2, 8)


def llama(**entries: object) -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **entries)).eval()


def bert(**entries: object) -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, **entries)).eval()


def gpt2(hidden_act: str = "gelu_new") -> nn.Module:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(activation_function=hidden_act, **sizes)).eval()


def activations(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, hush.nn.CReLU)]


def set_apart(model: nn.Module) -> list[tuple[float, float]]:
    """Give each activation a threshold and a clip of its own, which no half-precision number is."""
    for i, module in enumerate(activations(model), start=1):
        module.threshold, module.clip = i / 7, i / 3
    return values(model)


def values(model: nn.Module) -> list[tuple[float, float]]:
    return [(module.threshold, module.clip) for module in activations(model)]


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


@pytest.fixture(autouse=True)
def _forget() -> object:
    tables = (transformers.activations.ACT2FN, transformers.activations.ACT2CLS)
    before = [copy.copy(dict(dict.items(table))) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.parametrize(("make", "count"), [(llama, 2), (bert, 3), (gpt2, 2)])
def test_by_name_and_back_from_a_file(make, count: int, tmp_path: Path) -> None:
    assert register_activations(DESIGN) == ("crelu",)
    model = make(hidden_act="crelu")
    assert values(model) == [(DESIGN.threshold, DESIGN.clip)] * count
    own = set_apart(model)
    model.save_pretrained(tmp_path)
    register_activations()  # as in a process that knows nothing of the design
    again = type(model).from_pretrained(tmp_path)
    assert values(again) == own
    assert torch.equal(logits(again), logits(model))
    half = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.dtype is torch.bfloat16
    assert values(half) == own
    # The engine reads them as before: nothing that loading leaves behind is in its way.
    assert all(hush.sparse.activation.activation_of(module) is not None for module in activations(again))


def test_swapped_saved_and_loaded(tmp_path: Path) -> None:
    model = llama()
    report = hush.nn.swap_activations(model, DESIGN, example={"input_ids": IDS})
    assert [entry.was for entry in report.swapped] == ["SiLUActivation"] * 2
    assert report.functions == ()
    assert model.config.hidden_act == "crelu"
    assert "config.hidden_act is now 'crelu'" in str(report)
    own = set_apart(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(KeyError, match="crelu"):  # not known in this process: never the old activation in silence
        type(model).from_pretrained(tmp_path)
    register_activations()
    again = type(model).from_pretrained(tmp_path)
    assert values(again) == own
    assert torch.equal(logits(again), logits(model))


def test_a_config_that_a_head_uses_too_is_left(tmp_path: Path) -> None:
    model = bert()
    report = hush.nn.swap_activations(model, DESIGN)
    assert [entry.name for entry in report.left] == ["cls.predictions.transform.transform_act_fn"]
    assert model.config.hidden_act == "gelu"
    assert "config says hidden_act='gelu', which 'cls.predictions.transform.transform_act_fn' uses" in str(report)
    own = set_apart(model)
    model.save_pretrained(tmp_path)
    # What the report advises.
    again = type(model)(type(model.config).from_pretrained(tmp_path)).eval()
    hush.nn.swap_activations(again, DESIGN)
    weights = pytest.importorskip("safetensors.torch").load_file(tmp_path / "model.safetensors")
    missing = again.load_state_dict(weights, strict=False)
    assert missing.unexpected_keys == []
    assert set(missing.missing_keys) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}  # tied
    again.tie_weights()
    assert values(again) == own
    assert torch.equal(logits(again), logits(model))


def test_the_pooler_stays() -> None:
    model = transformers.BertModel(transformers.BertConfig(**SIZES)).eval()
    report = hush.nn.swap_activations(model, DESIGN, example=IDS)
    assert [(entry.name, entry.was) for entry in report.left] == [("pooler.activation", "Tanh")]
    assert model.config.hidden_act == "crelu"


def test_weights_of_another_activation_take_the_designs_values(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path)
    register_activations(DESIGN)
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path, hidden_act="crelu")
    assert values(model) == [(DESIGN.threshold, DESIGN.clip)] * 2
    assert hush.sparse.activation.activation_of(activations(model)[0]) is not None
    # Without a design nobody knows their values, and the output says so.
    register_activations()
    assert logits(transformers.LlamaForCausalLM.from_pretrained(tmp_path, hidden_act="crelu")).isnan().all()


def test_names() -> None:
    assert register_activations() == (*hush.theory.ACTIVATIONS, *FORMS)
    other = hush.design("crelu", 0.9, v_prime=0.5)
    assert register_activations(other, name="crelu-0.9") == ("crelu-0.9",)
    register_activations(DESIGN)
    assert values(llama(hidden_act="crelu-0.9"))[0][0] == other.threshold
    assert values(llama(hidden_act="crelu"))[0][0] == DESIGN.threshold
    with pytest.raises(ValueError, match="transformers has an activation called 'gelu' already"):
        register_activations(DESIGN, name="gelu")
    with pytest.raises(ValueError, match="needs a design"):
        register_activations(name="mine")


@pytest.mark.parametrize(
    ("make", "form", "field"),
    [(llama, "thresholded_silu", "hidden_act"), (gpt2, "thresholded_gelu_tanh", "activation_function")],
)
def test_sparsified_saved_and_loaded(make, form: str, field: str, tmp_path: Path) -> None:
    model = make()
    report = hush.sparsify(model, [{"input_ids": IDS, "labels": IDS}, {"input_ids": IDS + 7}], 0.9)
    assert report.mean_zeros == pytest.approx(0.9, abs=0.01)
    assert report.output.divergence is not None  # of the logits, and not of the loss that comes before them
    assert getattr(model.config, field) == form
    own = [m.threshold for m in model.modules() if isinstance(m, Thresholded)]
    model.save_pretrained(tmp_path)
    register_activations()
    again = type(model).from_pretrained(tmp_path)
    assert [m.threshold for m in again.modules() if isinstance(m, Thresholded)] == own
    assert torch.equal(logits(again), logits(model))
