"""The 1,797 digits of 8×8 pixels inside scikit-learn: the one data set that needs neither network nor file."""

import hashlib
from importlib import import_module

import numpy as np

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
    try:
        datasets = import_module("sklearn.datasets")
    except ImportError as error:
        raise DataError(f"{entry.name} come with scikit-learn: install it with `pip install 'hush[train]'`.") from error
    images, labels = (array.astype(np.uint8) for array in datasets.load_digits(return_X_y=True))
    if hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != _SHA256:
        raise DataError("the digits of this scikit-learn are not the known ones: install scikit-learn anew.")
    # RandomState, because NumPy promises never to change its streams.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(images))
    train, test = np.sort(order[: entry.train]), np.sort(order[entry.train :])
    return Raw(images[train], labels[train], images[test], labels[test])
