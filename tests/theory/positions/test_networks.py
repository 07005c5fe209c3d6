"""Real random networks beside the theory: a lean version of benchmarks/position_theory.py."""

import numpy as np
import pytest
import torch

from benchmarks._random_networks import RandomNetwork
from hush import theory
from hush.theory import Activate, Branch, Convolution, Field, GlobalAverage, MaxPooling, Normalise, run_steps

relu = theory.relu()
images = Field.uniform((6, 6), 1.0, 0.2, inputs=2, between_inputs=0.3)
block = Branch((Normalise("layer"), Convolution(1.0), Activate(relu), Convolution(1.4)), 0.5)
down = Branch(
    (Convolution(1.0, stride=2), Activate(relu), Convolution(1.4)),
    0.5,
    (Convolution(1.0, kernel=1, stride=2, padding=0),),
)
tokens = theory.Embedding(1.0, 0.5).of_tokens(np.random.default_rng(0).integers(0, 99, (2, 16)))


def layer(causal: bool, sigma: float) -> theory.TransformerLayer:
    attention = theory.Attention(sigma_q=sigma, sigma_k=sigma, causal=causal, head_dim=32)
    return theory.TransformerLayer(attention, theory.feed_forward(theory.crelu(1.0, 1.2), 1.0, 2.6))


CASES = {
    "chain": ([Activate(relu), Convolution(1.4, 0.3)] * 4, images, Field.uniform((6, 6))),
    "resnet": ([block, down, block, Activate(relu), GlobalAverage()], images, Field.uniform((1,))),
    "pools": ([MaxPooling(relu, 3, 2, 1), Convolution(1.4, 0.3), MaxPooling(relu, 3)], images, Field.uniform((1, 1))),
    "gpt": ([layer(True, 1.4)] * 5, tokens, Field.uniform((16,))),
    "bert": ([layer(False, 1.0)] * 5, tokens, Field.uniform((16,), 1.0, 1.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_networks_do_what_the_steps_say(name: str) -> None:
    steps, field, gradient = CASES[name]
    width, seeds = 128, 8
    torch.set_num_threads(1)
    rows = run_steps(steps, field, gradient, width=width)
    networks = [RandomNetwork(width, seed).measure(steps, field, gradient, seed) for seed in range(seeds)]

    def mean(what: str) -> np.ndarray:
        return np.mean([getattr(network, what) for network in networks], axis=0)

    read = [found for row in rows for found in row.preactivations]
    error = 4.0 / np.sqrt(seeds)
    for i, row in enumerate(rows):
        assert mean("variance")[i] == pytest.approx(row.variance, rel=error * row.deviation + 0.01)
        assert mean("position_correlation")[i] == pytest.approx(row.position_correlation, abs=0.04)
        assert mean("input_correlation")[i] == pytest.approx(row.input_correlation, abs=0.05)
        assert mean("gradient_log10")[i] == pytest.approx(row.gradient_log10, abs=error * row.gradient_deviation + 0.04)
    for i, found in enumerate(read):
        assert mean("q")[i] == pytest.approx(found.q, rel=error * found.deviation + 0.01)
        assert mean("sparsity")[i] == pytest.approx(found.sparsity, abs=0.03)
