"""Every Python block of the README and the docs runs as it stands, block after block in one namespace per page.

A block that imports timm or transformers stands for itself, and runs where they are installed.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.torchvision_operators import declare_operators

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(page: Path) -> Iterator[tuple[str, str | None]]:
    """Each block, and the library of the extra `models` that it imports."""
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        found = re.search(r"^(?:import|from) (timm|transformers)\b", block, re.MULTILINE)
        yield block, found and found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block, library in snippets(page):
        if library is None:
            exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(library for _, library in snippets(page))], ids=lambda page: page.name
)
def test_snippets_with_other_libraries_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    declare_operators()
    for block, library in snippets(page):
        if library is not None:
            pytest.importorskip(library, reason=f"needs {library}, of the extra `models`: make test-models")
            exec(compile(block, page.name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_placeholder_is_left(page: Path) -> None:
    assert not re.search(r"\b(SPEED|TODO|INITTABLE|[A-Z]+_(TABLE|RATIO|VERDICT))\b", page.read_text(encoding="utf-8"))
