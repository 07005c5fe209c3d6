"""The 1,797 digits of 8×8 pixels inside scikit-learn: the one data set that needs neither network nor file."""

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hush._extras import how_to_install
from hush.data.catalogue import DataSet
from hush.data.errors import DataError
from hush.data.raw import Raw

__all__ = ["read_digits"]

# The writers come one after the other, so a test set cut off the end would hold strangers only: it is drawn at random,
# once and for all.
_SPLIT_SEED = 1797
_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def read_digits(entry: DataSet) -> Raw:
    """The digits with values 0 … 16, and a test set that is always the same.

    Raises:
        DataError: if scikit-learn is missing, or its digits are not the known ones.
    """
    images, labels = _read_table(entry)
    if hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != _SHA256:
        raise DataError("the digits of this scikit-learn are not the known ones: install scikit-learn anew.")
    # RandomState, because NumPy promises never to change its streams.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(images))
    train, test = np.sort(order[: entry.train]), np.sort(order[entry.train :])
    return Raw(images[train], labels[train], images[test], labels[test])


def _read_table(entry: DataSet) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and labels from the file inside scikit-learn: importing the package itself takes a second."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise DataError(f"{entry.name} come with scikit-learn: {how_to_install('train')}.")
    file = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(file, "rt", encoding="ascii") as text:
            table = np.loadtxt(text, delimiter=",", ndmin=2).astype(np.uint8)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}): install scikit-learn anew.") from error
    return np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])
