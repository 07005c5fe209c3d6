"""CIFAR batches: arrays come out, programs do not run."""

import builtins
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hush.data.cifar import read_cifar
from hush.data.errors import DataError
from hush.data.splits import load
from tests.data.samples import batch, cifar_catalogue, cifar_contents, pixels, write


def test_a_batch_of_python_2_is_read() -> None:
    images = pixels(5, 12)
    found = read_cifar(batch(images, [0, 1, 2, 3, 9]), 12, "batch")
    np.testing.assert_array_equal(found.images, images)
    np.testing.assert_array_equal(found.labels, [0, 1, 2, 3, 9])


def test_a_batch_of_python_3_is_read() -> None:
    images = pixels(5, 12)
    content = pickle.dumps({b"data": images, b"labels": [0, 1, 2, 3, 9]}, protocol=4)
    np.testing.assert_array_equal(read_cifar(content, 12, "batch").images, images)


class Malicious:
    """A pickle that calls `function` when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def attacks(marker: Path) -> list[bytes]:
    write_it = f"open({str(marker)!r}, 'w').close()"
    calls = [
        Malicious(os.system, f"/usr/bin/touch {marker}"),
        Malicious(builtins.exec, write_it),
        Malicious(builtins.eval, write_it),
        Malicious(subprocess.call, ["/usr/bin/touch", str(marker)]),
        Malicious(os.mkdir, str(marker)),
        # through an attribute of what is allowed
        b"\x80\x04cnumpy\nndarray.__class__.__base__.__subclasses__\n)R.",
        b"\x80\x04cnumpy\nf2py.os.system\n.",
    ]
    plain = [call if isinstance(call, bytes) else pickle.dumps(call, protocol=2) for call in calls]
    inside = pickle.dumps({b"data": calls[0], b"labels": [1]}, protocol=4)
    return [*plain, inside]


@pytest.mark.parametrize("number", range(8))
def test_a_malicious_pickle_does_not_run(tmp_path: Path, number: int) -> None:
    marker = tmp_path / "executed"
    with pytest.raises(DataError, match="asks for .*, which a CIFAR batch never does; it was not run"):
        read_cifar(attacks(marker)[number], 12, "batch")
    assert not marker.exists()


def test_the_attack_is_a_real_one(tmp_path: Path) -> None:
    pickle.loads(attacks(tmp_path / "executed")[4])
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("checksum_holds", [False, True])
def test_a_malicious_batch_on_disk_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksum_holds: bool
) -> None:
    marker = tmp_path / "executed"
    contents = cifar_contents()
    bad = {**contents, "data_batch_2": attacks(marker)[4]}
    catalogue = cifar_catalogue(bad if checksum_holds else contents)
    if not checksum_holds:  # then the unpickler must not even see it
        seen: list[str] = []
        monkeypatch.setattr("hush.data.raw.read_cifar", lambda content, size, name: seen.append(name) or read_cifar(
            content, size, name
        ))  # fmt: skip
    with pytest.raises(DataError, match="data_batch_2 (is truncated|asks for posix.mkdir)"):
        load("cifar10", directory=write(bad, tmp_path / "copy"), catalogue=catalogue)
    assert not marker.exists()
    if not checksum_holds:
        assert [Path(name).name for name in seen] == ["data_batch_1"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a readable pickle"),
        (batch(pixels(5, 12), [1] * 5)[:-40], "not a readable pickle"),
        (pickle.dumps([1, 2]), "no data and labels"),
        (pickle.dumps({b"data": 1, b"labels": []}), "not rows of 12 bytes"),
        (batch(pixels(5, 11), [1] * 5), "not rows of 12 bytes"),
        (pickle.dumps({b"data": np.zeros((2, 12)), b"labels": [1, 2]}, protocol=4), "not rows of 12 bytes"),
        (pickle.dumps({b"data": pixels(2, 12), b"labels": [1, 300]}, protocol=4), "small whole numbers"),
    ],
)
def test_what_is_no_batch_is_one_sentence(content: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_cifar(content, 12, "batch")
