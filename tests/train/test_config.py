import dataclasses
import json

import pytest

from hush.train import TrainConfig


def test_json_round_trip() -> None:
    config = TrainConfig(data="mnist", activation="cst", sparsity=0.8, v_prime=0.7, layer_clip=0.1, seed=3)
    assert TrainConfig.from_json(config.to_json()) == config


def test_every_field_but_where_it_runs_and_the_seed_is_in_the_name() -> None:
    base = TrainConfig(sparsity=0.8, v_prime=0.7, schedule="constant", epochs=10, warmup=400)
    other = {
        "data": "mnist", "activation": "cst", "sparsity": 0.7, "v_prime": 0.6, "q_star": 2.0, "depth": 31,
        "width": 301, "arch": "cnn", "weights": "orthogonal", "output": "zero", "optimizer": "adamw", "lr": 0.1,
        "momentum": 0.5, "weight_decay": 0.1, "layer_clip": 0.1, "schedule": "cosine", "warmup": 5, "batch": 16,
        "epochs": 11, "give_up": 2, "enough": 0.9, "subset": 100, "scored": 50, "shrink": 2, "per_image": True,
        "validation": 0.2, "hold": True, "watch": 100, "engine": "dense", "precision": "bf16-mixed", "devices": 2,
        "center": True, "start": "linear", "head_rate": 3.0,
    }  # fmt: skip
    names = {dataclasses.replace(base, **{field: value}).name for field, value in other.items()}
    assert len(names | {base.name}) == len(other) + 1
    names.add(dataclasses.replace(base, schedule="cosine", restarts=1).name)
    assert len(names | {base.name}) == len(other) + 2
    for field in ("threshold", "clip"):
        cleared = {"sparsity": None} if field == "threshold" else {"v_prime": None}
        names.add(dataclasses.replace(base, **cleared, **{field: 0.9}).name)
    assert len(names | {base.name}) == len(other) + 4
    assert dataclasses.replace(base, accelerator="cpu", strategy="ddp_spawn").name == base.name
    residual = TrainConfig(arch="residual_mlp", depth=2, width=16)
    of_residual = {"hidden": 8, "norm": "layer", "branch_scale": "0.5"}
    text = TrainConfig(arch="gpt", depth=2, width=16)
    of_text = {"heads": 2, "gated": True, "context": 64, "steps_per_epoch": 50}
    images = TrainConfig(arch="cnn", depth=2, width=16)
    of_channels = {"patch": 2, "pool": "none"}
    for start, fields in ((residual, of_residual), (text, of_text), (images, of_channels)):
        found = {dataclasses.replace(start, **{field: value}).name for field, value in fields.items()}
        assert len(found | {start.name}) == len(fields) + 1
    tested = {*other, *of_residual, *of_text, *of_channels}
    untested = {f.name for f in dataclasses.fields(TrainConfig)} - tested
    assert untested == {"restarts", "threshold", "clip", "accelerator", "strategy", "seed"}


def test_patches_are_the_positions_of_a_cnn() -> None:
    """As many places share a weight as there are patches, so finite width tells as much as of images of that size."""
    cut = TrainConfig(data="cifar10", arch="cnn", depth=4, width=24, patch=4, v_prime=0.7)
    small = TrainConfig(data="cifar10", arch="cnn", depth=4, width=24, shrink=4, v_prime=0.7)
    whole = TrainConfig(data="cifar10", arch="cnn", depth=4, width=24, v_prime=0.7)
    assert cut.design().positions == small.design().positions == 64
    assert whole.design().positions == 1024
    with pytest.raises(ValueError, match="patch = 2 makes channels for a cnn or a resnet; mlp has none"):
        TrainConfig(patch=2)
    with pytest.raises(ValueError, match="patch must be a whole number of at least 1, got 0"):
        TrainConfig(arch="cnn", patch=0)


def test_what_the_head_of_a_cnn_reads_is_no_matter_of_its_positions() -> None:
    """The verdict is that of the layers, each weight of which is shared by all positions whatever the head reads."""
    pooled = TrainConfig(data="cifar10", arch="cnn", depth=4, width=24, patch=4, v_prime=0.7)
    flattened = dataclasses.replace(pooled, pool="none")
    assert flattened.design() == pooled.design()
    assert flattened.design().positions == 64
    with pytest.raises(ValueError, match="pool = none belongs to cnn; resnet has none"):
        TrainConfig(arch="resnet", pool="none")
    with pytest.raises(ValueError, match="pool must be one of average, none, got 'max'"):
        TrainConfig(arch="cnn", pool="max")


