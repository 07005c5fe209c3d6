"""Blocks on a residual stream: maps against quadrature and differences, noise against drawn blocks, whole networks."""

import math

import mpmath
import numpy as np
import pytest

from hush.theory import (
    IMAGE_NORMS,
    FeedForward,
    Residual,
    bands,
    correlation_band,
    correlation_fixed_points,
    crelu,
    cst,
    finite_width,
    gelu,
    phase,
    shifted_relu,
    variance_fixed_points,
)
from hush.theory.input_norms import InputNorms

from ..oracles import quadrature
from .networks import step

PHI = crelu(0.9, 1.1)
BLOCKS = {
    "residual": Residual(PHI, 2.1, 0.3, None, 0.4),
    "residual rms": Residual(PHI, 2.1, 0.3, "rms", 0.4),
    "residual layer": Residual(cst(0.9, 1.0), 2.1, 0.0, "layer", 0.4),
    "residual weighted": Residual(crelu(1.8, 2.2), 1.05, 0.3, "rms", 0.4, norm_weight=2.0),
    "residual behind": Residual(PHI, 2.1, 0.3, "rms", 0.4, post_norm=True),
    "feedforward": FeedForward(PHI, 1.2, 0.2, 1.9, 0.3, None, 0.4, 1.5),
    "feedforward rms": FeedForward(PHI, 1.2, 0.2, 1.9, 0.3, "rms", 0.4, 1.5),
    "gated": FeedForward(PHI, 1.2, 0.2, 1.9, 0.3, None, 0.4, 1.5, 0.8),
    "gated layer": FeedForward(shifted_relu(0.7), 1.2, 0.0, 1.9, 0.0, "layer", 0.4, 1.5, 0.8),
    "gated behind": FeedForward(PHI, 1.2, 0.2, 1.9, 0.3, "layer", 0.4, 1.5, 0.8, post_norm=True),
}
ALL = pytest.mark.parametrize("name", BLOCKS)
ONE_NORM = InputNorms((0.5,), (1.0,))


@ALL
def test_variance_and_gain_are_the_defining_integrals(name: str) -> None:
    block, p = BLOCKS[name], 1.7
    read = 1.0 if block.norm and not block.post_norm else p
    over = p if block.norm and not block.post_norm else 1.0
    phi = block.phi
    if isinstance(block, Residual):
        weight2 = block.norm_weight**2
        q = read * weight2
        back = weight2 * block.sigma_w**2 * quadrature(lambda x: phi.derivative(x) ** 2, phi, q)
        v = block.sigma_w**2 * quadrature(lambda x: phi(x) ** 2, phi, q) + block.sigma_b**2
    else:
        q = block.sigma_1**2 * read + block.sigma_b1**2
        u = 1.0 if block.sigma_up is None else block.sigma_up**2 * read
        square, slope = (quadrature(f, phi, q) for f in (lambda x: phi(x) ** 2, lambda x: phi.derivative(x) ** 2))
        v = block.sigma_2**2 * u * square + block.sigma_b2**2
        back = block.sigma_2**2 * (block.sigma_1**2 * u * slope + (block.sigma_up or 0.0) ** 2 * square)
    total = p + 0.16 * v
    assert block.preactivation_variance(p) == pytest.approx(q, rel=1e-12)
    assert block.sparsity(p) == pytest.approx(phi.sparsity(q), rel=1e-12)
    assert block.saturation(p) == pytest.approx(phi.saturation(q), rel=1e-12)
    assert block.variance(p) == pytest.approx(1.0 if block.post_norm else total, rel=1e-10)
    expected = (1.0 + 0.16 * back / over) / (total if block.post_norm else 1.0)
    assert block.gain(p) == pytest.approx(expected, rel=1e-10)


@ALL
def test_slopes_are_derivatives(name: str) -> None:
    block = BLOCKS[name]
    with mpmath.workdps(15):
        slope = float(mpmath.diff(lambda p: block.variance(float(p)), 1.7, h=1e-3))
        curvature = float(mpmath.diff(lambda p: block.variance_slope(float(p)), 1.7, h=1e-3))
        in_rho = float(mpmath.diff(lambda rho: block.covariance(float(rho), 1.7, 0.8), 0.35, h=1e-3))
    assert block.variance_slope(1.7) == pytest.approx(slope, abs=2e-4)
    assert block.variance_curvature(1.7) == pytest.approx(curvature, abs=2e-4)
    assert block.covariance_slope(0.35, 1.7, 0.8) == pytest.approx(in_rho, abs=2e-4)
    assert block.variance_slope(1.7) != pytest.approx(slope + 0.01, abs=2e-4)


