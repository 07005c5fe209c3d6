"""Archives: only what is wanted comes out, and only into its place."""

from pathlib import Path

import pytest

from hush.data import DataError
from hush.data.archive import extract
from tests.data.samples import cifar_catalogue, cifar_contents, tar

ENTRY = cifar_catalogue(cifar_contents())["cifar10"]


def unpack(tmp_path: Path, data: bytes) -> dict[str, bytes]:
    (tmp_path / "archive").write_bytes(data)
    (tmp_path / "out").mkdir()
    extract(tmp_path / "archive", ENTRY, tmp_path / "out")
    return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("prefix", ["package/demo/cifar10/", "../../", "/", ""])
def test_nothing_leaves_the_target(tmp_path: Path, prefix: str) -> None:
    more = {**cifar_contents(), "install.js": b"unwanted"}
    assert unpack(tmp_path, tar(more, prefix)) == cifar_contents()
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "bin", "out"}


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_a_truncated_archive_is_one_sentence(tmp_path: Path, mode: str, kept: float) -> None:
    # A plain tar ends with kilobytes of padding; the second batch is cut either way.
    data = tar(cifar_contents(), "", mode)
    whole = len(data) if mode == "w:gz" else sum(512 + len(content) for content in cifar_contents().values())
    with pytest.raises(DataError, match=f"^{tmp_path / 'archive'}.*(truncated|has no)"):
        unpack(tmp_path, data[: int(kept * whole)])


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    contents = {name: data for name, data in cifar_contents().items() if name != "test_batch"}
    with pytest.raises(DataError, match="archive has no test_batch."):
        unpack(tmp_path, tar(contents, ""))


def test_a_wrong_member_is_named(tmp_path: Path) -> None:
    contents = cifar_contents()
    contents["test_batch"] = contents["test_batch"][:-1] + b"!"
    with pytest.raises(DataError, match="archive:package/test_batch is damaged"):
        unpack(tmp_path, tar(contents, "package/"))