def test_threshold_stands_for_its_sparsity() -> None:
    by_sparsity = TrainConfig(sparsity=0.85, v_prime=0.7).design()
    by_threshold = TrainConfig(threshold=by_sparsity.threshold, v_prime=0.7).design()
    assert by_threshold.sparsity == pytest.approx(0.85, rel=1e-12)
    assert by_threshold.clip == pytest.approx(by_sparsity.clip, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"data": "imagenet"}, "data must be one of digits, mnist, fashion_mnist, cifar10, text, got 'imagenet'"),
        ({"depth": 0}, "depth must be a whole number of at least 1, got 0"),
        ({"head_rate": 0.0}, "head_rate must be positive and finite, got 0.0"),
        ({"epochs": 1.5}, "epochs must be a whole number of at least 1, got 1.5"),
        ({"restarts": -1, "schedule": "cosine"}, "restarts must be a whole number of at least 0, got -1"),
        ({"restarts": 2, "schedule": "constant"}, "restarts = 2 belong to the schedule cosine, got constant"),
        ({"depth": 1_000_000}, "depth must be at most 10,000, got 1,000,000"),
        ({"seed": 2**70}, "seed must be at most"),
        ({"warmup": -1}, "warmup must be a whole number of at least 0, got -1"),
        ({"lr": float("nan")}, "lr must be positive and finite, got nan"),
        ({"lr": "fast"}, "lr must be positive and finite, got 'fast'"),
        ({"validation": None}, "validation must lie between 0 and 1, got None"),
        ({"lr": -1.0}, "lr must be positive and finite, got -1.0"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"momentum": 0.9, "optimizer": "adamw"}, "belongs to sgd"),
        ({"validation": 0.0}, "validation must lie between 0 and 1, got 0.0"),
        ({"enough": 90.0}, "enough must lie between 0 and 1, got 90.0"),
        ({"sparsity": 0.8, "threshold": 1.0}, "give one of them"),
        ({"sparsity": 1.2}, "got 1.2"),
        ({"activation": "shifted_relu", "clip": 1.0}, "has no clip"),
        ({"batch": 33, "devices": 2}, "a batch of 33 cannot be shared by 2 devices"),
        ({"weights": "delta_orthogonal"}, "for a cnn or a resnet; of mlp take orthogonal"),
    ],
)
def test_bad_values(values: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**values)


@pytest.mark.parametrize("text", ["{", "[1]", '{"colour": 1}', "null"])
def test_not_a_config(text: str) -> None:
    with pytest.raises(ValueError, match="training config"):
        TrainConfig.from_json(text)


def test_what_is_not_given_fits_data_and_depth_and_what_is_given_stays() -> None:
    shallow, deep = TrainConfig(data="digits", depth=30), TrainConfig(data="digits", depth=100)
    assert (shallow.optimizer, deep.optimizer) == ("sgd", "adamw")
    assert deep.epochs > shallow.epochs
    # The warm-up is a tenth of the steps, whatever their number.
    assert shallow.warmup == round(0.1 * shallow.epochs * 41)
    short = TrainConfig(data="digits", depth=100, epochs=5, batch=64, optimizer="sgd", schedule="constant")
    assert (short.epochs, short.batch, short.optimizer, short.schedule) == (5, 64, "sgd", "constant")
    assert short.warmup == round(0.1 * 5 * 21)
    assert TrainConfig(depth=100, momentum=0.9).optimizer == "sgd"
    assert TrainConfig(depth=30, lr=0.5, warmup=0).lr == 0.5
    assert TrainConfig(depth=30, lr=0.5, warmup=0).warmup == 0