@ALL
def test_covariance_against_drawn_pairs(name: str) -> None:
    block, rng = BLOCKS[name], np.random.default_rng(0)
    assert block.covariance(1.0, 1.7, 1.7) == pytest.approx(block.variance(1.7), rel=1e-9)
    z_a, z_b = rng.standard_normal((2, 4, 60_000))
    x_a, x_b = math.sqrt(1.7) * z_a, math.sqrt(0.8) * (0.4 * z_a + math.sqrt(0.84) * z_b)
    y_a, y_b = block.next_pair(x_a, x_b, rng)
    assert np.mean(y_a * y_b) == pytest.approx(block.covariance(0.4, 1.7, 0.8), abs=0.015)
    assert np.mean(y_a**2) == pytest.approx(block.variance(1.7), rel=0.01)
    many = block.covariance(np.array([0.1, 0.4]), np.array([1.7, 1.7]), np.array([0.8, 0.8]))
    assert many[1] == pytest.approx(block.covariance(0.4, 1.7, 0.8), rel=1e-12)


@pytest.mark.parametrize(
    "name", ["feedforward", "feedforward rms", "gated", "gated layer", "residual rms", "residual weighted"]
)
def test_noise_of_a_block_against_real_ones(name: str) -> None:
    block, width, p, count = BLOCKS[name], 30, 1.3, 1200
    rng = np.random.default_rng(3)
    after, gains = np.empty(count), np.empty(count)
    for i in range(count):
        x = rng.standard_normal(width)
        x *= math.sqrt(p / np.mean(x**2))
        y, _, jacobian, _ = step(block, x, [], rng)
        delta = rng.standard_normal(width)
        after[i] = np.mean(y**2)
        gains[i] = np.sum((jacobian.T @ delta) ** 2) / np.sum(delta**2)
    noise = block.noise(width, np.array([p]))
    assert noise.mean[0] == pytest.approx(after.mean(), abs=5 * after.std() / math.sqrt(count))
    assert noise.deviation[0] == pytest.approx(after.std(), rel=0.08)
    assert 10.0 ** noise.gain_log10[0] == pytest.approx(gains.mean(), abs=4 * gains.std() / math.sqrt(count))
    assert noise.gain_variance[0] == pytest.approx(gains.var() / gains.mean() ** 2, rel=0.2)
    assert noise.shared[0] == pytest.approx(np.corrcoef(after, gains)[0, 1], abs=0.1)


@pytest.mark.parametrize("name", ["feedforward", "gated layer"])
def test_skewness_of_a_block_against_many_draws(name: str) -> None:
    # A third moment needs more blocks than can be drawn with their matrices; given v̂, |x + βf|² is a draw of two.
    block, width, p, count = BLOCKS[name], 30, 1.3, 100_000
    rng, hidden = np.random.default_rng(4), 45
    q = block.preactivation_variance(p)
    active = block.phi(math.sqrt(q) * rng.standard_normal((count, hidden)))
    if block.sigma_up is not None:
        active *= math.sqrt(block.up_variance(p)) * rng.standard_normal((count, hidden))
    v = block.sigma_2**2 * np.mean(active**2, axis=1) + block.sigma_b2**2
    along, across = rng.standard_normal(count), rng.chisquare(width - 1, count)
    after = p + 0.8 * np.sqrt(p * v / width) * along + 0.16 * v * (along**2 + across) / width
    noise = block.noise(width, np.array([p]))
    third = np.mean(((after - after.mean()) / after.std()) ** 3)
    assert noise.skewness[0] == pytest.approx(third, abs=0.12)
    assert noise.deviation[0] == pytest.approx(after.std(), rel=0.01)


@ALL
def test_whole_networks(name: str) -> None:
    # 120 networks of 10 blocks, 32 wide: quantiles of stream and gain, and the mean correlation of a pair.
    block, width, depth, count = BLOCKS[name], 32, 10, 120
    rng = np.random.default_rng(5)
    ends, gains, cosines = np.empty(count), np.empty(count), np.empty(count)
    for i in range(count):
        x, z = rng.standard_normal((2, width))
        other, total = 0.3 * x + math.sqrt(0.91) * z, np.eye(width)
        for _ in range(depth - 1):
            x, (other,), jacobian, _ = step(block, x, [other], rng)
            total = jacobian @ total
        delta = rng.standard_normal(width)
        ends[i], gains[i] = np.mean(x**2), np.log10(np.sum((total.T @ delta) ** 2) / np.sum(delta**2))
        cosines[i] = x @ other / math.sqrt((x @ x) * (other @ other))
    finite = finite_width(block, width=width, depth=depth, norms=ONE_NORM)
    below = [np.mean(gains < finite.gain_log10[level]) for level in (0.1, 0.5, 0.9)]
    assert below == pytest.approx([0.1, 0.5, 0.9], abs=0.15)
    if not block.post_norm:
        below = [np.mean(ends < finite.stream_quantiles[level][-1]) for level in (0.1, 0.5, 0.9)]
        assert below == pytest.approx([0.1, 0.5, 0.9], abs=0.15)
    pair = correlation_band(block, width=width, depth=depth, q_start=1.0, correlations=[0.3])
    assert np.median(cosines) == pytest.approx(pair.median[-1], abs=0.08)
    assert np.mean((cosines > pair.low[-1]) & (cosines < pair.high[-1])) > 0.93


