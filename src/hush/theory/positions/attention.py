"""Attention at initialisation as a mixing of positions: y(t) = W_o Σ_s A_ts W_v x(s), A = softmax(QKᵀ/√d).

Given the tokens, the logits of a head are Gaussian with covariance v₀ K_tt′ K_ss′, v₀ = σ_q² σ_k², for wide heads. What
a row's logits have in common drops out of its softmax, so for tokens of variance p and correlation r the variance that
counts is v = v₀ p² (1 − r). Then

    K′ = σ_v² σ_o² E[A K Aᵀ] + σ_b²        `mixing`, with the overlaps of rows from `softmax_rows`

Exact where v = 0. Otherwise two things are approximated: along a row the logits are taken as exchangeable (the mean
correlation of its tokens stands for each), and the overlap of two rows is interpolated between independent and equal
rows. Finite heads enter through the spread of |query|². Backwards the gradient goes through the values, Aᵀ G A, and
through the logits: queries and keys, to leading order in 1/n.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from hush.theory._arrays import Array
from hush.theory.positions.convolution import biased
from hush.theory.positions.drawn_heads import draw_heads, drawn_backward, drawn_forward
from hush.theory.positions.field import Field, Indices
from hush.theory.positions.mixing import mix, spread_back
from hush.theory.positions.softmax_rows import discernment, sharpness
from hush.theory.positions.step import GainNoise, Preactivation

__all__ = ["Attention"]

# The scatter of correlations between tokens above which heads are drawn.
_UNLIKE = 0.02


@dataclass(frozen=True)
class Attention:
    """Softmax attention with random queries, keys, values and output; no norm and no residual stream.

    Arguments:
        sigma_v, sigma_out: the value and output matrices are N(0, σ²/fan-in).
        sigma_q, sigma_k: the query and key matrices, likewise; logits are q·k/√d.
        logit_variance: E[ℓ²] of a logit at the tokens' mean second moment, in the place of σ_q and σ_k.
        causal: whether position t attends to positions up to t only.
        head_dim: d, None for very wide heads. How many heads there are changes no mean.
        sigma_b: of the output's bias.
        method: "rows", the form above; "drawn", heads drawn from the exact law of the logits (`drawn_heads`); "auto"
            draws where the correlations between tokens scatter by more than 0.02 and the logits show it.

    Raises:
        ValueError: where neither or both of (sigma_q, sigma_k) and logit_variance are given, or one is negative.
    """

    sigma_v: float = 1.0
    sigma_out: float = 1.0
    sigma_q: float | None = None
    sigma_k: float | None = None
    logit_variance: float | None = None
    causal: bool = False
    head_dim: int | None = None
    sigma_b: float = 0.0
    method: Literal["auto", "rows", "drawn"] = "auto"
    mixes_channels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.sigma_q is None) != (self.sigma_k is None) or (self.sigma_q is None) == (self.logit_variance is None):
            raise ValueError(
                f"attention needs sigma_q and sigma_k, or logit_variance alone; got {self.sigma_q}, {self.sigma_k} and "
                f"{self.logit_variance}."
            )
        if self.method not in ("auto", "rows", "drawn"):
            raise ValueError(f"method must be 'auto', 'rows' or 'drawn', got {self.method!r}.")
        for name in ("sigma_v", "sigma_out", "sigma_q", "sigma_k", "logit_variance", "sigma_b"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < np.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}.")

    def forward(self, field: Field, width: int | None = None) -> Field:
        _check(field)
        rows = [_Rows(self, field, a) for a in range(field.inputs)]
        if self._draws(field, rows):
            kernel = drawn_forward(field, draw_heads(field, rows[0].level, self.causal, self.head_dim))
        else:
            kernel = np.empty(field.kernel.shape)
            for a in range(field.inputs):
                for b in range(field.inputs):
                    kernel[a, b] = mix(field.kernel[a, b], rows[a].counts, _overlap(field, rows, a, b))
        kernel *= (self.sigma_v * self.sigma_out) ** 2
        mixed = biased(field, kernel, self.sigma_b, None, field.shape)
        if width is None:
            return mixed
        # Mixed tokens are more alike than tokens, so their squares even out less: once as mixed inputs, once more as
        # the values that the output matrix reads.
        alike = 2.0 / (width * mixed.effective_positions())
        return mixed.with_kernel(mixed.kernel, noise=field.noise + 2.0 * alike)

    def backward(self, gradient: Field, field: Field) -> Field:
        _check(field)
        row = _Rows(self, field, 0)
        kernel, arriving = field.kernel[0, 0], gradient.kernel[0, 0]
        if self._draws(field, [row]):
            heads = draw_heads(field.first(), row.level, self.causal, self.head_dim)
            result = drawn_backward(arriving, kernel, heads, row.level)
            return gradient.with_kernel((self.sigma_v * self.sigma_out) ** 2 * result[None, None])
        overlap = _overlap(field, [row], 0, 0)
        result = spread_back(arriving, row.counts, overlap)
        if row.level > 0.0:
            # A logit's gradient is A_ts times how far value s lies from the row's mean value.
            left = np.sqrt(np.outer(row.discernment, row.discernment))
            result = result + row.level * arriving * np.outer(row.distinct, row.distinct) * overlap * left
            keys = np.diagonal(spread_back(arriving * kernel * left, row.counts, overlap)) * row.distinct[-1]
            size = field.positions
            centred = np.diag(keys) - (keys.mean() / size if size > 1 else 0.0) * (1.0 - np.eye(size))
            result = result + row.level * centred
        return gradient.with_kernel((self.sigma_v * self.sigma_out) ** 2 * result[None, None])

    def _draws(self, field: Field, rows: "list[_Rows]") -> bool:
        """Whether to draw heads: where tokens differ in how alike they are, and the logits are large enough to show."""
        if self.method != "auto":
            return self.method == "drawn"
        for a, row in enumerate(rows):
            own = np.sqrt(np.maximum(np.diagonal(field.kernel[a, a]), 1e-300))
            cosines = field.kernel[a, a] / np.outer(own, own)
            apart = cosines[~np.eye(len(own), dtype=bool)]
            if apart.size and float(apart.std()) * min(row.level * float(own.mean()) ** 4, 1.0) > _UNLIKE:
                return True
        return False

    def gain_noise(self, gradient: Field, field: Field, width: int) -> GainNoise:
        """Two random matrices."""
        return GainNoise(4.0 / (width * gradient.effective_positions()))

    def preactivations(self, field: Field, width: int | None = None) -> tuple[Preactivation, ...]:
        return ()

    def row_logit_variance(self, field: Field) -> Array:
        """v of each row of the first input: the variance of its logits about what they have in common."""
        _check(field)
        return _Rows(self, field, 0).variances


class _Rows:
    """The rows of one input: how far they reach, the variance of their logits, and how sharp they are.

    Attributes:
        level: v₀ = σ_q² σ_k².
        distinct: by row, p(1 − r): the tokens' variance about what those in reach have in common.
        sharpness, discernment: by row, log(nα) and γ/α of `softmax_rows`.
    """

    def __init__(self, step: Attention, field: Field, which: int) -> None:
        size = field.positions
        kernel = field.kernel[which, which]
        self.counts = np.arange(1, size + 1) if step.causal else np.full(size, size)
        own = np.diagonal(kernel)
        if step.logit_variance is None:
            assert step.sigma_q is not None
            assert step.sigma_k is not None
            self.level = (step.sigma_q * step.sigma_k) ** 2
        else:
            self.level = step.logit_variance / max(float(own.mean()), 1e-300) ** 2
        self.distinct = _distinct(kernel, self.counts)
        self.variances = self.level * own * self.distinct
        self.sharpness = sharpness(self.counts, self.variances, step.head_dim)
        self.discernment = discernment(self.counts, self.variances)


def _distinct(kernel: Array, counts: Indices) -> Array:
    """mean_s K_ss − mean_{s≠s′} K_ss′ over the first n positions, for each n; 0 for n = 1."""
    diagonal = np.cumsum(np.diagonal(kernel))[counts - 1]
    square = np.diagonal(kernel.cumsum(0).cumsum(1))[counts - 1]
    apart = (square - diagonal) / np.maximum(counts * (counts - 1), 1)
    return np.asarray(np.where(counts > 1, np.maximum(diagonal / counts - apart, 0.0), 0.0))


def _overlap(field: Field, rows: list[_Rows], a: int, b: int) -> Array:
    """β_tt′ = E[Σ_s A_ts A′_t′s] ≈ e^{r √(w w′)}/n′, n′ the longer row; r the correlation of the two rows' logits."""
    own = np.sqrt(np.outer(np.diagonal(field.kernel[a, a]), np.diagonal(field.kernel[b, b])))
    r = np.divide(field.kernel[a, b], own, out=np.zeros_like(own), where=own > 0.0)
    if a != b:
        # Logits of two inputs are alike as far as their tokens at the same position are.
        scale = float(np.sqrt(rows[a].distinct[-1] * rows[b].distinct[-1]))
        size = field.positions
        joint = field.kernel[a, b]
        apart = (joint.sum() - np.trace(joint)) / max(size * (size - 1), 1)
        r = r * (np.clip((np.trace(joint) / size - apart) / scale, -1.0, 1.0) if scale > 0.0 else 0.0)
    counts = rows[a].counts
    longer, shorter = np.maximum.outer(counts, counts), np.minimum.outer(counts, counts)
    raised = np.exp(np.clip(r, -1.0, 1.0) * np.sqrt(np.outer(rows[a].sharpness, rows[b].sharpness)))
    # The weights that a shorter row shares with a longer one cannot overlap by more than they sum to.
    return np.asarray(np.minimum(raised / longer, shorter / longer))


def _check(field: Field) -> None:
    if field.stationary or len(field.shape) != 1:
        raise ValueError(f"attention needs a full field over tokens, shape (T,), got one over {field.shape}.")
