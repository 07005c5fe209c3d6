"""Random activations over wide ranges, for the accuracy tests."""

import numpy as np

from hush.theory import (
    PiecewiseLinear,
    crelu,
    cst,
    fatrelu,
    hardtanh,
    identity,
    leaky_relu,
    relu,
    shifted_relu,
    soft_threshold,
)

NAMED = [
    relu(),
    shifted_relu(0.0),
    shifted_relu(1.0),
    soft_threshold(0.7),
    crelu(0.0, 1.0),
    crelu(1.0, 0.8),
    cst(0.0, 1.0),
    cst(1.4, 1.5),
    fatrelu(0.5),
    identity(),
    leaky_relu(0.1),
    hardtanh(1.0),
    PiecewiseLinear((-2.0, -0.5, 1.0), (1.0, -0.5, 2.0, 0.0), (1.5, -1.5, -0.25, 1.75), "zigzag"),
]
IDS = [f"{phi.name}{phi.kinks}" for phi in NAMED]


def random_activation(rng: np.random.Generator, smallest_clip: float) -> PiecewiseLinear:
    """One of the families, with τ from 0 to 40 and m from `smallest_clip` to 1e3, in units of a random scale."""
    scale = 10.0 ** rng.uniform(-3, 3)
    tau = scale * rng.choice([0.0, rng.uniform(0, 3), rng.uniform(0, 40), 10.0 ** rng.uniform(-6, 1)])
    # The top kink is τ + m as rounded; take the m that it stands for.
    clip = float(tau + scale * 10.0 ** rng.uniform(np.log10(smallest_clip), 3)) - float(tau)
    makers = [
        lambda: shifted_relu(tau),
        lambda: soft_threshold(tau),
        lambda: crelu(tau, clip),
        lambda: cst(tau, clip),
        lambda: fatrelu(tau),
        lambda: hardtanh(clip),
        lambda: leaky_relu(rng.uniform(-0.5, 1.5)),
        lambda: crelu(tau, clip),
        lambda: cst(tau, clip),
        lambda: _random_continuous(rng),
    ]
    return makers[rng.integers(len(makers))]()


def _random_continuous(rng: np.random.Generator) -> PiecewiseLinear:
    """Up to four kinks on a dyadic grid, so that the offsets are exact and φ is continuous to the last bit."""
    kinks = np.unique(np.round(rng.normal(size=rng.integers(1, 5)) * 128.0) / 64.0)
    slopes = [float(rng.integers(-2, 3))]
    while len(slopes) < len(kinks) + 1:
        slope = float(rng.integers(-2, 3))
        if slope != slopes[-1]:
            slopes.append(slope)
    offsets = [float(np.round(rng.normal() * 64.0) / 64.0)]
    for kink, left, right in zip(kinks, slopes, slopes[1:], strict=False):
        offsets.append(offsets[-1] + (left - right) * kink)
    return PiecewiseLinear(tuple(kinks), tuple(slopes), tuple(offsets), "random")


def random_variances(rng: np.random.Generator, phi: PiecewiseLinear, size: int) -> np.ndarray:
    """Mostly where the largest kink is 0.01 to 40 standard deviations out, now and then far beyond."""
    reach = max((abs(kink) for kink in phi.kinks), default=0.0) or 1.0
    typical = (reach / 10.0 ** rng.uniform(-2, np.log10(40.0), size)) ** 2
    extreme = reach**2 * 10.0 ** rng.uniform(-3.2, 12, size)
    return np.where(rng.random(size) < 0.8, typical, extreme)
