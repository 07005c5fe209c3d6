"""Thresholds in units of a layer's own size at finite width: against drawn layers, and real networks with matrices."""

import math

import numpy as np
import pytest

import hush
from hush.theory import (
    IMAGE_NORMS,
    Chain,
    FeedForward,
    Relative,
    Residual,
    bands,
    crelu,
    cst,
    dead_units,
    finite_width,
    leaky_relu,
    relu,
    shifted_relu,
)
from hush.theory.block.relative_layer import backward_on_units, on_units
from hush.theory.unit_run import run_units

P = np.array([0.5, 1.0, 3.0])
BLOCKS = {
    "chain": lambda phi: Chain(phi, 1.2, 0.3).noise(100, P),
    "feedforward": lambda phi: FeedForward(phi, 1.2, 0.3, 1.1, 0.2).branch_noise(100, P),
    "gated": lambda phi: FeedForward(phi, 1.2, 0.3, 1.1, 0.2, sigma_up=0.9).branch_noise(100, P),
    "residual": lambda phi: Residual(phi, 1.2, 0.3).branch_noise(100, P),
}


@pytest.mark.parametrize("psi", [relu(), leaky_relu(0.3)], ids=["relu", "leaky"])
@pytest.mark.parametrize("name", BLOCKS)
def test_of_a_homogeneous_function_nothing_is_relative(name: str, psi) -> None:
    # s ψ(h/s) = ψ(h): every figure of the noise must be that of ψ itself.
    relative, plain = BLOCKS[name](Relative(psi)), BLOCKS[name](psi)
    for field in vars(plain):
        np.testing.assert_allclose(getattr(relative, field), getattr(plain, field), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("through_scale", [True, False])
@pytest.mark.parametrize("psi", [crelu(1.0364, 1.0), cst(1.44, 1.0)], ids=lambda psi: psi.name)
def test_noise_against_drawn_layers(psi, through_scale: bool) -> None:
    phi, width, k, layers = Relative(psi, through_scale), 64, 1.7, 40_000
    rng = np.random.default_rng(0)
    h = math.sqrt(k) * rng.standard_normal((layers, width))
    # By hand, with the Jacobian as it is written in the docstring, one sample through its explicit matrix.
    s = np.sqrt((h**2).mean(1, keepdims=True))
    square = ((s * psi(h / s)) ** 2).mean(1)
    g = rng.standard_normal(h.shape)
    gain = (backward_on_units(phi, h, g) ** 2).mean(1)
    noise = Chain(phi, 1.0, 0.0).noise(width, np.array([k]))
    assert abs(noise.mean[0] - square.mean()) < 5 * square.std() / math.sqrt(layers)
    assert noise.deviation[0] == pytest.approx(square.std(), rel=0.03)
    assert noise.skewness[0] == pytest.approx(((square - square.mean()) ** 3).mean() / square.std() ** 3, abs=0.1)
    assert noise.gain_variance[0] == pytest.approx(gain.var() / gain.mean() ** 2, rel=0.06)
    assert noise.shared[0] == pytest.approx(np.corrcoef(square, gain)[0, 1], abs=0.03)


def test_the_backward_is_the_derivative_of_the_forward() -> None:
    rng = np.random.default_rng(1)
    h, g = rng.standard_normal((2, 1, 9))
    phi = Relative(crelu(0.4, 0.8))
    step = 1e-6 * np.eye(9)
    numbers = [(on_units(phi, h + e) - on_units(phi, h - e)) @ g[0] / 2e-6 for e in step]
    np.testing.assert_allclose(backward_on_units(phi, h, g)[0], np.ravel(numbers), atol=1e-8)
    assert not on_units(phi, np.zeros((1, 4))).any()


def _chains(block: Chain, width: int, depth: int, count: int):
    """(q, log10 gain, share of zeros) of real chains, every matrix drawn, an input each; (layers, chains)."""
    rng, found = np.random.default_rng(0), []
    for k in IMAGE_NORMS.at(rng.standard_normal(count)):
        h, kept = math.sqrt(k) * rng.standard_normal((1, width)), []
        for layer in range(depth):
            weight = rng.standard_normal((width, width)) * block.sigma_w / math.sqrt(width) if layer else None
            if weight is not None:
                h = on_units(block.phi, h) @ weight.T + block.sigma_b * rng.standard_normal(width)
            kept.append((h, weight))
        delta = backward_on_units(block.phi, h, rng.standard_normal((1, width)))
        squares = [(delta**2).sum()]
        for (before, _), (_, weight) in zip(kept[-2::-1], kept[:0:-1], strict=True):
            delta = backward_on_units(block.phi, before, delta @ weight)
            squares.append((delta**2).sum())
        q = [(layer**2).mean() for layer, _ in kept]
        zeros = [(on_units(block.phi, layer) == 0).mean() for layer, _ in kept]
        found.append((q, np.log10(np.array(squares[::-1]) / squares[0]), zeros))
    return np.moveaxis(np.array(found), 0, 2)


@pytest.mark.parametrize(
    ("name", "through_scale"), [("relative_relu", True), ("relative_relu", False), ("relative_crelu", True)]
)
def test_real_chains_stay_in_their_bands(name: str, through_scale: bool) -> None:
    width, depth, count = 64, 16, 150
    block = hush.design(name, 0.85, width=width, depth=depth, through_scale=through_scale).chain()
    q, gain, zeros = _chains(block, width, depth, count)
    expected = bands(block, width=width, depth=depth, q_start=1.0, norms=IMAGE_NORMS)
    for values, band in ((q, expected.q), (gain, expected.gain_log10), (zeros, expected.sparsity)):
        low, high = np.array(band.low)[:, None] - 1e-12, np.array(band.high)[:, None] + 1e-12
        # 99 % of those that neither explode nor vanish: of 150, at least 144 with a chance of 0.999.
        assert ((values >= low) & (values <= high)).all(0).mean() >= 0.96
    # And they are no wider than they must be: the quantiles of the gain hold too.
    wide = finite_width(block, width=width, depth=depth, q_start=1.0)
    for level in (0.1, 0.5, 0.9):
        below = (gain[0] < wide.gain_quantiles[level][0]).mean()
        assert below == pytest.approx(level, abs=4.0 * math.sqrt(level * (1 - level) / count))


def test_the_noise_of_q_does_not_reach_the_zeros() -> None:
    norms = IMAGE_NORMS
    fixed = hush.design("crelu", 0.85, clip=1.0)
    relative = hush.design("relative_crelu", 0.85)
    size = {"width": 50, "depth": 20, "q_start": 1.0, "norms": norms}
    wide, narrow = bands(fixed.chain(), **size).sparsity, bands(relative.chain(), **size).sparsity
    assert narrow.low[9] > wide.low[9] + 0.04
    assert {round(value, 2) for value in narrow.median} == {0.85}


def test_behind_a_norm_a_residual_block_does_not_see_the_difference() -> None:
    # There |x|² = N, so s = 1; and what the derivative of s adds lies along x, which the norm takes out.
    starts = np.full(20, 1.3)
    runs = [
        run_units(Residual(phi, 2.0, 0.0, "rms", 0.4), 40, 8, starts, seed=0)
        for phi in (crelu(1.0, 1.0), Relative(crelu(1.0, 1.0)), Relative(crelu(1.0, 1.0), through_scale=False))
    ]
    for run in runs[1:]:
        np.testing.assert_allclose(run[0], runs[0][0], rtol=1e-5)
        np.testing.assert_allclose(run[1], runs[0][1], atol=1e-5)


def test_dead_units_do_not_know_the_size() -> None:
    phi = Relative(shifted_relu(1.0))
    q, rho = np.array([0.1, 1.0, 9.0]), np.full(3, 0.6)
    assert dead_units(phi, q, rho, 20) == pytest.approx(dead_units(shifted_relu(1.0), np.ones(3), rho, 20))
