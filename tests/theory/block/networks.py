"""Real random networks of residual blocks in NumPy, with every matrix drawn: the oracle of the block theory.

Written without the theory's own helpers: the gradient goes back through the explicit matrices.
"""

import numpy as np

from hush.theory import FeedForward, Residual


def normalise(norm, x):
    if norm is None:
        return x, 1.0
    centred = x - x.mean() if norm == "layer" else x
    scale = np.sqrt((centred**2).mean())
    return centred / scale, scale


def jacobian_of_norm(norm, x):
    n = x.size
    if norm is None:
        return np.eye(n)
    centre = np.eye(n) - np.full((n, n), 1.0 / n) if norm == "layer" else np.eye(n)
    y, scale = normalise(norm, x)
    return (np.eye(n) - np.outer(y, y) / n) @ centre / scale


def step(block, x, others, rng):
    """(x after a drawn block, the same of the other inputs, its Jacobian, the pre-activation)."""
    width, beta = x.size, block.branch_scale
    front, behind = (block.norm, None) if block.reads_norm else (None, block.norm)
    read = normalise(front, x)[0]
    if isinstance(block, Residual):
        gamma = block.norm_weight
        w = block.sigma_w / np.sqrt(width) * rng.standard_normal((width, width))
        b = block.sigma_b * rng.standard_normal(width)
        h, inner = gamma * read, w * block.phi.derivative(gamma * read) * gamma

        def branch(z):
            return w @ block.phi(gamma * z) + b

    else:
        assert isinstance(block, FeedForward)
        hidden = round(block.expansion * width)
        first = block.sigma_1 / np.sqrt(width) * rng.standard_normal((hidden, width))
        second = block.sigma_2 / np.sqrt(hidden) * rng.standard_normal((width, hidden))
        b_1, b_2 = block.sigma_b1 * rng.standard_normal(hidden), block.sigma_b2 * rng.standard_normal(width)
        up = None
        if block.sigma_up is not None:
            up = block.sigma_up / np.sqrt(width) * rng.standard_normal((hidden, width))
        h = first @ read + b_1
        inner = (second * block.phi.derivative(h)) @ first
        if up is not None:
            linear = up @ read
            inner = (second * (block.phi.derivative(h) * linear)) @ first + (second * block.phi(h)) @ up

        def branch(z):
            active = block.phi(first @ z + b_1)
            return second @ (active if up is None else active * (up @ z)) + b_2

    total = x + beta * branch(read)
    after = normalise(behind, total)[0]
    jacobian = np.eye(width) + beta * inner @ jacobian_of_norm(front, x)
    if behind is not None:
        jacobian = jacobian_of_norm(behind, total) @ jacobian
    others = [normalise(behind, y + beta * branch(normalise(front, y)[0]))[0] for y in others]
    return after, others, jacobian, h
