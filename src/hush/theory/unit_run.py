"""Networks with all N units, but without their matrices: of one-matrix residual blocks, and plain chains.

In x ← x + β(Wφ(n(x)) + b) the units that φ reads are those of the stream, so its averages are remembered from block to
block and p alone is no Markov chain (`block.residual`). All N units together are one, and cost N numbers a block
instead of N²: given x the branch's outputs f = Wφ + b are i.i.d. N(0, v̂), and given f the matrix is what it was but
along φ, so that

    Wᵀδ = (σ_w²/N) φ (f·δ)/v̂ + σ_w |δ|/√N (g − (1 − √(σ_b²/v̂)) φ (φ·g)/|φ|²),    g ~ N(0, I),

exactly, for any δ that comes from behind the block. What runs here is distributed as the network itself.

In a chain h ← f + b with f = Wφ(h) the bias is known apart from f, so that with v̂ = σ_w²|φ|²/N the same holds without
σ_b: Wᵀδ = φ (f·δ)/|φ|² + σ_w |δ|/√N (g − φ (φ·g)/|φ|²).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hush.theory._arrays import Array
from hush.theory.block.chain import Chain
from hush.theory.block.norm import backward_through, hold, normalise
from hush.theory.block.relative_layer import backward_on_units, on_units
from hush.theory.block.residual import Residual

__all__ = ["run_chain_units", "run_units", "unit_samples"]

# So many (unit, block) pairs in all, about a second of work, and so many in memory at a time.
_BUDGET, _AT_A_TIME = 6e6, 4e6
_FEWEST = 200


def unit_samples(width: int, depth: int, samples: int) -> int:
    """How many of `samples` networks of this size are run."""
    return int(min(samples, max(_FEWEST, _BUDGET / (width * depth))))


def run_units(
    block: Residual, width: int, depth: int, starts: Array, seed: int, *, backward: bool = True
) -> tuple[Array, Array]:
    """(|x|²/N entering blocks 1 … depth, log10 gain from the last of them to 1 … depth − 1), from p_1 = `starts`; not
    `backward`, which takes a third of the time, the gains are empty."""
    return _in_parts(lambda some, rng: _run(block, width, depth, some, rng, backward), width, depth, starts, seed)


def run_chain_units(block: Chain, width: int, depth: int, starts: Array, seed: int) -> tuple[Array, Array]:
    """(k at layers 1 … depth, log10 gain from the last of them to 1 … depth − 1) of chains, from k_1 = `starts`."""
    return _in_parts(lambda some, rng: _run_chain(block, width, depth, some, rng), width, depth, starts, seed)


def _in_parts(
    run: Callable[[Array, np.random.Generator], tuple[Array, Array]], width: int, depth: int, starts: Array, seed: int
) -> tuple[Array, Array]:
    """What `run` gives for all starts, some at a time."""
    at_a_time = max(1, int(_AT_A_TIME / (width * depth)))
    rng = np.random.default_rng((seed, 3))
    parts = [run(starts[i : i + at_a_time], rng) for i in range(0, starts.size, at_a_time)]
    return np.concatenate([p for p, _ in parts], axis=1), np.concatenate([gain for _, gain in parts], axis=1)


def _run_chain(block: Chain, width: int, depth: int, starts: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    count, phi = starts.size, block.phi
    k, gains = np.empty((depth, count)), np.empty((depth - 1, count))
    kept: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    k[0] = starts
    h = np.sqrt(starts)[:, None] * rng.standard_normal((count, width))
    for layer in range(1, depth):
        v = block.sigma_w**2 * np.mean(np.square(on_units(phi, h)), axis=1, keepdims=True)
        f = np.sqrt(v) * rng.standard_normal((count, width))
        kept.append((h.astype(np.float32), f.astype(np.float32)))
        k[layer] = v[:, 0] + block.sigma_b**2
        h = hold(f + block.sigma_b * rng.standard_normal((count, width)))
    delta = backward_on_units(phi, h, rng.standard_normal((count, width)))
    delta /= np.sqrt(np.maximum(np.sum(delta * delta, axis=1, keepdims=True), 1e-300))
    total = np.zeros(count)
    for layer in range(depth - 2, -1, -1):
        h, f = (part.astype(np.float64) for part in kept[layer])
        active, g = on_units(phi, h), rng.standard_normal((count, width))
        square = np.sum(active * active, axis=1, keepdims=True)
        direction = active / np.where(square > 0.0, square, 1.0)
        along = np.sum(f * delta, axis=1, keepdims=True)
        size = block.sigma_w * np.sqrt(np.sum(delta * delta, axis=1, keepdims=True) / width)
        back = size * g + direction * (along - size * np.sum(active * g, axis=1, keepdims=True))
        delta = backward_on_units(phi, h, back)
        # Of length 1 again before every layer, so that nothing overflows however much it grows.
        length = np.maximum(np.sum(delta * delta, axis=1), 1e-300)
        delta /= np.sqrt(length)[:, None]
        total += np.log10(length)
        gains[layer] = total
    return k, gains


def _run(
    block: Residual, width: int, depth: int, starts: Array, rng: np.random.Generator, backward: bool
) -> tuple[Array, Array]:
    count, beta, weight = starts.size, block.branch_scale, block.norm_weight
    front, behind = (block.norm, None) if block.reads_norm else (None, block.norm)
    x = np.sqrt(starts)[:, None] * rng.standard_normal((count, width))
    p, gains = np.empty((depth, count)), np.empty((depth - 1, count))
    kept: list[tuple[NDArray[np.float32], Array, NDArray[np.float32], Array, Array]] = []
    for layer in range(depth):
        p[layer] = np.mean(x * x, axis=1)
        if layer == depth - 1:
            break
        read, scale = normalise(front, x)
        active = on_units(block.phi, weight * read)
        v = block.sigma_w**2 * np.mean(active * active, axis=1, keepdims=True) + block.sigma_b**2
        f = np.sqrt(v) * rng.standard_normal((count, width))
        x, behind_scale = normalise(behind, hold(x + beta * f))
        if backward:
            kept.append((read.astype(np.float32), scale, f.astype(np.float32), behind_scale, v))
    if not backward:
        return p, np.empty((0, count))
    delta = rng.standard_normal((count, width))
    delta /= np.sqrt(np.sum(delta * delta, axis=1, keepdims=True))
    total = np.zeros(count)
    for layer in range(depth - 2, -1, -1):
        read32, scale, f32, behind_scale, v = kept[layer]
        read, f = read32.astype(np.float64), f32.astype(np.float64)
        if behind is not None:
            delta = backward_through(behind, x, behind_scale, delta)
            x = read  # with the norm behind, what the block reads is what the one before it normalised
        h = weight * read
        back = _transposed(block, on_units(block.phi, h), f, v, delta, rng)
        through = backward_through(front, read, scale, weight * backward_on_units(block.phi, h, back))
        delta = delta + beta * through
        # Of length 1 again before every block, so that nothing overflows however much it grows.
        square = np.maximum(np.sum(delta * delta, axis=1), 1e-300)
        delta /= np.sqrt(square)[:, None]
        total += np.log10(square)
        gains[layer] = total
    return p, gains


def _transposed(block: Residual, active: Array, f: Array, v: Array, delta: Array, rng: np.random.Generator) -> Array:
    """Wᵀδ, W drawn given that Wφ + b = f; see the module's docstring."""
    width = f.shape[1]
    safe = np.where(v > 0.0, v, 1.0)
    known = block.sigma_w**2 / width * np.sum(f * delta, axis=1, keepdims=True) / safe
    g = rng.standard_normal(f.shape)
    square = np.sum(active * active, axis=1, keepdims=True)
    share = (1.0 - block.sigma_b / np.sqrt(safe)) * np.sum(active * g, axis=1, keepdims=True)
    share = share / np.where(square > 0.0, square, 1.0)
    length = np.sqrt(np.sum(delta * delta, axis=1, keepdims=True) / width)
    return np.asarray(active * (known - block.sigma_w * length * share) + block.sigma_w * length * g)
