"""Measurements that ship with the sources: where they lie, and the remarks that begin their files."""

from pathlib import Path

__all__ = ["committed", "remarks_of"]

_CHECKOUT = Path(__file__).parents[4]


def committed(pattern: str) -> list[Path]:
    """The files of docs/results that match, below the current directory or else in the checkout hush runs from."""
    for root in (Path.cwd(), _CHECKOUT):
        found = sorted((root / "docs" / "results").glob(pattern))
        if found:
            return found
    return []


def remarks_of(path: Path) -> list[str]:
    """The lines behind a # that begin a CSV file: when and where it was measured."""
    remarks = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith("#"):
                break
            remarks.append(line.lstrip("# ").strip())
    return remarks
