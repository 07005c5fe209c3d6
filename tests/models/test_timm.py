"""timm's models: built with hush's activations, and swapped."""

import pytest
import torch
from torch import nn

import hush

timm = pytest.importorskip("timm", reason="needs timm, of the extra `models`: make test-models")
save_file, load_file = (getattr(pytest.importorskip("safetensors.torch"), name) for name in ("save_file", "load_file"))

DESIGN = hush.design("crelu", 0.85, v_prime=0.5)
VIT = {"img_size": 32, "patch_size": 8, "depth": 2}
SMALL = {
    "resnet18": {},
    "resnetv2_50": {},
    "vit_tiny_patch16_224": VIT,
    "mixer_s16_224": {"img_size": 32},
    "convnext_atto": {"depths": (1, 1, 2, 1)},
}


def activations(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, hush.nn.CReLU)]


def image() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SMALL)
def test_built_with_the_designs_activation(name: str) -> None:
    torch.manual_seed(0)
    built = timm.create_model(name, act_layer=hush.nn.act_layer(DESIGN), **SMALL[name]).eval()
    torch.manual_seed(0)
    swapped = timm.create_model(name, **SMALL[name]).eval()
    report = hush.nn.swap_activations(swapped, DESIGN, example=image())
    assert report.functions == ()
    assert not report.left
    assert all(entry.calls == 1 for entry in report.swapped)
    assert len(activations(built)) == len(report.swapped) >= 2
    assert len(set(map(id, activations(built)))) == len(report.swapped)
    swapped.load_state_dict(built.state_dict(), strict=True)  # the same names: each stands where timm puts its own
    with torch.no_grad():
        assert torch.equal(built(image()), swapped(image()))


def test_squeeze_excite_gates_stay(tmp_path) -> None:
    model = timm.create_model("mobilenetv3_small_100").eval()
    report = hush.nn.swap_activations(model, DESIGN, example=image())
    assert {entry.was for entry in report.swapped} == {"ReLU", "Hardswish"}
    assert {(entry.was, ".se." in entry.name) for entry in report.left} == {("ReLU", True), ("Hardsigmoid", True)}
    for i, module in enumerate(activations(model)):
        module.threshold = 0.1 * i
    save_file(model.state_dict(), tmp_path / "weights")
    other = timm.create_model("mobilenetv3_small_100").eval()
    hush.nn.swap_activations(other, DESIGN)
    other.load_state_dict(load_file(tmp_path / "weights"), strict=True)
    assert [module.threshold for module in activations(other)] == [0.1 * i for i in range(len(activations(model)))]
    with torch.no_grad():
        assert torch.equal(model(image()), other(image()))


def test_weights_that_were_trained_with_relu_load() -> None:
    plain = timm.create_model("resnet18").state_dict()
    model = timm.create_model("resnet18", act_layer=hush.nn.act_layer(DESIGN))
    model.load_state_dict(plain, strict=True)
    assert all(module.threshold == DESIGN.threshold for module in activations(model))
