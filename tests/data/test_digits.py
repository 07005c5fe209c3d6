"""The embedded digits."""

import sys

import numpy as np
import pytest
import sklearn.datasets
import torch

from hush.data import DataError, fetch, load, where


def test_the_digits_need_no_file() -> None:
    splits = load("digits", flat=False)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (1293, 144, 360)
    assert splits.train.images.shape[1:] == splits.shape == (1, 8, 8)
    assert splits.train.images.var(correction=0).item() == pytest.approx(1.0, rel=1e-4)
    assert sorted(set(splits.test.labels.tolist())) == list(range(10))
    assert fetch("digits").source == where("digits").source == "scikit-learn"


def test_the_test_set_is_always_the_same() -> None:
    first, second = (load("digits", seed=seed, per_image=True).test for seed in (0, 1))
    assert torch.equal(first.images, second.images)


def test_a_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        DataError, match="digits come with scikit-learn: install it with `pip install 'hush\\[train\\]'`"
    ):
        load("digits")


def test_other_digits_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda **_: (images, np.roll(labels, 1)))
    with pytest.raises(DataError, match="not the known ones"):
        load("digits")
