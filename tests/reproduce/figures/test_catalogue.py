"""The catalogue and the page that lists it say the same."""

from pathlib import Path

import pytest

from hush.reproduce.figures import FIGURES

PAGE = (Path(__file__).parents[3] / "docs" / "figures.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_lists_every_figure_with_its_caption(name: str) -> None:
    entry = FIGURES[name]
    assert f"| `hush reproduce {name}` | {entry.number or '–'} |" in PAGE
    assert entry.caption in PAGE
    assert entry.note in PAGE


def test_numbers_follow_the_paper() -> None:
    numbered = [entry.number for entry in FIGURES.values() if entry.number is not None]
    assert numbered == list(range(1, 15))
    assert [name for name, entry in FIGURES.items() if entry.number is None] == ["odds", "bands", "speedup"]
