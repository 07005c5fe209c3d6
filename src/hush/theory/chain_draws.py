"""The random numbers behind the chains: the same for every activation, so that two designs differ by their design
alone.

All are standard normal and single precision, as the chains are. The numbers of a seed are one stream that is drawn once
and kept, so that asking for one layer more costs one layer.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Mask
from hush.theory.input_norms import InputNorms

__all__ = ["REACH", "Draws", "Single", "draw", "sampling_noise"]

Single = NDArray[np.float32]

# Inputs beyond this factor of their mean square on either side count as being there.
REACH = 1e8
# Of a longer stream only so much is kept once it has been used: 40 MB.
_KEPT = 10_000_000
# So many numbers are drawn in double precision at a time.
_BLOCK = 1_000_000


@dataclass(frozen=True)
class Draws:
    """What is random about the chains, one column each.

    Attributes:
        inputs: k_1 in units of q_start.
        forward, backward: the noise of k at each layer, and that of the gain.
        smallest, largest: of the inputs of all chains, also where only some are kept.
    """

    inputs: Single
    forward: Single
    backward: Single
    smallest: np.float32
    largest: np.float32

    def only(self, chosen: Mask) -> "Draws":
        """Some of the chains; they run as they would among all."""
        # Not [:, chosen], which lays the layers out across memory.
        forward, backward = (noise.compress(chosen, axis=1) for noise in (self.forward, self.backward))
        return replace(self, inputs=self.inputs[chosen], forward=forward, backward=backward)


def draw(depth: int, samples: int, seed: int, norms: InputNorms) -> Draws:
    """The draws of `samples` chains of `depth` layers."""
    scores = np.random.default_rng(seed).standard_normal(samples)
    inputs = np.clip(norms.at(scores), 1.0 / REACH, REACH).astype(np.float32)
    # The stream begins with those same scores, which the inputs have used; the noise of the layers is what follows
    # them.
    noise = _stream((seed,), "float64").first((2 * depth - 1) * samples)[samples:]
    forward, backward = noise.reshape(2, depth - 1, samples)
    return Draws(inputs, forward, backward, inputs.min(), inputs.max())


def sampling_noise(width: int, depth: int, samples: int, seed: int) -> Single:
    """Draws of χ²_N/N of shape (depth, samples), by the Wilson–Hilferty cube."""
    spread = 2.0 / (9.0 * width)
    normals = _stream((seed, 1), "float32").first(depth * samples).reshape(depth, samples)
    root = normals * np.float32(np.sqrt(spread))
    root += np.float32(1.0 - spread)
    np.maximum(root, np.float32(0.0), out=root)
    root *= root * root
    return root


class _Stream:
    """The normal draws of one generator, in single precision.

    Arguments:
        seed: of the generator.
        dtype: the precision they are drawn in, which is part of which numbers they are.
    """

    def __init__(self, seed: tuple[int, ...], dtype: str) -> None:
        self._seed, self._dtype = seed, np.dtype(dtype)
        self._generator = np.random.default_rng(seed)
        self._drawn: Single = np.empty(0, np.float32)
        self._lock = Lock()

    def first(self, count: int) -> Single:
        """The first `count` numbers, read-only."""
        with self._lock:
            if count > self._drawn.size:
                longer = np.empty(count, np.float32)
                longer[: self._drawn.size] = self._drawn
                for start in range(self._drawn.size, count, _BLOCK):
                    size = min(_BLOCK, count - start)
                    longer[start : start + size] = self._normals(size)
                longer.flags.writeable = False
                if count > _KEPT:
                    # Too much to keep: the next caller draws again, from the beginning.
                    self._generator, self._drawn = np.random.default_rng(self._seed), np.empty(0, np.float32)
                    return longer
                self._drawn = longer
            return self._drawn[:count]

    def _normals(self, size: int) -> NDArray[np.floating]:
        if self._dtype == np.float32:
            return self._generator.standard_normal(size, np.float32)
        return self._generator.standard_normal(size)


@lru_cache(maxsize=2)
def _stream(seed: tuple[int, ...], dtype: str) -> _Stream:
    return _Stream(seed, dtype)
