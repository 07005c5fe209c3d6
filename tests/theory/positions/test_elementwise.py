import numpy as np
import pytest

from hush.theory import Activate, Dense, Field, crelu, fatrelu, gelu, relu, run_steps, tanh
from hush.theory.positions import kernel_table
from tests.theory.positions.dense_oracle import channels, correlated, field_of, moments


@pytest.mark.parametrize("phi", [relu(), crelu(0.5, 1.0), gelu(), fatrelu(0.7)], ids=lambda phi: phi.name)
def test_kernels_are_those_of_gaussian_channels(phi) -> None:
    field = field_of(correlated(5))
    h = channels(field.kernel[0, 0], 100_000)
    after = Activate(phi).forward(field)
    assert np.allclose(after.kernel[0, 0], moments(phi(h)), rtol=0.02, atol=0.01)
    assert np.allclose(after.mean[0], phi(h).mean(0), atol=0.01)
    # The gradient behind, of covariance G and independent of h, is multiplied by φ′(h): jumps left out.
    gradient = field_of(correlated(5, seed=3))
    expected = moments(phi.derivative(h)) * gradient.kernel[0, 0]
    assert np.allclose(Activate(phi).backward(gradient, field).kernel[0, 0], expected, rtol=0.02, atol=0.02)


def test_stationary_and_full_agree() -> None:
    stationary = field_of(correlated(12), (3, 4)).averaged()
    kernel = Activate(crelu(0.5, 1.0)).forward(stationary).full().kernel
    assert np.allclose(kernel, Activate(crelu(0.5, 1.0)).forward(stationary.full()).kernel, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("phi", [crelu(1.0, 1.2), tanh()], ids=lambda phi: phi.name)
def test_the_table_is_as_good_as_pair_by_pair(phi, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rho = np.clip(rng.uniform(-0.3, 1.02, (16, 16)), -1.0, 1.0)
    q_a, q_b = rng.uniform(0.6, 1.0, (2, 16))
    monkeypatch.setattr(kernel_table, "_FEW", 100)
    table = kernel_table.over_pairs(phi.cross_moment, rho, q_a, q_b)
    monkeypatch.setattr(kernel_table, "_FEW", 10**9)
    exact = kernel_table.over_pairs(phi.cross_moment, rho, q_a, q_b)
    assert abs(table - exact).max() < 3e-6 * exact.max()
    assert not np.array_equal(table, exact)


def test_two_inputs_of_different_variance() -> None:
    kernel = np.array([[[[1.0]], [[0.6]]], [[[0.6]], [[2.0]]]])
    after = Activate(relu()).forward(Field((1,), kernel, np.zeros((2, 1))))
    assert after.kernel[0, 1, 0, 0] == pytest.approx(relu().cross_moment(0.6 / np.sqrt(2.0), 1.0, 2.0))
    assert after.kernel[1, 1, 0, 0] == pytest.approx(1.0)


def test_activations_need_gaussians() -> None:
    steps = [Activate(relu()), Activate(relu())]
    with pytest.raises(ValueError, match="put a Dense or a Convolution in between"):
        run_steps(steps, Field.uniform((4,)))


def test_noise_of_a_chain_is_that_of_the_chain_block() -> None:
    """One position: the deviation of q after one layer is σ_w² √(Var φ²/N)."""
    from hush.theory import Chain

    phi, width = crelu(0.5, 1.0), 100
    noise = Chain(phi, 1.5, 0.3).noise(width, np.array([1.0]))
    after = Dense(1.5, 0.3).forward(Activate(phi).forward(Field.uniform((1,)), width), width)
    assert np.sqrt(after.noise) * after.variance == pytest.approx(float(noise.deviation[0]), rel=1e-6)
