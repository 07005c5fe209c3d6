"""A directory the user names, in all the shapes it can have."""

from pathlib import Path

import pytest

from hush.data import DataError, fetch, where
from hush.data.directory import search
from hush.data.splits import load
from tests.data.samples import TRAIN, cifar_catalogue, cifar_contents, idx_catalogue, idx_contents, tar, write


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("layout", ["MNIST/raw", "raw", "mnist", ""])
def test_layouts_of_mnist(tmp_path: Path, layout: str, zipped: bool, cache: Path) -> None:
    catalogue = idx_catalogue(idx_contents())
    folder = write(idx_contents(), tmp_path / "copy" / layout, zipped=zipped)
    location = where("mnist", directory=tmp_path / "copy", catalogue=catalogue)
    assert (location.source, location.directory) == ("directory", folder)
    splits = load("mnist", directory=tmp_path / "copy", catalogue=catalogue)
    assert len(splits.train) + len(splits.validation) == TRAIN
    assert not cache.exists()  # read in place
    assert fetch("mnist", directory=tmp_path / "copy", catalogue=catalogue).directory == cache / "mnist"
    assert {path.name: path.read_bytes() for path in (cache / "mnist").iterdir()} == {".lock": b"", **idx_contents()}


@pytest.mark.parametrize("layout", ["cifar-10-batches-py", "cifar10", ""])
def test_layouts_of_cifar(tmp_path: Path, layout: str) -> None:
    catalogue = cifar_catalogue(cifar_contents())
    write(cifar_contents(), tmp_path / "copy" / layout)
    assert len(load("cifar10", directory=tmp_path / "copy", catalogue=catalogue).train) == 36


def test_the_archive_is_unpacked_once(tmp_path: Path, cache: Path) -> None:
    catalogue = cifar_catalogue(cifar_contents())
    (tmp_path / "copy" / "cifar-10-batches-py").mkdir(parents=True)
    # an unpacking that was cut short beside it
    (tmp_path / "copy" / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"half")
    archive = tmp_path / "copy" / "cifar-10-python.tar.gz"
    archive.write_bytes(tar(cifar_contents(), "cifar-10-batches-py/"))
    assert len(load("cifar10", directory=tmp_path / "copy", catalogue=catalogue).train) == 36
    assert (cache / "cifar10" / "data_batch_1").exists()
    archive.write_bytes(b"")
    assert len(load("cifar10", directory=tmp_path / "copy", catalogue=catalogue).train) == 36


@pytest.mark.parametrize("verb", [load, fetch, where])
def test_a_damaged_copy_is_named_and_nothing_else_is_tried(tmp_path: Path, verb: object) -> None:
    contents = idx_contents()
    write(contents, tmp_path / "cache" / "data" / "mnist")
    bad = {**contents, "t10k-labels-idx1-ubyte": contents["t10k-labels-idx1-ubyte"][:-1] + b"\x07"}
    with pytest.raises(DataError, match="copy/t10k-labels-idx1-ubyte is damaged"):
        verb("mnist", directory=write(bad, tmp_path / "copy"), catalogue=idx_catalogue(contents))  # type: ignore[operator]


def test_swapped_files_are_named(tmp_path: Path) -> None:
    contents, other = idx_contents(), idx_contents(seed=1)
    one, two = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
    swapped = {**contents, one: contents[two], two: contents[one]}
    with pytest.raises(DataError, match=f"{one} is truncated"):
        load("mnist", directory=write(swapped, tmp_path / "swapped"), catalogue=idx_catalogue(contents))
    with pytest.raises(DataError, match=f"{one} is damaged"):
        load("mnist", directory=write(other, tmp_path / "other"), catalogue=idx_catalogue(contents))


def test_what_is_missing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    contents = idx_contents()
    catalogue = idx_catalogue(contents)
    with pytest.raises(DataError, match="nowhere is not a directory that can be read."):
        search(catalogue["mnist"], tmp_path / "nowhere")
    folder = write({name: data for name, data in contents.items() if "t10k" in name}, tmp_path / "half")
    with pytest.raises(DataError, match="only a part of mnist: there is no train-images-idx3-ubyte, train-labels"):
        search(catalogue["mnist"], folder)
    (tmp_path / "empty").mkdir()
    write(contents, tmp_path / "cache" / "data" / "mnist")
    assert where("mnist", directory=tmp_path / "empty", catalogue=catalogue).source == "cache"
    assert f"there is no mnist below {tmp_path / 'empty'}; looking elsewhere." in caplog.text
