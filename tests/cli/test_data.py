"""`hush data` as a user types it."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hush.cli import data, main
from tests.data.samples import idx_catalogue, idx_contents, write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(data, "CATALOGUE", idx_catalogue(idx_contents()))
    return tmp_path / "cache" / "data"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["hush", "data", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_list(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "list") == 0
    mnist, text, _, where = capsys.readouterr().out.splitlines()
    assert mnist == "mnist  tiny digits; 40 + 10 images, 1×4×4, 10 classes; 0 MB, not here yet"
    assert text.startswith(f"text   documentation and standard library of Python {platform.python_version()}; ")
    assert where == f"The cache is {cache}."
    assert run(monkeypatch, "list", "--json") == 0
    item, text = json.loads(capsys.readouterr().out)
    assert (item["name"], item["train"], item["here"]) == ("mnist", 40, False)
    assert (text["name"], text["python"]) == ("text", platform.python_version())


def test_text_comes_with_python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("fetch", "where"):
        assert run(monkeypatch, verb, "text") == 0
        assert capsys.readouterr().out.startswith("text comes with Python; there is nothing to fetch: ")
        assert run(monkeypatch, verb, "text", "--json") == 0
        assert json.loads(capsys.readouterr().out)["files"] > 100


def test_fetch_then_where(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = write(idx_contents(), tmp_path / "copy" / "MNIST" / "raw", zipped=True).parent.parent
    assert run(monkeypatch, "fetch", "mnist", "--directory", str(copy)) == 0
    assert capsys.readouterr().out == f"mnist is in {cache / 'mnist'} (from: directory).\n"
    assert run(monkeypatch, "where", "mnist") == 0
    assert capsys.readouterr().out == f"{cache / 'mnist'}\n"
    assert run(monkeypatch, "where", "mnist", "--directory", str(copy), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["directory"]) == ("directory", str(copy / "MNIST" / "raw"))
    assert len(found["files"]) == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fetch", "imagenet"], "there is no data set 'imagenet'"),
        (["fetch", "mnist"], "could not be fetched"),
        (["where", "mnist"], "`hush data fetch mnist` gets it."),
        (["where", "mnist", "--directory", "nowhere"], "nowhere is not a directory that can be read."),
        (["fetch"], "NAME"),
        (["lose", "mnist"], "No such command 'lose'"),
    ],
)
def test_bad_calls_are_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert run(monkeypatch, *arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("hush: ")
    assert complaint in output.err
    assert len(output.err.strip().splitlines()) == 1


def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"]):
        assert run(monkeypatch, *arguments) == 0
        output = capsys.readouterr()
        assert all(verb in output.out for verb in ("list", "fetch", "where"))
        assert output.err == ""


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, hush.cli, hush.data; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
