"""Residual streams, norms, gates, embeddings and heads."""

import gc
import weakref

import numpy as np
import pytest
import torch

from hush.theory import (
    Activate,
    Attention,
    Branch,
    Dense,
    Embedding,
    Field,
    Gate,
    Head,
    Normalise,
    Stack,
    TransformerLayer,
    crelu,
    feed_forward,
    relu,
    run_steps,
    silu,
)
from tests.theory.positions.dense_oracle import average, channels, correlated, field_of, moments


def test_a_branch_adds_up_and_its_mean_too() -> None:
    """x + β φ(W x) with a stream that has a mean of its own: dense matrices."""
    before = Activate(relu()).forward(field_of(correlated(4)))
    step = Branch([Dense(1.1), Activate(relu())], 0.7)

    def draw(rng: np.random.Generator) -> np.ndarray:
        x = relu()(channels(correlated(4), 600, int(rng.integers(1000))))
        w = rng.standard_normal((600, 600)) * 1.1 / np.sqrt(600)
        return moments(x + 0.7 * relu()(w @ x))

    expected, error = average(draw, 60)
    assert (error < 0.03).all()
    assert np.allclose(step.forward(before).kernel[0, 0], expected, atol=4.0 * error)
    assert not step.forward(before).gaussian


def test_a_branch_without_a_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="put a Dense into it"):
        Branch([Activate(relu())])
    with pytest.raises(ValueError, match=r"shape \(1,\) cannot be added"):
        Branch([Dense(1.0), Stack((Head(3),))]).forward(Field.uniform((4,)))


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_over_channels(kind: str) -> None:
    before = Activate(relu()).forward(field_of(correlated(4)))
    x = relu()(channels(correlated(4), 100_000))
    expected = x - x.mean(0) if kind == "layer" else x
    expected = expected / np.sqrt((expected**2).mean(0))
    after = Normalise(kind).forward(before)  # type: ignore[arg-type]
    assert np.allclose(after.kernel[0, 0], moments(expected), atol=0.02)
    assert np.allclose(after.mean[0], expected.mean(0), atol=0.02)
    gradient = field_of(correlated(4, seed=1))
    scale = np.sqrt(((x - x.mean(0)) ** 2).mean(0) if kind == "layer" else (x**2).mean(0))
    back = Normalise(kind).backward(gradient, before).kernel[0, 0]  # type: ignore[arg-type]
    assert np.allclose(back, gradient.kernel[0, 0] / np.outer(scale, scale), rtol=0.03)
    with pytest.raises(ValueError, match="'rms' or 'layer', got 'batch'"):
        Normalise("batch")  # type: ignore[arg-type]


def test_a_gate_is_a_product_of_two_matrices() -> None:
    phi, step = silu(), Gate(silu(), 1.2, 0.8)
    field, gradient = field_of(correlated(3)), field_of(correlated(3, seed=1))
    width, many = 50, 40_000
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor(channels(field.kernel[0, 0], width).T)
    gate, up = (
        s * x @ torch.randn(width, many, dtype=torch.float64, generator=generator) / np.sqrt(width) for s in (1.2, 0.8)
    )
    y = torch.nn.functional.silu(gate) * up
    assert np.allclose(step.forward(field).kernel[0, 0], moments(y.T.numpy()), rtol=0.05, atol=0.02)
    slopes, values = moments(phi.derivative(gate.T.numpy())), moments(phi(gate.T.numpy()))
    expected = (1.2**2 * slopes * 0.8**2 * field.kernel[0, 0] + 0.8**2 * values) * gradient.kernel[0, 0]
    assert np.allclose(step.backward(gradient, field).kernel[0, 0], expected, rtol=0.05, atol=0.02)


def test_a_transformer_layer_is_its_two_branches() -> None:
    attention, feed = Attention(logit_variance=1.0), feed_forward(relu(), 1.0, 1.4)
    field = Field.uniform((8,), 2.0, 0.2)
    layer = TransformerLayer(attention, feed, scale=0.5)
    by_hand = [Branch((Normalise(), attention), 0.5), Branch((Normalise(), *feed), 0.5)]
    one = run_steps([layer], field, Field.uniform((8,)), width=64)[0]
    two = run_steps(by_hand, field, Field.uniform((8,)), width=64)
    assert one.variance == pytest.approx(two[-1].variance)
    assert one.gradient_log10 == pytest.approx(two[0].gradient_log10)
    assert one.deviation == pytest.approx(two[-1].deviation)
    assert one.gradient_deviation == pytest.approx(two[0].gradient_deviation)
    assert one.preactivations[0].q == pytest.approx(1.0)
    post = TransformerLayer(attention, feed, post_norm=True).forward(field)
    assert post.variance == pytest.approx(1.0)
    with pytest.raises(ValueError, match="post_norm needs a norm"):
        TransformerLayer(attention, feed, norm=None, post_norm=True)


