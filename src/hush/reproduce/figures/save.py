"""A figure into files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "check_formats", "prepare", "save"]

FORMATS = ("png", "svg", "pdf")


def check_formats(formats: Sequence[str]) -> None:
    """Raise a ValueError unless all of `formats` are among FORMATS."""
    for kind in formats:
        if kind not in FORMATS:
            raise ValueError(f"a figure's format is one of {', '.join(FORMATS)}, got {kind!r}.")


def prepare(folder: str | Path) -> Path:
    """`folder`, made if it is not there.

    Raises:
        ValueError: if it cannot be made.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"figures cannot be written to {folder}: {error.strerror or error}.") from error
    return folder


def save(figure: "Figure", name: str, folder: str | Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figure to `folder`/`name`.png and so on; the paths written.

    Raises:
        ValueError: if a format is unknown or the folder cannot be written to.
    """
    from hush._style import style

    check_formats(formats)
    folder = prepare(folder)
    paths = [folder / f"{name}.{kind}" for kind in formats]
    # Without a date the same figure gives the same bytes.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with style():
        for path, kind in zip(paths, formats, strict=True):
            try:
                figure.savefig(path, metadata=undated.get(kind))
            except OSError as error:
                raise ValueError(f"{path} cannot be written: {error.strerror or error}.") from error
    return paths