def test_deep_chains_are_centred_and_start_evenly_where_that_was_measured() -> None:
    deep = TrainConfig(data="mnist", depth=100)
    assert (deep.center, deep.start, deep.head_rate, deep.optimizer, deep.lr) == (True, "even", 10.0, "adamw", 1e-4)
    # The head is fast because the start is even, and not where that was not asked for.
    assert TrainConfig(data="mnist", depth=100, start="linear").head_rate == 1.0
    assert TrainConfig(data="mnist", depth=100, center=False, start="even").head_rate == 1.0
    assert TrainConfig(data="mnist", depth=100, head_rate=2.0).head_rate == 2.0
    as_drawn = TrainConfig(data="mnist", depth=100, center=False)
    assert (as_drawn.center, as_drawn.start, as_drawn.lr) == (False, "drawn", 5e-5)
    shallower = TrainConfig(data="mnist", depth=30)
    assert (shallower.center, shallower.start, shallower.optimizer, shallower.lr) == (True, "linear", "adamw", 3e-4)
    assert shallower.head_rate == 1.0
    assert TrainConfig(data="mnist", depth=50).start == "even"
    # 30 active units of 300 are enough at 30 layers, 15 are not.
    assert TrainConfig(data="mnist", depth=30, sparsity=0.9).start == "linear"
    few = TrainConfig(data="mnist", depth=30, sparsity=0.95)
    assert (few.start, few.head_rate) == ("even", 10.0)
    for other in (
        {"depth": 29},
        {"optimizer": "sgd"},
        {"momentum": 0.9},
        {"data": "digits"},
        {"arch": "cnn"},
        {"arch": "residual_mlp"},
    ):
        config = TrainConfig(**{"data": "mnist", "depth": 100, "width": 16, **other})
        assert (config.center, config.start, config.head_rate) == (False, "drawn", 1.0)
    assert TrainConfig(data="digits", depth=10, center=True, start="linear").lr == TrainConfig(depth=10).lr
    assert TrainConfig(arch="cnn", start="linear").start == "linear"
    with pytest.raises(ValueError, match="for the chain of an mlp or a cnn; residual_mlp starts as it is drawn"):
        TrainConfig(arch="residual_mlp", start="linear")
    with pytest.raises(ValueError, match="center must be True or False, got 'yes'"):
        TrainConfig(center="yes")  # type: ignore[arg-type]


def test_a_config_of_an_earlier_version_is_read_and_keeps_its_name() -> None:
    old = {
        "data": "mnist", "activation": "crelu", "sparsity": 0.85, "threshold": None, "clip": None, "v_prime": 0.7,
        "q_star": 1.0, "depth": 100, "width": 300, "arch": "mlp", "weights": "gaussian", "output": "edge",
        "optimiser": "adamw", "lr": 5e-05, "momentum": 0.0, "weight_decay": 0.0, "layer_clip": None,
        "schedule": "cosine", "warmup": 84, "batch": 128, "epochs": 12, "give_up": 3, "enough": 0.52,
        "subset": None, "shrink": 1, "per_image": True, "validation": 0.1, "watch": 200, "engine": "sparse",
        "precision": "32-true", "accelerator": "auto", "devices": 1, "strategy": "ddp", "seed": 0,
    }  # fmt: skip
    config = TrainConfig.from_json(json.dumps(old))
    assert config.optimizer == "adamw"
    assert config.name == "mnist-crelu-s0.85-v0.7-100x300-9164c1a3-seed0"


def test_names_of_recorded_runs_do_not_change() -> None:
    """They are pinned: a table finds its runs by them."""
    assert TrainConfig(
        data="mnist", depth=30, lr=2e-3, optimizer="sgd", schedule="constant", warmup=400, batch=32, epochs=10
    ).name == "mnist-crelu-s0.85-30x300-991022c5-seed0"  # fmt: skip
    same = {"data": "digits", "depth": 30, "width": 300, "sparsity": 0.85}
    same |= {"lr": 1e-2, "schedule": "constant", "warmup": 0, "batch": 32, "watch": 250}
    assert [config.name for config in (
        TrainConfig(activation="shifted_relu", epochs=20, give_up=10, **same),
        TrainConfig(activation="soft_threshold", epochs=20, give_up=10, **same),
        TrainConfig(activation="crelu", v_prime=0.7, epochs=80, **same),
    )] == [
        "digits-shifted_relu-s0.85-30x300-29cc6d18-seed0",
        "digits-soft_threshold-s0.85-30x300-15c5a5b1-seed0",
        "digits-crelu-s0.85-v0.7-30x300-e5731276-seed0",
    ]  # fmt: skip


def test_relative_thresholds_are_designed_and_not_held() -> None:
    config = TrainConfig(activation="relative_crelu", sparsity=0.9, depth=4, width=32)
    assert config.design().through_scale
    assert config.design().clip == 2.0
    assert TrainConfig.from_json(config.to_json()) == config
    with pytest.raises(ValueError, match="moves with it already"):
        TrainConfig(activation="relative_crelu", hold=True)
