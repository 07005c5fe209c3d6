"""What `hush train --arch` builds beside the chains, and the text: the same directories, resume and results."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("lightning")

import hush
from hush.nn import checkpoint
from hush.nn.recognise import activations_of
from hush.train import RunError, TrainConfig, material, train
from hush.train.batches import WindowBatches
from hush.train.material import load_material
from hush.train.network import build
from hush.train.record import Record
from tests.train.test_run import tables

pytestmark = pytest.mark.filterwarnings("ignore")

_FEW = {"epochs": 2, "watch": 10, "clip": 1.0, "sparsity": 0.9}
CONFIGS = {
    "one matrix": TrainConfig(arch="residual_mlp", depth=3, width=24, subset=200, **_FEW),
    "two matrices": TrainConfig(
        arch="residual_mlp", depth=2, width=16, hidden=32, norm="layer", branch_scale="learned", subset=200, **_FEW
    ),
    "resnet": TrainConfig(arch="resnet", depth=3, width=4, subset=128, **_FEW),
    "gpt": TrainConfig(arch="gpt", depth=2, width=16, context=16, batch=4, steps_per_epoch=20, **_FEW),
}
LAYERS = {"one matrix": 3, "two matrices": 2, "resnet": 7, "gpt": 2}


@pytest.fixture(autouse=True)
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_VALIDATION_WINDOWS", 32)
    monkeypatch.setattr(material, "_TEST_WINDOWS", 64)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_killed_run_ends_with_the_same_figures(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS[kind]
    whole = train(config, tmp_path / "whole", progress=False)
    save = Record.save

    def save_and_die(self: Record, trainer) -> None:
        save(self, trainer)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Record, "save", save_and_die)
        with pytest.raises(KilledError):
            train(config, tmp_path / "killed", progress=False)
    killed = train(config, tmp_path / "killed", progress=False)
    assert tables(killed.directory) == tables(whole.directory)

    result = whole.result
    assert result is not None
    assert len(result.layer_sparsity) == LAYERS[kind]
    assert result.sparsity == pytest.approx(sum(result.layer_sparsity) / LAYERS[kind], abs=1e-5)
    assert (whole.layers["gradient_norm"] > 0).all()
    assert (whole.layers["weight_gradient_norm"] > 0).all()
    assert set(whole.layers["layer"]) == set(range(1, LAYERS[kind] + 1))
    # What was saved is the network that was scored.
    model, design = checkpoint.load(whole.directory)
    assert design == config.design()
    test = load_material(config).test
    with torch.no_grad():
        logits = model.eval()(test.images)
    assert result.test_accuracy == pytest.approx(float((logits.argmax(-1) == test.labels).double().mean()), abs=1e-9)
    loss = torch.nn.functional.cross_entropy(logits.double().flatten(0, -2), test.labels.flatten())
    assert result.test_loss == pytest.approx(float(loss), rel=1e-6)
    assert ("nats per byte" in str(result)) == (kind == "gpt")


def test_residual_networks_learn_and_a_dense_twin_does(tmp_path: Path) -> None:
    same = {"arch": "residual_mlp", "depth": 4, "width": 60, "epochs": 4, "lr": 2e-3}
    sparse = train(TrainConfig(sparsity=0.9, **same), tmp_path, progress=False).result
    dense = train(TrainConfig(activation="relu", **same), tmp_path, progress=False).result
    assert sparse is not None
    assert dense is not None
    assert sparse.outcome == dense.outcome == "trained"
    assert sparse.test_accuracy > 0.75
    assert dense.test_accuracy > 0.85
    assert sparse.predicted_trains
    assert sparse.sparsity > 0.8 > dense.sparsity


def test_a_gpt_beats_counting_bytes(tmp_path: Path) -> None:
    how = {"batch": 16, "epochs": 1, "steps_per_epoch": 100, "lr": 2e-2, "output": "zero"}
    config = TrainConfig(arch="gpt", activation="gelu", depth=2, width=16, context=16, **how)
    run = train(config, tmp_path, progress=False)
    result = run.result
    assert result is not None
    text = hush.data.load_text()
    counts = np.bincount(text.train.numpy(), minlength=256)
    single = -sum(n / counts.sum() * math.log(n / counts.sum()) for n in counts if n)
    assert f"{single:.3f} nats per byte" in result.notes[0]
    assert text.description.fingerprint in result.notes[0]
    assert result.test_loss < single
    assert result.per_byte
    assert result.outcome in ("trained", "not yet trained")


def test_another_text_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(CONFIGS["gpt"], width=8)
    save = Record.save

    def save_and_die(self: Record, trainer) -> None:
        save(self, trainer)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Record, "save", save_and_die)
        with pytest.raises(KilledError):
            train(config, tmp_path, progress=False)
    text = hush.data.load_text()
    other = dataclasses.replace(text, description=dataclasses.replace(text.description, fingerprint="another"))
    monkeypatch.setattr("hush.train.material.load_text", lambda: other)
    with pytest.raises(RunError, match="began with another text"):
        train(config, tmp_path, progress=False)


def test_the_windows_are_a_function_of_seed_and_epoch() -> None:
    batches = WindowBatches(1000, steps=5, batch=8, seed=3)
    first = torch.stack(list(batches))
    assert first.shape == (5, 8)
    assert int(first.max()) < 1000
    assert torch.equal(first, torch.stack(list(WindowBatches(1000, 5, 8, 3))))
    shares = [torch.stack(list(WindowBatches(1000, 5, 8, 3, rank, 2))) for rank in (0, 1)]
    assert torch.equal(torch.stack(shares, -1).flatten(1), first)
    batches.set_epoch(1)
    assert not torch.equal(torch.stack(list(batches)), first)
    assert not torch.equal(torch.stack(list(WindowBatches(1000, 5, 8, 4))), first)


@pytest.mark.parametrize("arch", ["mlp", "cnn", "residual_mlp", "resnet", "gpt"])
@pytest.mark.parametrize("activation", ["crelu", "shifted_relu", "relu", "gelu", "silu", "tanh"])
def test_every_architecture_starts_right_with_every_activation(arch: str, activation: str) -> None:
    config = TrainConfig(arch=arch, activation=activation, depth=3, width=64, context=16 if arch == "gpt" else None)
    shape = (16,) if arch == "gpt" else (1, 8, 8)
    model = build(config, shape, 256 if arch == "gpt" else 10)
    again = build(config, shape, 256 if arch == "gpt" else 10)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (64, 16), generator=generator) if arch == "gpt" else None
    if x is None:
        x = torch.randn(64, *shape, generator=generator) * math.sqrt(config.design().input_variance)
    read: list[float] = []
    for _, module in activations_of(model):
        module.register_forward_hook(lambda _m, inputs, _o: read.append(float(inputs[0].detach().var())))
    model.train()(x)  # in training mode, where a batch norm normalises
    assert read
    # Zero padding takes from what a convolution without a norm reads; an unclipped chain may start below q*.
    assert all(0.5 < q < 1.6 for q in read), read


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"hidden": 3}, "hidden = 3 belongs to residual_mlp and gpt; mlp has none"),
        ({"arch": "resnet", "context": 3}, "context = 3 belongs to gpt; resnet has none"),
        ({"arch": "resnet", "depth": 4}, "as many blocks in each of its three stages, got 4"),
        ({"arch": "resnet", "norm": "rms"}, "norm of resnet must be one of batch, layer, none, got 'rms'"),
        ({"arch": "gpt", "norm": "none"}, "norm of gpt must be one of rms, layer"),
        ({"arch": "gpt", "data": "digits"}, "gpt learns text, and text is learnt by gpt; got gpt and digits"),
        ({"data": "text"}, "got mlp and text"),
        ({"arch": "gpt", "validation": 0.2}, "validation = 0.2 is for images; the split of text is fixed"),
        ({"arch": "gpt", "heads": 5}, "a width of 192 does not fall into 5 heads"),
        ({"arch": "residual_mlp", "branch_scale": "small"}, "branch_scale must be a number or one of"),
        ({"arch": "residual_mlp", "branch_scale": "-1"}, "branch_scale must be positive and finite, got -1"),
        ({"arch": "residual_mlp", "weights": "delta_orthogonal"}, "for a cnn or a resnet; of residual_mlp take"),
        ({"activation": "relu", "sparsity": 0.9}, "relu has no sparsity to choose, got 0.9"),
        ({"arch": "transformer"}, "arch must be one of mlp, cnn, residual_mlp, resnet, gpt"),
    ],
)
def test_bad_values(values: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**values)


def test_what_is_not_given_fits_the_architecture() -> None:
    config = TrainConfig(arch="gpt")
    assert (config.data, config.depth, config.width, config.context) == ("text", 4, 192, 128)
    assert (config.norm, config.branch_scale, config.optimizer, config.engine) == (
        "rms",
        "1/sqrt(depth)",
        "adamw",
        "dense",
    )
    assert TrainConfig.from_json(config.to_json()) == config
    plain = json.loads(TrainConfig().to_json())
    assert plain["norm"] is plain["branch_scale"] is plain["context"] is None
    assert (plain["data"], plain["depth"], plain["width"], plain["engine"]) == ("digits", 30, 300, "sparse")
    assert "-residual_mlp-" in TrainConfig(arch="residual_mlp", depth=2, width=8).name
    assert TrainConfig(arch="residual_mlp", depth=2, width=8, activation="relu", output="zero").sparsity is None


def test_blocks_that_the_engine_runs_as_one_are_trained_on_it() -> None:
    def engine(**given: Any) -> str:
        return TrainConfig(arch="residual_mlp", depth=2, width=8, **given).engine

    assert engine(sparsity=0.95) == engine(sparsity=0.8) == engine(sparsity=0.95, hidden=16) == "sparse"
    assert engine(sparsity=0.5) == engine(activation="relu") == "dense"
    assert engine(sparsity=0.95, activation="relative_relu") == engine(sparsity=0.95, engine="dense") == "dense"


def test_a_head_of_zeros() -> None:
    config = TrainConfig(arch="residual_mlp", depth=2, width=8, output="zero")
    assert not build(config, (1, 8, 8), 10)(torch.randn(3, 64)).any()
