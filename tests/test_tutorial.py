"""The tutorial's notebook runs from top to bottom."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"


def cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    source = cells()
    # As written it trains for most of a minute; one epoch goes the same way.
    shortened = [cell.replace("EPOCHS = 10", "EPOCHS = 1") for cell in source]
    assert shortened != source
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in shortened:
        exec(compile(cell, NOTEBOOK.name, "exec"), namespace)
    said = capsys.readouterr().out
    assert "it should train" in said
    assert "it will not train" in said


def test_it_is_a_notebook_that_jupyter_opens() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert notebook["metadata"]["kernelspec"]["language"] == "python"
    for cell in notebook["cells"]:
        assert {"cell_type", "id", "metadata", "source"} <= set(cell)
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
