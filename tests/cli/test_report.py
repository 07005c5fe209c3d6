from pathlib import Path

import pytest
from typer.testing import CliRunner

import hush
from hush.cli.app import app
from tests.report.samples import make_run


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["report", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.strip()


def test_runs_and_designs(tmp_path: Path) -> None:
    (tmp_path / "design.json").write_text(hush.design("cst", 0.8, v_prime=0.7).to_json())
    out = tmp_path / "report.html"
    new = ["--activation", "crelu", "--sparsity", "0.85", "--v-prime", "0.5"]
    assert run(str(make_run(tmp_path)), "--design", str(tmp_path / "design.json"), *new, "--out", str(out)) == str(out)
    text = out.read_text(encoding="utf-8")
    assert "cst, s = 0.8" in text
    assert "crelu, s = 0.85" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "there is nothing to report: give a run directory or a design."),
        (["--activation", "crelu"], "--activation and --sparsity go together"),
        (["--design", "missing.json"], "there is no design at missing.json"),
        (["missing"], "there is no run at missing"),
    ],
)
def test_bad_values(arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        run(*arguments)


def test_a_file_that_is_no_design(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="x.json: this is not a hush design"):
        run("--design", str(tmp_path / "x.json"))
