"""The pickled batches of CIFAR-10, read by an unpickler that can build arrays and nothing else.

A pickle is a program. These are opened only after their checksum holds; the restriction is the second lock on the door.
"""

import io
import pickle
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hush.data.errors import DataError

__all__ = ["Batch", "read_cifar"]

# Private to NumPy, and its module has moved between versions: an array says itself how it is rebuilt.
_reconstruct: Any = np.empty(0).__reduce__()[0]
# What an array needs to come back. The batches were written by a NumPy whose core had another name.
_ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    }
)


class Batch(NamedTuple):
    """Images (N, C·H·W) and labels (N,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _ForbiddenError(f"{module}.{name}") from None


class _ForbiddenError(pickle.UnpicklingError):
    pass


def read_cifar(content: bytes | bytearray, pixels: int, name: str) -> Batch:
    """The images and labels of one batch, whose checksum the caller has verified.

    Raises:
        DataError: if the pickle asks for anything but arrays, or is not a batch.
    """
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenError as error:
        raise DataError(f"{name} asks for {error}, which a CIFAR batch never does; it was not run.") from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"{name} is not a readable pickle ({type(error).__name__}: {error}).") from error
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        raise DataError(f"{name} is not a CIFAR batch: it has no data and labels.")
    images, labels = batch[b"data"], batch[b"labels"]
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (pixels,):
        raise DataError(f"{name} is not a CIFAR batch: its data are not rows of {pixels} bytes.")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise DataError(f"{name} is not a CIFAR batch: its labels are not small whole numbers.")
    if len(images) != len(labels):
        raise DataError(f"{name} does not fit together: {len(images)} images and {len(labels)} labels.")
    return Batch(images, np.array(labels, np.uint8))
