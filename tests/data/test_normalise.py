"""Moments against NumPy in float64; blank images."""

import numpy as np
import pytest
import torch

from hush.data import DataError
from hush.data.normalise import Moments, moments, standardise, standardise_each
from tests.data.samples import pixels


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 3000])
def test_moments_are_those_of_numpy(count: int) -> None:
    images = pixels(count, 5)
    found = moments(images)
    assert found.mean == pytest.approx(images.astype(float).mean(), rel=1e-13)
    assert found.variance == pytest.approx(images.astype(float).var(), rel=1e-13)


def test_a_blank_image_becomes_zero() -> None:
    images = np.array([[7, 7, 7], [0, 0, 9]], np.uint8)
    assert torch.equal(standardise_each(images, 1.0)[0], torch.zeros(3))
    assert torch.isfinite(standardise_each(images, 1.0)).all()


def test_blank_data_cannot_be_scaled() -> None:
    with pytest.raises(DataError, match="all pixels of the training images are equal"):
        standardise(np.full((3, 2), 7, np.uint8), Moments(7.0, 0.0), 1.0)


def test_the_bytes_stay_as_they_were() -> None:
    images = pixels(4, 5)
    before = images.copy()
    standardise(images, moments(images), 1.0)
    standardise_each(images, 1.0)
    np.testing.assert_array_equal(images, before)
