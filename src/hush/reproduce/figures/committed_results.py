"""Where measured figures that ship with the sources lie."""

from pathlib import Path

__all__ = ["committed"]

_CHECKOUT = Path(__file__).parents[4]


def committed(pattern: str) -> list[Path]:
    """The files of docs/results that match, below the current directory or else in the checkout hush runs from."""
    for root in (Path.cwd(), _CHECKOUT):
        found = sorted((root / "docs" / "results").glob(pattern))
        if found:
            return found
    return []
