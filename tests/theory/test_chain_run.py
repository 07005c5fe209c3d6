"""The chains that run for speed against the same chains written plainly."""

import numpy as np
import pytest

from hush.theory import IMAGE_NORMS, Chain, crelu, cst, shifted_relu
from hush.theory.chain_draws import draw
from hush.theory.chain_run import largest_gains, run_chains


def plainly(block: Chain, width: int, depth: int, q_start: float, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """(k by layer, log10 gain of each layer) in double precision, the noise asked of the block at each k itself."""
    draws = draw(depth, samples, 0, IMAGE_NORMS)
    k = q_start * draws.inputs.astype(np.float64)
    ks, gains = [k], []
    for z, own in zip(draws.forward, draws.backward, strict=True):
        noise = block.noise(width, k)
        skew = noise.deviation * np.minimum(noise.skewness, 3.0) / 6.0
        # Cornish–Fisher to third order.
        following = noise.mean + noise.deviation * z + skew * (z**2 - 1.0)
        # Wilson–Hilferty: the cube of a normal variable is like a gamma variable.
        third = np.sqrt(np.minimum(noise.gain_variance, 4.0)) / 3.0
        root = 1.0 - third**2 + third * (noise.shared * z + np.sqrt(1.0 - noise.shared**2) * own)
        gains.append(noise.gain_log10 + 3.0 * np.log10(np.maximum(root, 0.05)))
        k = np.clip(following, *np.clip(block.reachable(), 1e-8 * q_start, 1e8 * q_start))
        ks.append(k)
    return np.array(ks), np.array(gains)


CASES = [
    Chain(crelu(1.0, 1.2), 2.5, 0.6),
    Chain(cst(1.0, 1.2), 1.8, 0.5),
    Chain(crelu(1.0, 1.2), 2.5, 0.6, positions=49),
    Chain(shifted_relu(0.6), 1.9, 0.4),
]


@pytest.mark.parametrize("block", CASES, ids=lambda block: f"{block.phi.name}-{block.positions}")
def test_they_are_the_plain_chains(block: Chain) -> None:
    width, depth, q_start, samples = 200, 12, 1.3, 400
    k, gains = run_chains(block, width, depth, q_start, IMAGE_NORMS, samples)
    expected_k, each = plainly(block, width, depth, q_start, samples)
    expected = np.cumsum(each[::-1], axis=0)[::-1]
    # What the table's grid of 2.5 % and single precision leave after twelve layers.
    assert np.quantile(abs(np.log(k / expected_k)), 0.99) < 0.05
    assert np.quantile(abs(gains - expected), 0.99) < 0.1
    assert abs(np.median(gains[0]) - np.median(expected[0])) < 0.02


def test_the_largest_gains_are_those_of_the_chains() -> None:
    block, width, depth = CASES[0], 100, 20
    draws = draw(depth, 500, 0, IMAGE_NORMS)
    gains = run_chains(block, width, depth, 1.0, IMAGE_NORMS, 500)[1]
    np.testing.assert_allclose(largest_gains(block, width, draws), gains.max(0), atol=1e-4)
    chosen = gains.max(0) > 0.3
    np.testing.assert_array_equal(
        largest_gains(block, width, draws.only(chosen)), largest_gains(block, width, draws)[chosen]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((100, 10_001, 1.0), "depth must be at most 10000, got 10001"),
        ((10**13, 10, 1.0), "width must be at most 1000000000000, got 10000000000000"),
        ((100, 10, 1e-300), "q_start must lie between 1e-80 and 1e\\+80, got 1e-300"),
        ((100, 10, -1.0), "q_start must be positive and finite, got -1.0"),
    ],
)
def test_sizes_that_cannot_be_run(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_chains(CASES[0], *arguments, IMAGE_NORMS)


@pytest.mark.parametrize(("samples", "message"), [(0, "at least 1, got 0"), (10**8, "take at most 10000000 samples")])
def test_samples_that_cannot_be_run(samples: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_chains(CASES[0], 100, 10, 1.0, IMAGE_NORMS, samples)
