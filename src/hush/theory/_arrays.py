"""float64 arrays, and functions that return a float for a float and an array for an array."""

from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Mask", "Value", "as_array", "in_form_of", "offender"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# A function of a Value returns what it was given: a float for a float, an array for an array of the same shape. Lists
# are taken too and come back as arrays, which no type can say in one line.
Value = TypeVar("Value", float, Array)


def as_array(value: float | Array) -> Array:
    """`value` as a float64 array."""
    return np.asarray(value, dtype=np.float64)


def in_form_of(value: Value, result: Array) -> Value:
    """`result` as a Python float where `value` is a number, and as it is where it is an array."""
    return cast(Value, float(result) if np.ndim(value) == 0 else result)


def offender(values: Array, good: Mask) -> float:
    """The first of `values` that is not good, for a message."""
    return float(np.asarray(values)[~np.asarray(good)].flat[0])
