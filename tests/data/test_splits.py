"""`load`: three splits, normalised, by seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hush.data
from hush.data import DataError, load
from tests.data.samples import TEST, cifar_catalogue, cifar_contents, idx_catalogue, idx_contents, pixels, write


@pytest.fixture(params=["mnist", "cifar10"])
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    contents, catalogue = {
        "mnist": (idx_contents(), idx_catalogue(idx_contents())),
        "cifar10": (cifar_contents(), cifar_catalogue(cifar_contents())),
    }[request.param]
    return {"name": request.param, "directory": write(contents, tmp_path / "copy"), "catalogue": catalogue}


@pytest.mark.parametrize("variance", [1.0, 0.75])
def test_the_training_set_has_mean_0_and_the_variance(arguments: dict[str, Any], variance: float) -> None:
    x = load(**arguments, variance=variance).train.images.double()
    assert abs(x.mean()) < 1e-6
    assert x.var(correction=0).item() == pytest.approx(variance, rel=1e-6)


def test_all_splits_share_one_scale(arguments: dict[str, Any]) -> None:
    splits = load(**arguments)
    raw = pixels(TEST, 16, TEST) if splits.name == "mnist" else pixels(TEST, 12, 2)
    x = splits.test.images.double().numpy()
    slope, offset = np.polyfit(raw.ravel(), x.ravel(), 1)
    np.testing.assert_allclose(x, slope * raw + offset, atol=1e-5)
    train = load(**arguments, validation=0.0).train.images
    assert len(train) == 40


def test_each_image_can_have_its_own_scale(arguments: dict[str, Any]) -> None:
    splits = load(**arguments, variance=0.5, per_image=True)
    for split in (splits.train, splits.validation, splits.test):
        torch.testing.assert_close(split.images.mean(1), torch.zeros(len(split)), atol=1e-6, rtol=0)
        torch.testing.assert_close(split.images.var(1, correction=0), torch.full((len(split),), 0.5))


def test_images_can_be_shrunk(arguments: dict[str, Any]) -> None:
    whole, half = load(**arguments, flat=False), load(**arguments, flat=False, shrink=2)
    assert half.shape == (whole.shape[0], whole.shape[1] // 2, whole.shape[2] // 2) == tuple(half.test.images.shape[1:])
    assert half.train.images.double().var(correction=0).item() == pytest.approx(1.0, rel=1e-6)
    raw = pixels(TEST, 16, TEST) if whole.name == "mnist" else pixels(TEST, 12, 2)
    bytes_ = torch.nn.functional.avg_pool2d(torch.from_numpy(raw).double().view(TEST, *whole.shape), 2).round().numpy()
    x = half.test.images.double().numpy()
    slope, offset = np.polyfit(bytes_.ravel(), x.ravel(), 1)
    np.testing.assert_allclose(x, slope * bytes_ + offset, atol=1e-5)


def test_squares_of_pixels_can_become_channels(arguments: dict[str, Any]) -> None:
    whole, cut = load(**arguments, flat=False), load(**arguments, flat=False, patch=2)
    channels, height, width = whole.shape
    assert cut.shape == (4 * channels, height // 2, width // 2) == tuple(cut.test.images.shape[1:])
    for split, before in ((cut.train, whole.train), (cut.validation, whole.validation), (cut.test, whole.test)):
        for channel, down, right in ((0, 0, 0), (channels - 1, 1, 0), (channels - 1, 0, 1)):
            mine = split.images[:, 4 * channel + 2 * down + right]
            assert torch.equal(mine, before.images[:, channel, down::2, right::2])
        assert torch.equal(split.labels, before.labels)


def test_images_are_shrunk_before_they_are_cut_into_patches() -> None:
    half, both = load("digits", flat=False, shrink=2), load("digits", flat=False, shrink=2, patch=2)
    assert (half.shape, both.shape) == ((1, 4, 4), (4, 2, 2))
    assert torch.equal(torch.nn.functional.pixel_shuffle(both.test.images, 2), half.test.images)


def test_shapes_and_types(arguments: dict[str, Any]) -> None:
    flat, full = load(**arguments), load(**arguments, flat=False)
    assert full.test.images.shape == (TEST, *full.shape)
    torch.testing.assert_close(full.test.images.flatten(1), flat.test.images, atol=0, rtol=0)
    for split in (flat.train, flat.validation, flat.test):
        assert split.images.dtype == torch.float32
        assert split.labels.dtype == torch.int64
        assert split.images.is_contiguous()
        assert len(split.images) == len(split.labels) == len(split)
    assert (len(flat.train), len(flat.validation), len(flat.test)) == (36, 4, 10)
    assert repr(flat.test) == f"Split(10 images of shape ({flat.test.images.shape[1]},))"


def test_the_seed_chooses_what_is_held_out(arguments: dict[str, Any]) -> None:
    first, again, other = (load(**arguments, seed=seed, per_image=True) for seed in (1, 1, 2))
    assert torch.equal(first.validation.images, again.validation.images)
    assert not torch.equal(first.validation.images, other.validation.images)
    assert torch.equal(first.test.images, other.test.images)
    # nothing is lost, nothing is in both, and each image keeps its label
    everything = load(**arguments, validation=0.0, per_image=True).train
    pairs = {(tuple(x.tolist()), int(y)) for x, y in zip(everything.images, everything.labels, strict=True)}
    parts = [
        {(tuple(x.tolist()), int(y)) for x, y in zip(split.images, split.labels, strict=True)}
        for split in (first.train, first.validation)
    ]
    assert parts[0] | parts[1] == pairs
    assert not parts[0] & parts[1]


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"variance": 0.0}, "must be positive and finite, not 0.0"),
        ({"variance": float("nan")}, "must be positive and finite, not nan"),
        ({"validation": 1.0}, "at least 0 and below 1, not 1.0"),
        ({"validation": -0.1}, "at least 0 and below 1, not -0.1"),
        ({"shrink": 3}, "do not fall into squares of 3 pixels a side"),
        ({"shrink": 0}, "do not fall into squares of 0 pixels a side"),
        ({"patch": 3, "flat": False}, "do not fall into squares of 3 pixels a side"),
        ({"patch": 0, "flat": False}, "do not fall into squares of 0 pixels a side"),
        ({"patch": 2}, "squares of 2 pixels become positions of images, not of vectors; ask for flat=False"),
        ({"validation": 0.999}, "holding out 0.999 of 40 training images leaves none"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: dict[str, Any], bad: dict[str, float], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        load(**arguments, **bad)  # type: ignore[arg-type]


def test_the_names_are_there_and_no_others() -> None:
    assert set(hush.data.__all__) <= set(dir(hush.data))
    assert all(hasattr(hush.data, name) for name in hush.data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'imagenet'"):
        _ = hush.data.imagenet
