"""The embedded digits."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets
import torch

from hush.data import CATALOGUE, DataError, digits, fetch, load, where
from hush.data.digits import read_digits


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


def test_the_file_is_the_one_scikit_learn_reads() -> None:
    """Every byte: both halves of `load`, put together, are what `load_digits` returns."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    ours, known = read_digits(CATALOGUE["digits"]), {}
    for image, label in zip(images.astype(np.uint8), labels, strict=True):
        known.setdefault(image.tobytes(), int(label))
    assert len(ours.train_images) + len(ours.test_images) == len(images)
    for image, label in zip(
        [*ours.train_images, *ours.test_images], [*ours.train_labels, *ours.test_labels], strict=True
    ):
        assert known[image.tobytes()] == label


def test_a_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=r"digits come with scikit-learn: pip install -e '\.\[train\]' in a checkout"):
        load("digits")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"not a gzip file", "cannot be read"), (gzip.compress(b"1.0,2.0,3.0\n"), "not the known ones")],
    # A gzip file has the second it was made in, which must not be part of the test's name.
    ids=["no gzip file", "other digits"],
)
def test_other_digits_are_never_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    (tmp_path / "datasets" / "data" / "digits.csv.gz").write_bytes(content)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(digits, "find_spec", lambda _: spec)
    with pytest.raises(DataError, match=sentence):
        load("digits")