def test_one_matrix_remembers_its_units() -> None:
    # The chain of p alone, which draws the average over the units anew in every block, would be far too narrow.
    block, width, depth = Residual(shifted_relu(1.6448536269514722), 20.0**0.5, 0.0, "rms", 0.1), 64, 101
    spread = finite_width(block, width=width, depth=depth, norms=ONE_NORM, samples=400).gain_log10
    forgetting = FeedForward(block.phi, 1.0, 0.0, block.sigma_w, 0.0, "rms", 0.1, 1.0)
    less = finite_width(forgetting, width=width, depth=depth, norms=ONE_NORM, samples=400).gain_log10
    assert spread[0.9] - spread[0.1] > 1.2 * (less[0.9] - less[0.1])


def test_what_a_stream_has_no_notion_of_is_said() -> None:
    block = BLOCKS["residual rms"]
    assert "only grows" in str(variance_fixed_points(block))
    assert "only grows" in str(phase(block))
    with pytest.raises(ValueError, match="has no fixed point.*correlation_band"):
        correlation_fixed_points(block, 1.0)
    assert variance_fixed_points(Residual(PHI, 2.0, branch_scale=0.0)).continuum
    behind = variance_fixed_points(BLOCKS["gated behind"])
    assert [point.value for point in behind.stable] == [1.0]
    assert correlation_fixed_points(BLOCKS["gated behind"], 1.0)[-1].value == 1.0
    assert phase(BLOCKS["gated behind"]).q_star == 1.0


def test_bands_of_a_stream() -> None:
    block = FeedForward(gelu(), 1.0, 0.0, 1.4, 0.0, "rms", 0.3)
    found = bands(block, width=100, depth=12, q_start=1.0, norms=IMAGE_NORMS, samples=800)
    assert found.stream is not None
    assert found.stream.median[-1] > 1.3 > found.stream.low[-1]
    # q behind a norm does not see the stream: 400 hidden units around 1.
    assert 0.7 < found.q.low[-1] < 1.0 < found.q.high[-1] < 1.4
    exact = bands(Residual(PHI, 2.0, 0.0, "rms", 0.3), width=100, depth=12, q_start=1.0, norms=IMAGE_NORMS, samples=400)
    assert exact.q.high[-1] - exact.q.low[-1] < 1e-3


def test_a_runaway_stream_stays_finite() -> None:
    block = FeedForward(shifted_relu(0.5), 1.0, 0.0, 3.0, 0.0, None, 1.0, 2.0, 1.0)
    assert np.all(np.isfinite(correlation_band(block, width=20, depth=60, q_start=1.0, correlations=[0.3]).median))
    assert finite_width(block, width=20, depth=60).explode > 0.9
    one = finite_width(Residual(gelu(), 2.0), width=20, depth=300, samples=50)
    assert one.explode > 0.9
    assert all(math.isfinite(value) for value in one.stream_quantiles[0.5])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Residual(PHI, -1.0), "sigma_w must be finite"),
        (lambda: Residual(PHI, 1.0, norm="batch"), "norm must be None, 'rms' or 'layer'"),
        (lambda: Residual(PHI, 1.0, branch_scale="1/depth"), "is a number, got '1/depth'"),
        (lambda: Residual(PHI, 1.0, branch_scale=-0.1), "branch_scale must be finite and not negative"),
        (lambda: Residual(PHI, 1.0, post_norm=True), "post_norm needs a norm"),
        (lambda: Residual(PHI, 1.0, positions=0), "positions must be a whole number"),
        (lambda: Residual(PHI, 1.0, norm="rms", norm_weight=0.0), "norm_weight must be positive"),
        (lambda: Residual(PHI, 1.0, norm_weight=2.0), "norm_weight belongs to a norm in front"),
        (lambda: Residual(PHI, 1.0, norm="rms", post_norm=True, norm_weight=2.0), "norm_weight belongs to a norm"),
        (lambda: FeedForward(PHI, 1.0, expansion=0.0), "expansion must be positive"),
        (lambda: FeedForward(PHI, 1.0, sigma_up=-1.0), "must be finite and not negative"),
    ],
)
def test_refusals(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
