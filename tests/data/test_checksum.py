"""Bytes are those of the catalogue, or the file is named and not used."""

import gzip
import hashlib
from pathlib import Path

import pytest

from hush.data import checksum
from hush.data.catalogue import CATALOGUE, DataFile, data_set, identify
from hush.data.checksum import copy_verified, read_verified, verify
from hush.data.errors import DataError

CONTENT = bytes(range(256)) * 40
FILE = DataFile("values", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.mark.parametrize("name", ["values", "values.gz"])
def test_zipped_and_bare_bytes_are_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(CONTENT) if name.endswith(".gz") else CONTENT)
    assert read_verified(path, FILE) == CONTENT
    verify(path, FILE)
    copy_verified(path, FILE, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


ZIPPED = gzip.compress(CONTENT)


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("values", CONTENT[:-1], "is truncated: it has 10239 of the 10240 bytes"),
        ("values", b"", "is truncated: it has 0 of"),
        ("values", CONTENT + b"!", "more than its 10240 bytes"),
        ("values", b"\x01" + CONTENT[1:], "is damaged: its sha256"),
        ("values.gz", ZIPPED[: len(ZIPPED) // 2], "truncated gzip"),
        ("values.gz", ZIPPED[:-1], "truncated gzip"),
        ("values.gz", ZIPPED[:20] + bytes([ZIPPED[20] ^ 255]) + ZIPPED[21:], "damaged gzip"),
        ("values.gz", ZIPPED[:-6] + bytes([ZIPPED[-6] ^ 1]) + ZIPPED[-5:], "damaged gzip"),
        ("values.gz", CONTENT, "damaged gzip"),
        ("values.gz", gzip.compress(CONTENT[:-1] + b"!"), "is damaged: its sha256"),
        ("values.gz", gzip.compress(bytes(50_000_000)), "more than its 10240 bytes"),
    ],
)
def test_anything_else_is_named(tmp_path: Path, name: str, data: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=complaint) as error:
        read_verified(path, FILE)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("position", range(0, len(ZIPPED), 7))
def test_no_flipped_byte_gets_through(tmp_path: Path, position: int) -> None:
    path = tmp_path / "values.gz"
    path.write_bytes(ZIPPED[:position] + bytes([ZIPPED[position] ^ 0x40]) + ZIPPED[position + 1 :])
    try:
        content = read_verified(path, FILE)
    except DataError:
        return
    assert content == CONTENT  # the header has a time and a system in it, which do not matter


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="values cannot be read \\(No such file"):
        verify(tmp_path / "values", FILE)


def test_a_swapped_file_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = [file.sha256 for entry in CATALOGUE.values() for file in entry.files]
    assert len(set(sums)) == len(sums) == 14
    assert identify(data_set("fashion_mnist").files[0].sha256) == "train-images-idx3-ubyte of fashion_mnist"
    assert identify("0" * 64) is None
    monkeypatch.setattr(checksum, "identify", lambda _: "train-images of fashion_mnist")
    (tmp_path / "values").write_bytes(bytes(len(CONTENT)))
    with pytest.raises(DataError, match="is really train-images of fashion_mnist"):
        verify(tmp_path / "values", FILE)


def test_an_unknown_data_set_is_one_sentence() -> None:
    with pytest.raises(DataError, match="no data set 'imagenet': take one of digits, mnist, fashion_mnist, cifar10"):
        data_set("imagenet")
