"""The official download, from a server on this machine."""

import gzip

import pytest

from hush.data import DataError, fetch
from tests.data.conftest import Server
from tests.data.samples import cifar_catalogue, cifar_contents, idx_catalogue, idx_contents, tar


def zipped(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(data) for name, data in contents.items()}


def test_files_are_unzipped_into_the_cache(server: Server) -> None:
    server.files = zipped(idx_contents())
    location = fetch("mnist", catalogue=idx_catalogue(idx_contents(), server.url))
    assert location.source == "download"
    assert {path.name: path.read_bytes() for path in location.files} == idx_contents()
    assert fetch("mnist", catalogue=idx_catalogue(idx_contents(), server.url)).source == "cache"
    assert len(server.asked) == 4


def test_the_archive_is_unpacked_into_the_cache(server: Server) -> None:
    server.files = {"cifar-10-python.tar.gz": tar(cifar_contents(), "cifar-10-batches-py/")}
    location = fetch("cifar10", catalogue=cifar_catalogue(cifar_contents(), server.url))
    assert {path.name: path.read_bytes() for path in location.files} == cifar_contents()
    assert location.directory is not None
    assert len([*location.directory.iterdir()]) == len(location.files) + 1  # and the lock


def test_the_next_address_helps_out(server: Server, nowhere: str) -> None:
    server.files = zipped(idx_contents())
    assert fetch("mnist", catalogue=idx_catalogue(idx_contents(), nowhere, server.url)).source == "download"


def test_a_dead_address_is_left_after_one_try(server: Server) -> None:
    with pytest.raises(DataError, match="train-images-idx3-ubyte.gz answers 404 Not Found;"):
        fetch("mnist", catalogue=idx_catalogue(idx_contents(), server.url))
    assert server.asked == ["train-images-idx3-ubyte.gz"]


@pytest.mark.parametrize("cut", [0.0, 0.6])
def test_a_download_that_breaks_off_is_never_used(server: Server, cut: float) -> None:
    server.files = {**zipped(idx_contents()), "cifar-10-python.tar.gz": tar(cifar_contents(), "")}
    server.cut = cut
    for name, catalogue in (
        ("mnist", idx_catalogue(idx_contents(), server.url)),
        ("cifar10", cifar_catalogue(cifar_contents(), server.url)),
    ):
        with pytest.raises(DataError, match="truncated|broke off"):
            fetch(name, catalogue=catalogue)
        server.cut = 1.0
        assert fetch(name, catalogue=catalogue).source == "download"
        server.cut = cut


def test_other_bytes_are_never_used(server: Server) -> None:
    server.files = zipped(idx_contents(seed=1))
    with pytest.raises(DataError, match="train-images-idx3-ubyte.gz is damaged"):
        fetch("mnist", catalogue=idx_catalogue(idx_contents(), server.url))
    server.files = {"cifar-10-python.tar.gz": bytes(100_000)}
    with pytest.raises(DataError, match="longer than all its files together"):
        fetch("cifar10", catalogue=cifar_catalogue(cifar_contents(), server.url))
