import mpmath
import numpy as np
import pytest
import torch

from hush.theory import Attention, Embedding, Field, participation
from hush.theory.positions.mixing import mix, spread_back
from hush.theory.positions.softmax_rows import discernment, sharpness
from tests.theory.positions.dense_oracle import average, correlated, field_of, softmax


@pytest.mark.parametrize("v", [0.01, 1.0, 9.0, 100.0])
def test_participation_of_two_logits(v: float) -> None:
    """Two logits: α = E[1 − 2p(1 − p)] with p the logistic of N(0, 2v), a single integral."""
    with mpmath.workdps(20):
        spread = mpmath.sqrt(2 * v)
        tent = lambda z: mpmath.npdf(z) / (2 + 2 * mpmath.cosh(spread * z))  # noqa: E731
        exact = 1 - 2 * mpmath.quad(tent, [-12, -1, -0.1, 0, 0.1, 1, 12])
    assert participation(2, v) == pytest.approx(float(exact), abs=1e-9)


@pytest.mark.parametrize(("n", "v"), [(5, 0.3), (16, 2.0), (64, 1.0), (64, 16.0)])
def test_rows_are_those_of_drawn_softmaxes(n: int, v: float) -> None:
    a = softmax(np.sqrt(v) * np.random.default_rng(1).standard_normal((30_000, n)))
    squares = (a**2).sum(1)
    alpha, error = squares.mean(), squares.std() / np.sqrt(len(squares))
    assert participation(n, v) == pytest.approx(alpha, abs=4 * error)
    assert sharpness(np.array([n]), np.array([v]))[0] == pytest.approx(np.log(n * participation(n, v)), rel=3e-3)
    left = (a**2 * (1 - 2 * a + squares[:, None])).sum(1).mean() / alpha
    assert discernment(np.array([n]), np.array([v]))[0] == pytest.approx(left, rel=0.02)


def test_participation_limits_and_errors() -> None:
    assert participation(1, 3.0) == 1.0
    assert participation(7, 0.0) == pytest.approx(1 / 7)
    assert participation(100_000, 0.5) == pytest.approx(np.exp(0.5) / 1e5, rel=1e-3)
    assert sharpness(np.array([30.0]), np.array([1e-7]))[0] == pytest.approx(1e-7 * (1 - 1 / 30), rel=1e-4)
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, got 0"):
        participation(0, 1.0)
    with pytest.raises(ValueError, match=r"logit variance must lie in \[0, 400\], got -1"):
        participation(3, -1.0)


@pytest.mark.parametrize("causal", [False, True])
def test_mixing_is_the_sum_over_all_four_indices(causal: bool) -> None:
    size = 5
    counts = np.arange(1, size + 1) if causal else np.full(size, size)
    m, longer = np.minimum.outer(counts, counts), np.maximum.outer(counts, counts)
    overlap = (1.0 + 0.3 * np.random.default_rng(0).uniform(size=(size, size))) / longer
    overlap = np.minimum(0.5 * (overlap + overlap.T), m / longer)
    weights = np.zeros((size,) * 4)
    for t, u, s, r in np.ndindex(weights.shape):
        if s < counts[t] and r < counts[u]:
            low, high, beta = m[t, u], longer[t, u], overlap[t, u]
            if s == r:
                weights[t, u, s, r] = beta / low
            elif max(s, r) < low:
                weights[t, u, s, r] = (low / high - beta) / (low * (low - 1))
            else:
                weights[t, u, s, r] = 1 / (low * high)
    assert np.allclose(weights.sum((2, 3)), 1.0)
    kernel = correlated(size)
    assert np.allclose(mix(kernel, counts, overlap), np.einsum("tusr,sr->tu", weights, kernel))
    assert np.allclose(spread_back(kernel, counts, overlap), np.einsum("tusr,tu->sr", weights, kernel))


def drawn(kernel: np.ndarray, level: float, causal: bool, draws: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def draw(rng: np.random.Generator) -> np.ndarray:
        logits = np.sqrt(level) * root @ rng.standard_normal(kernel.shape) @ root.T
        a = softmax(np.where(np.tri(len(kernel)) > 0, logits, -np.inf) if causal else logits)
        return a @ kernel @ a.T

    return average(draw, draws)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("correlation", "level"), [(0.0, 0.0), (0.0, 1.0), (0.4, 5.0), (0.8, 1.0)])
