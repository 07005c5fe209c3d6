"""What there is, and what is here already."""

from dataclasses import asdict, dataclass
from os.path import exists, getsize
from typing import Any

from hush.data.catalogue import CATALOGUE, Catalogue
from hush.data.sources import cached_files

__all__ = ["Listed", "listing"]


@dataclass(frozen=True)
class Listed:
    """A data set in a line.

    Attributes:
        size: of its files in bytes.
        here: whether it can be loaded offline, judged by names and lengths; loading verifies.
    """

    name: str
    title: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    size: int
    here: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        pixels = "×".join(str(length) for length in self.shape)
        size = (
            f"{self.size / 1e6:.0f} MB, {'in the cache' if self.here else 'not here yet'}" if self.size else "embedded"
        )
        return f"{self.title}; {self.train:,} + {self.test:,} images, {pixels}, {self.classes} classes; {size}"


def listing(catalogue: Catalogue = CATALOGUE) -> list[Listed]:
    """Every data set of the catalogue, in its order."""
    return [
        Listed(
            entry.name,
            entry.title,
            entry.train,
            entry.test,
            entry.shape,
            entry.classes,
            sum(file.size for file in entry.files),
            all(
                exists(path) and getsize(path) == file.size
                for file, path in zip(entry.files, cached_files(entry), strict=True)
            ),
        )
        for entry in catalogue.values()
    ]
