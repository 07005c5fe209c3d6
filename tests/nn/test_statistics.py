"""Real networks at width 300, depth 100 beside the theory: a lean version of benchmarks/initialisation.py."""

import numpy as np
import pytest
import torch

import hush
from hush.diagnose.arguments import read_inputs
from hush.diagnose.measure import measure_model
from hush.theory import InputNorms, bands, finite_width
from tests.helpers import digits

SEEDS = 3


@pytest.mark.parametrize(("name", "sparsity", "weights"), [("crelu", 0.85, "gaussian"), ("cst", 0.8, "orthogonal")])
def test_mlp_follows_the_theory(name: str, sparsity: float, weights: str) -> None:
    design = hush.design(name, sparsity, v_prime=0.7, width=300, depth=100)
    check(design, hush.nn.mlp(64, 10, design), digits(8)[0], weights, positions=1)


def test_cnn_follows_the_theory() -> None:
    design = hush.design("crelu", 0.85, v_prime=0.7, width=128, depth=50)
    model = hush.nn.cnn(8, 10, design, dims=1)
    check(design, model, digits(8)[0].view(8, 8, 8), "gaussian", positions=8)


def check(design: hush.Design, model: torch.nn.Module, x: torch.Tensor, weights: str, positions: int) -> None:
    squares = x.double().flatten(1).square().mean(1).numpy()
    start = {"q_start": float(squares.mean()), "norms": InputNorms.from_samples(squares), "positions": positions}
    chain = (design.phi(), design.sigma_w, design.sigma_b, design.width, design.depth)
    band = bands(*chain, **start).q
    low, high = np.array(band.low)[:, None], np.array(band.high)[:, None]
    shares, inside, gains = [], [], []
    for seed in range(SEEDS):
        hush.init_(model, design, weights=weights, generator=torch.Generator().manual_seed(seed))
        readings = measure_model(model, read_inputs(model, x), None, None, 128).readings
        q = np.stack([torch.cat(reading.q).numpy() for reading in readings])
        shares.append(np.mean([reading.sparsity for reading in readings]))
        inside.append(((q >= low) & (q <= high)).mean())
        first, last = readings[0].squared_gradients[0], readings[-1].squared_gradients[0]
        gains.append(float((first.log10() - last.log10()).median()))
    assert abs(np.mean(shares) - design.sparsity) <= 0.01
    assert np.mean(inside) >= 0.99
    # A few networks: their mean log-gain lies within three standard errors of the chain's median.
    theory = finite_width(*chain, **start).gain_log10
    deviation = (theory[0.9] - theory[0.1]) / 2.56
    assert abs(np.mean(gains) - theory[0.5]) <= 3.0 * deviation / np.sqrt(SEEDS)
