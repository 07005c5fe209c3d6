"""The thresholds and clips of a model's activations come back from every kind of file, and old files still load."""

import io
import math
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

import hush

DESIGN = hush.design("crelu", 0.85, v_prime=0.5)
VALUES = [(1.5, 0.7), (0.25, 2.0)]


def bare() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2))


def swapped() -> nn.Sequential:
    model = bare()
    hush.nn.swap_activations(model, DESIGN)
    return model


def with_own_values() -> nn.Sequential:
    model = swapped()
    for module, (threshold, clip) in zip((model[1], model[3]), VALUES, strict=True):
        module.threshold, module.clip = threshold, clip
    return model


def values(model: nn.Sequential) -> list[tuple[float, float]]:
    return [(model[1].threshold, model[1].clip), (model[3].threshold, model[3].clip)]


def through_torch(model: nn.Module, other: nn.Module, path: Path) -> None:
    torch.save(model.state_dict(), path)
    other.load_state_dict(torch.load(path, weights_only=True), strict=True)


def through_safetensors(model: nn.Module, other: nn.Module, path: Path) -> None:
    save_file(model.state_dict(), path)
    other.load_state_dict(load_file(path), strict=True)


def through_model_files(model: nn.Module, other: nn.Module, path: Path) -> None:
    save_model(model, str(path))
    assert load_model(other, str(path), strict=True) == (set(), [])


@pytest.mark.parametrize("through", [through_torch, through_safetensors, through_model_files])
def test_every_layer_gets_its_own_back(through: object, tmp_path: Path) -> None:
    model, other = with_own_values(), swapped()
    through(model, other, tmp_path / "weights")
    assert values(other) == VALUES
    assert type(other[1].threshold) is float
    x = torch.randn(4, 6)
    assert torch.equal(other(x), model(x))


def test_in_half_precision_and_through_pickle() -> None:
    model = with_own_values()
    model[1].threshold = 1 / 3  # which no half-precision number is
    other = swapped().to(torch.bfloat16)
    other.load_state_dict(model.to(torch.bfloat16).state_dict())
    assert other[1].threshold == 1 / 3
    assert values(pickle.loads(pickle.dumps(model))) == values(model)


def test_checkpoints_without_them_load_and_change_nothing() -> None:
    model = with_own_values()
    model.load_state_dict(bare().state_dict(), strict=True)
    assert values(model) == VALUES


def test_a_model_with_other_activations_refuses_them() -> None:
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "1._extra_state"'):
        bare().load_state_dict(with_own_values().state_dict(), strict=True)
    shifted = nn.Sequential(nn.Linear(6, 6), hush.nn.ShiftedReLU(1.0))
    with pytest.raises(ValueError, match=r"the state of ShiftedReLU is a tensor of threshold, got \(2,\)"):
        shifted.load_state_dict(with_own_values().state_dict(), strict=False)


def test_plain_modules_stay_plain_and_take_what_they_find() -> None:
    assert not hush.nn.CReLU(1.0, 2.0).state_dict()
    assert not hush.nn.from_design(DESIGN).state_dict()
    module = hush.nn.CReLU(1.0, 2.0)
    module.load_state_dict(hush.nn.CReLU(0.5, math.inf, in_state_dict=True).state_dict(), strict=True)
    assert (module.threshold, module.clip) == (0.5, math.inf)


def test_a_pickle_from_before_loads() -> None:
    module = hush.nn.CReLU(1.0, 2.0)
    del module.__dict__["in_state_dict"]
    again = pickle.loads(pickle.dumps(module))
    assert (again.threshold, again.in_state_dict) == (1.0, False)


def test_a_threshold_that_became_a_parameter_is_saved_as_one() -> None:
    module, other = (hush.nn.ShiftedReLU(1.0, in_state_dict=True) for _ in range(2))
    for one, value in ((module, 0.5), (other, 0.7)):
        del one.threshold
        one.threshold = nn.Parameter(torch.tensor(value))
    other.load_state_dict(module.state_dict())
    assert isinstance(other.threshold, nn.Parameter)
    assert other.threshold.item() == 0.5


def test_an_accelerated_model_follows_what_is_loaded() -> None:
    model, other = swapped(), with_own_values()
    x = torch.randn(64, 6)
    hush.sparse.accelerate(model, adaptive=False)
    model(x)
    saved = io.BytesIO()
    torch.save(other.state_dict(), saved)
    saved.seek(0)
    model.load_state_dict(torch.load(saved, weights_only=True))
    torch.testing.assert_close(model(x), other(x))