def test_exchangeable_tokens(causal: bool, correlation: float, level: float) -> None:
    """Errors below 0.01 of the tokens' variance beside 4 standard errors of the oracle."""
    field = Field.uniform((20,), 1.0, correlation)
    step = Attention(1.2, 0.9, level**0.25, level**0.25, causal=causal, method="rows")
    expected, error = drawn(field.kernel[0, 0], level, causal)
    found = step.forward(field).kernel[0, 0] / (1.2 * 0.9) ** 2
    assert (abs(found - expected) <= 0.01 + 4 * error).all()
    if level == 0.0:
        assert np.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_tokens_far_from_exchangeable_are_drawn(causal: bool) -> None:
    kernel = 0.9 ** abs(np.subtract.outer(np.arange(20), np.arange(20)))
    step = Attention(sigma_q=1.3, sigma_k=1.0, causal=causal)
    expected, error = drawn(kernel, 1.3**2, causal)
    found = step.forward(field_of(kernel)).kernel[0, 0]
    # The step draws a hundred heads and more itself, the oracle 1,000.
    assert (abs(found - expected) <= 0.005 + 5 * np.sqrt(1000 / 192 + 1) * error).all()
    rows = Attention(sigma_q=1.3, sigma_k=1.0, causal=causal, method="rows").forward(field_of(kernel)).kernel[0, 0]
    assert abs(rows - expected).max() > 0.02


def test_what_a_row_has_in_common_drops_out() -> None:
    step = Attention(sigma_q=2.0, sigma_k=1.5)
    assert np.allclose(step.row_logit_variance(Field.uniform((10,), 2.0, 0.25)), 9.0 * 4.0 * 0.75)
    given = Attention(logit_variance=36.0)
    assert np.allclose(given.row_logit_variance(Field.uniform((10,), 2.0, 0.25)), 36.0 * 0.75)
    assert Attention(logit_variance=5.0).forward(Field.uniform((10,), 2.0, 1.0)).variance == pytest.approx(2.0)


@pytest.mark.parametrize("method", ["rows", "drawn"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("coherent", [0.0, 1.0])
def test_gradient_is_autograd_s(method: str, causal: bool, coherent: float) -> None:
    """Values, queries and keys together, in real attention of finite heads."""
    size, width, head, seeds = 12, 192, 48, 8
    field, gradient = Field.uniform((size,), 1.0, 0.3), Field.uniform((size,), 1.0, coherent)
    step = Attention(1.0, 1.0, 1.2, 1.2, causal=causal, head_dim=head, method=method)  # type: ignore[arg-type]
    totals = []
    for seed in range(seeds):
        g = torch.Generator().manual_seed(seed)
        normal = lambda *shape: torch.randn(*shape, generator=g)  # noqa: E731, B023
        x = np.sqrt(0.3) * normal(1, width) + np.sqrt(0.7) * normal(size, width)
        x.requires_grad_()
        q, k, v = (s * x @ normal(width, width) / np.sqrt(width) for s in (1.2, 1.2, 1.0))
        q, k, v = (y.reshape(size, -1, head).transpose(0, 1) for y in (q, k, v))
        logits = q @ k.transpose(1, 2) / np.sqrt(head)
        if causal:
            logits = logits.masked_fill(torch.ones(size, size).triu(1).bool(), -np.inf)
        y = (logits.softmax(-1) @ v).transpose(0, 1).reshape(size, width) @ normal(width, width) / np.sqrt(width)
        arriving = normal(1, width).expand(size, width) if coherent else normal(size, width)
        y.backward(arriving)
        totals.append(float(x.grad.square().sum() / arriving.square().sum()))
    found = step.backward(gradient, field).total / gradient.total
    assert found == pytest.approx(np.mean(totals), rel=0.15)


def test_two_inputs_that_share_positions() -> None:
    field = Embedding(1.0, 1.0).expected(16, inputs=2)
    after = Attention(logit_variance=4.0, method="rows").forward(field)
    other = Attention(logit_variance=4.0, method="drawn").forward(field)
    assert after.variance == pytest.approx(other.variance, rel=0.03)
    assert after.input_correlation() == pytest.approx(other.input_correlation(), abs=0.03)


def test_errors_are_sentences() -> None:
    with pytest.raises(ValueError, match="needs sigma_q and sigma_k, or logit_variance alone"):
        Attention(sigma_q=1.0)
    with pytest.raises(ValueError, match="logit_variance must be finite and not negative, got -1"):
        Attention(logit_variance=-1.0)
    with pytest.raises(ValueError, match=r"full field over tokens, shape \(T,\), got one over \(2, 2\)"):
        Attention(logit_variance=1.0).forward(Field.uniform((2, 2)))
    with pytest.raises(ValueError, match="method must be 'auto', 'rows' or 'drawn', got 'x'"):
        Attention(logit_variance=1.0, method="x")  # type: ignore[arg-type]
