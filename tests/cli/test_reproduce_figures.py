import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hush.cli.app import app
from hush.reproduce.figures import draw, save


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_formats_path_and_caption(tmp_path: Path) -> None:
    text = run("fig1", "--out", str(tmp_path / "new"), "--format", "png", "--format", "svg", "--format", "pdf")
    heads = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for kind, head in heads.items():
        path = tmp_path / "new" / f"fig1.{kind}"
        assert path.read_bytes().startswith(head)
        assert str(path) in text
    assert "Figure 1: From left to right: ReLU" in text


def test_png_and_svg_by_default(tmp_path: Path) -> None:
    run("fig9", "--out", str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig9.png", "fig9.svg"]


def test_the_same_figure_gives_the_same_file(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        save(draw("fig9"), "fig9", tmp_path / folder, ["svg"])
    assert (tmp_path / "one" / "fig9.svg").read_bytes() == (tmp_path / "two" / "fig9.svg").read_bytes()


def test_bad_values(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="a figure's format is one of png, svg, pdf, got 'bmp'"):
        run("fig1", "--out", str(tmp_path), "--format", "bmp")
    with pytest.raises(ValueError, match="figures cannot be written to"):
        run("fig1", "--out", str(tmp_path / "file" / "below"))
    with pytest.raises(ValueError, match="unknown figure 'fig99'; there are fig1, "):
        draw("fig99")
    result = CliRunner().invoke(app, ["reproduce", "fig99"])
    assert result.exit_code == 2
    assert "fig99" in result.output


def test_help_does_not_load_matplotlib_or_torch() -> None:
    code = (
        "import sys, hush.cli.app, hush.reproduce.figures; "
        "sys.exit(bool({'torch', 'matplotlib', 'lightning'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_all_figures_name_what_they_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hush.cli import reproduce_figures
    from hush.reproduce.figures import FIGURES

    few = {name: FIGURES[name] for name in ("fig1", "fig14", "speedup")}
    monkeypatch.setattr(reproduce_figures, "FIGURES", few)
    monkeypatch.setattr("hush.reproduce.figures.committed_results._CHECKOUT", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="fig14 is left out: .* speedup is left out: "):
        run("figures", "--out", str(tmp_path), "--format", "png")
    assert (tmp_path / "fig1.png").is_file()