def test_uniform_attention_collapses_ranks() -> None:
    layer = TransformerLayer(Attention(logit_variance=0.0), feed_forward(relu(), 1.0, 1.4))
    correlations = [row.position_correlation for row in run_steps([layer] * 12, Field.uniform((16,)))]
    assert np.all(np.diff(correlations) > 0.0)
    assert correlations[-1] > 0.7


def test_embeddings_of_repeated_tokens() -> None:
    field = Embedding(2.0, 0.5).of_tokens([[1, 2, 1], [2, 2, 3]])
    assert np.allclose(field.kernel[0, 0], [[4.25, 0, 4], [0, 4.25, 0], [4, 0, 4.25]])
    assert np.allclose(field.kernel[0, 1], [[0.25, 0, 0], [4, 4.25, 0], [0, 0, 0.25]])
    rng = np.random.default_rng(0)
    texts = Embedding(2.0, 0.5).of_tokens(rng.integers(0, 4, (400, 3))).kernel
    own = texts[np.arange(400), np.arange(400)].mean(0)
    assert np.allclose(Embedding(2.0, 0.5).expected(3, 0.25).kernel[0, 0], own, atol=0.3)
    with pytest.raises(ValueError, match=r"repeats must lie in \[0, 1\], got 2"):
        Embedding().expected(3, 2.0)


@pytest.mark.parametrize("reads", ["mean", "last", "each"])
def test_heads_and_the_gradient_of_cross_entropy(reads: str) -> None:
    size, width, classes, seeds = 6, 400, 10, 40
    field = Field.uniform((size,), 1.0, 0.5)
    head = Head(classes, 1.5, 0.2, reads)  # type: ignore[arg-type]
    sums, variances, overlaps = [], [], []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        x = torch.tensor(channels(field.kernel[0, 0], width, seed).T).requires_grad_()
        w = 1.5 * torch.randn(width, classes, dtype=torch.float64, generator=generator) / np.sqrt(width)
        b = 0.2 * torch.randn(classes, dtype=torch.float64, generator=generator)
        read = {"mean": x.mean(0, keepdim=True), "last": x[-1:], "each": x}[reads]
        logits = read @ w + b
        labels = torch.randint(0, classes, (len(logits),), generator=generator)
        torch.nn.functional.cross_entropy(logits, labels).backward()
        sums.append(float(x.grad.square().sum()))
        overlaps.append((x.grad.sum(0).square().sum()).item())
        variances.append(float(logits.detach().square().mean()))
    gradient = head.gradient(field)
    assert head.forward(field).variance == pytest.approx(np.mean(variances), rel=0.15)
    assert gradient.total == pytest.approx(np.mean(sums), rel=0.12)
    assert gradient.kernel.sum() == pytest.approx(np.mean(overlaps), rel=0.2)
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        Head(1)


def test_lists_and_nested_steps_are_taken() -> None:
    inner = Branch([Dense(1.0), Stack([Activate(relu()), Dense(1.4)])], 0.5)
    field, gradient = Field.uniform((4,), 1.0, 0.3), Field.uniform((4,))
    nested = run_steps([Stack([inner, Branch([Stack([Dense(1.0)])])])], field, gradient, width=16)[0]
    flat = run_steps([inner, Branch([Dense(1.0)])], field, gradient, width=16)
    assert nested.variance == pytest.approx(flat[-1].variance)
    assert nested.gradient_log10 == pytest.approx(flat[0].gradient_log10)
    assert len(nested.preactivations) == 1


def test_what_is_remembered_dies_with_the_field() -> None:
    field = Field.uniform((4,))
    layer = TransformerLayer(Attention(logit_variance=1.0), feed_forward(relu(), 1.0, 1.4))
    run_steps([layer, Branch([Dense(1.0)])], field, Field.uniform((4,)), width=8)
    alive = weakref.ref(field)
    del field
    gc.collect()
    assert alive() is None


def test_run_steps_refuses_a_gradient_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"must have its shape \(4,\), got \(3,\)"):
        run_steps([Dense(1.0)], Field.uniform((4,)), Field.uniform((3,)))
    with pytest.raises(ValueError, match="width must be at least 2, got 1"):
        run_steps([Dense(1.0)], Field.uniform((4,)), width=1)
    assert run_steps([Dense(1.0), Activate(crelu(1.0, 1.0))], Field.uniform((4,)))[1].gain_log10 is None
