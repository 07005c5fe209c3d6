"""Tiny data sets in the real formats, and catalogues that hold their checksums."""

import gzip
import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush.data.catalogue import Catalogue, DataFile, DataSet, Package

TRAIN, TEST = 40, 10


def pixels(count: int, size: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.RandomState(seed).randint(0, 256, (count, size)).astype(np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def batch(images: NDArray[np.uint8], labels: list[int]) -> bytes:
    """A CIFAR batch byte for byte as Python 2 wrote it: protocol 2, strings for bytes, NumPy's old module names."""
    count, size = images.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"  # the empty array
        + b"(K\x01M" + struct.pack("<H", count) + b"M" + struct.pack("<H", size) + b"\x86"  # version, shape
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + struct.pack("<I", images.size) + images.tobytes() + b"tb"  # order, content
    )  # fmt: skip
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels](" + numbers + b"eu."


def described(contents: dict[str, bytes]) -> tuple[DataFile, ...]:
    return tuple(DataFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items())


def idx_contents(seed: int = 0) -> dict[str, bytes]:
    """The four files of a tiny MNIST of 4×4 pixels."""
    contents = {}
    for prefix, count in (("train", TRAIN), ("t10k", TEST)):
        images = pixels(count, 16, seed + count).reshape(count, 4, 4)
        contents[f"{prefix}-images-idx3-ubyte"] = idx(images)
        contents[f"{prefix}-labels-idx1-ubyte"] = idx((np.arange(count) % 10).astype(np.uint8))
    return contents


def cifar_contents() -> dict[str, bytes]:
    """Two training batches and a test batch of 3×2×2 pixels."""
    counts = {"data_batch_1": TRAIN // 2, "data_batch_2": TRAIN // 2, "test_batch": TEST}
    return {
        name: batch(pixels(count, 12, seed), [i % 10 for i in range(count)])
        for seed, (name, count) in enumerate(counts.items())
    }


def idx_catalogue(contents: dict[str, bytes], *urls: str, client: str = "npm") -> Catalogue:
    files = described(contents)
    package = Package("npm", "tiny@1.0.0") if client == "npm" else Package("apt-get", "tiny")
    entry = DataSet(
        "mnist", "tiny digits", (1, 4, 4), 10, TRAIN, TEST, "idx", files[:2], files[2:], ("MNIST/raw",), urls,
        package=package,
    )  # fmt: skip
    return {"mnist": entry}


def cifar_catalogue(contents: dict[str, bytes], *urls: str) -> Catalogue:
    files = described(contents)
    entry = DataSet(
        "cifar10", "tiny photographs", (3, 2, 2), 10, TRAIN, TEST, "cifar", files[:-1], files[-1:],
        ("cifar-10-batches-py",), urls, "cifar-10-python.tar.gz", Package("npm", "tiny@1.0.0"),
    )  # fmt: skip
    return {"cifar10": entry}


def write(contents: dict[str, bytes], folder: Path, *, zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)
    return folder


def tar(contents: dict[str, bytes], prefix: str, mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in contents.items():
            member = tarfile.TarInfo(f"{prefix}{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
