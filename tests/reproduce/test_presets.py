"""The recipes: what the paper says of its protocol, and that every departure from it is said."""

import dataclasses

import pytest

from hush.reproduce.presets import KINDS, PRESETS, left_open, preset
from hush.train import TrainConfig


@pytest.mark.parametrize(
    ("kind", "data", "depth", "lr", "seeds"),
    [
        ("deep", "mnist", 100, 1e-4, 5),
        ("cnn", "cifar10", 50, 1e-3, 1),
        ("shallow", "mnist", 30, 1e-4, 5),
        ("second", "mnist", 100, 1e-4, 5),
    ],
)
def test_the_paper_preset_is_section_4(kind: str, data: str, depth: int, lr: float, seeds: int) -> None:
    recipe = preset("paper", kind)
    config = TrainConfig(**recipe.fields)
    assert (config.data, config.depth, config.width, config.lr) == (data, depth, 300, lr)
    assert (config.epochs, config.optimizer, config.schedule, config.validation) == (200, "sgd", "constant", 0.1)
    assert (config.momentum, config.weight_decay, config.layer_clip, config.give_up) == (0.0, 0.0, None, None)
    assert (config.arch, config.weights, config.q_star) == ("cnn" if kind == "cnn" else "mlp", "gaussian", 1.0)
    assert recipe.seeds == seeds
    assert recipe.exact
    assert not recipe.differences


def test_quick_is_the_recipe_of_hush_train_for_deep_chains_in_fewer_epochs() -> None:
    quick = preset("quick", "deep")
    mine = TrainConfig(**quick.fields)
    assert mine == TrainConfig(data="mnist", depth=100, per_image=True, epochs=mine.epochs)
    assert mine.epochs < TrainConfig(data="mnist", depth=100).epochs
    said = " ".join(quick.differences)
    assert "gradients of the weights are centred" in said
    assert "made nearly linear on the data" in said
    assert "head's learning rate is 10 times" in said
    shallow = TrainConfig(**preset("quick", "shallow").fields)
    asked = {"center": True, "start": "linear", "optimizer": "adamw", "per_image": True, "batch": mine.batch}
    assert shallow == TrainConfig(data="mnist", depth=30, epochs=shallow.epochs, **asked)


def test_the_scaled_cnn_sees_every_pixel_of_every_image() -> None:
    quick = preset("quick", "cnn")
    config = TrainConfig(**quick.fields, v_prime=0.7)
    assert (config.data, config.arch, config.shrink, config.patch, config.subset) == ("cifar10", "cnn", 1, 4, None)
    assert config.depth >= 20
    assert config.design().positions == 64
    assert "Squares of 4 × 4 pixels are the channels of one position: every pixel is kept." in quick.differences
    assert quick.v_primes is None


def test_the_probe_of_the_cnn_is_as_wide_and_as_deep_as_the_papers() -> None:
    probe = preset("probe", "cnn")
    config, paper = TrainConfig(**probe.fields), TrainConfig(**PRESETS["paper"]["cnn"])
    assert (config.depth, config.width, config.lr, config.start) == (paper.depth, paper.width, paper.lr, "drawn")
    assert "Trained on 2048 images instead of all." in probe.differences
    assert "Scored on 500 held-out and 500 test images instead of all." in probe.differences


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["probe", "quick", "smoke"])
def test_every_difference_is_said(name: str, kind: str) -> None:
    recipe = preset(name, kind)
    mine, paper = TrainConfig(**recipe.fields), TrainConfig(**PRESETS["paper"][kind])
    differing = {
        f.name: getattr(mine, f.name)
        for f in dataclasses.fields(TrainConfig)
        if f.name not in ("batch", "pool") and getattr(mine, f.name) != getattr(paper, f.name)
    }
    assert differing
    for name_of_field, value in differing.items():
        word = f"{value:g}" if isinstance(value, float) else str(value)
        word = "centred" if name_of_field == "center" else word
        assert any(word in sentence.split("instead")[0] for sentence in recipe.differences), word
    assert not recipe.exact
    # The batch size and the pooling are the paper's to tell, and it does not.
    assert f"The paper's batch size: here {mine.batch}." in left_open(recipe.fields)
    pools = [s for s in left_open(recipe.fields) if "pads and pools" in s]
    assert len(pools) == (mine.arch == "cnn")
    assert all(("no pooling" in sentence) == (mine.pool == "none") for sentence in pools)


def test_a_field_set_by_hand_is_a_difference_and_one_left_open_is_not() -> None:
    recipe = preset("paper", "shallow")
    changed = recipe.with_fields({"lr": 1e-3, "momentum": 0.9})
    assert changed.differences == (
        "Learning rate 0.001 instead of 0.0001.",
        "momentum = 0.9, of which the paper says nothing.",
    )
    assert not changed.exact
    assert "momentum" not in " ".join(left_open(changed.fields))
    assert recipe.with_fields({"batch": 64}).exact
    assert preset("paper", "shallow", 2).differences == ("2 seeds a row instead of 5.",)


def test_unknown_preset_and_seeds() -> None:
    with pytest.raises(ValueError, match="unknown preset 'fast'; there are smoke, probe, quick, paper"):
        preset("fast", "deep")
    with pytest.raises(ValueError, match="seeds must lie between 1 and 10000, got 0"):
        preset("quick", "deep", 0)
