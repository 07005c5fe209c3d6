"""The IDX format of MNIST and Fashion-MNIST.

0, 0, type, n      type 8: unsigned bytes; n: the number of axes
n × uint32         the length of each axis, big-endian
the values         last axis fastest
"""

import math
import struct

import numpy as np
from numpy.typing import NDArray

from hush.data.errors import DataError

__all__ = ["read_idx"]

_UNSIGNED_BYTES = 8


def read_idx(content: bytes | bytearray, axes: int, name: str) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes: a view of `content`, not a copy.

    Arguments:
        axes: how many axes it must have: 3 for images, 1 for labels.
        name: what the file is called in a complaint.

    Raises:
        DataError: if the magic number or the length is wrong.
    """
    magic = bytes(content[:4])
    expected = bytes([0, 0, _UNSIGNED_BYTES, axes])
    if magic != expected:
        raise DataError(f"{name} has the magic number 0x{magic.hex()}, an IDX file of its kind 0x{expected.hex()}.")
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{name} ends inside its IDX header.")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(f"{name} promises {math.prod(shape)} values in its IDX header and has {len(content) - start}.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
