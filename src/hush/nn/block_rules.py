"""The numbers of an initialisation with blocks: how large a layer's weights, a norm's scale and shift are to be.

q* is what every pre-activation is to have as its second moment, e = E[φ²] and d = E[φ′²] are at q*.

    feeds φ                   σ² = q*/n², bias 0, where n² is the second moment of what it reads (1 behind a norm);
                              behind φ itself, with a bias: the Edge of Chaos, σ² = 1/d, bias of variance q* − σ²n²
    writes to the stream      σ² such that the whole branch passes a squared gradient with gain β² p₀/p, p the second
                              moment of the stream there and p₀ at its start. With one norm in front and one matrix
                              before φ that is σ² = β² p₀/(q* d): the Edge of Chaos, scaled to the stream
    query, key                second moment 1/2 each, so that the logits have variance 1/4: attention starts out nearly
                              even, and the gradient goes through the values
    value, up, all others     second moment 1; behind φ, where another layer follows without φ, σ² = 1

BatchNorm takes a layer's scale away, so its γ and β take the part of σ_w and σ_b. It divides by the *fluctuation* f of
a feature (its variance over samples and positions), which for x = φ(√(q*−b) z + √b z′) with z′ fixed per feature is
f = e − c(b/q*), c the cross moment. A layer with BatchNorm behind it passes a squared gradient with gain γ² d/f, and
with γ² = q* − b that is above 1 for every b < q* and goes to 1 as b goes to q*: in a chain the gain is brought down to
what the depth allows. In a block that ends in an activation, h = φ(h′) + γẑ + β, the gain is d (1 + γ² G/f) with G that
of the rest of the branch; γ is chosen to make it 1, or rather as much above 1 as the number of blocks allows (at
exactly 1 the inputs soon look all the same), and β takes out the mean of φ(h′) and adds what is missing to q*.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from hush.theory import Activation, Design, entry_of

__all__ = ["Affine", "Rules"]

# The share of q* that a BatchNorm or GroupNorm inside a residual block has from its shift. Without any, the features of
# a deep network become heavy-tailed one by one (and the two channels of a small group ±1), so that the share of zeros
# is not that of a Gaussian of variance q*; with all of it, every input would look the same. GroupNorm leaves each
# channel a mean of its own, which adds to the shift or takes from it by chance, so there it is less.
_SHIFT_SHARE = {"batch": 0.7, "instance": 0.7, "group": 0.5}
# The gain of a squared gradient that is aimed at, over all layers of a chain with BatchNorm and over all blocks that
# end in an activation. More keeps inputs further apart. The second is less, because there more adds to it than the
# theory knows: what one block lets through and what the next does are not independent.
_CHAIN_GAIN, _BLOCKS_GAIN = 10.0, 10.0**0.5


@dataclass(frozen=True)
class Affine:
    """What a norm's own parameters are to be: γ² and, for the shift, mean and variance over the features."""

    gamma2: float
    mean: float = 0.0
    variance: float = 0.0


class Rules:
    """The rules for one design.

    Attributes:
        q: q*.
        relative: whether φ's threshold is in units of what it reads.
        block_gain: the gain of a squared gradient through one block that ends in an activation.
        square, slope: E[φ²] and E[φ′²] at q*.
    """

    query_moment = 0.5

    def __init__(self, design: Design, blocks: int = 1) -> None:
        self.design = design
        self.block_gain: float = _BLOCKS_GAIN ** (1.0 / max(blocks, 1))
        self.phi: Activation = design.phi()
        self.q = design.q_star
        # A relative threshold has its share of zeros at any size.
        self.relative = entry_of(design.activation).relative
        self.square = float(self.phi.second_moment(self.q))
        self.slope = float(self.phi.slope_moment(1, self.q))

    def feeding(self, moment: float, *, behind_phi: bool, has_bias: bool) -> tuple[float, float]:
        """(σ², variance of the bias) of a layer that feeds φ and reads something of this second moment."""
        edge = self.design.sigma_w2
        if behind_phi and has_bias and edge * moment <= self.q:
            return edge, self.q - edge * moment
        return self.q / moment, 0.0

    def factor_to_design(self, h: Tensor) -> float:
        """What brings these pre-activations to the design: its share of zeros, or q* where φ has no threshold."""
        threshold, sparsity = self.design.threshold, self.design.sparsity
        flat = h.detach().double().flatten()
        if threshold > 0.0 and 0.0 < sparsity < 1.0 and not self.relative:
            sizes = flat.abs() if entry_of(self.design.activation).odd else flat
            silent = float(sizes.kthvalue(max(1, round(sparsity * len(flat)))).values)
            if silent > 0.0:
                return threshold / silent
        return math.sqrt(self.q / float(flat.square().mean()))

    def batch_norm_in_chain(self, depth: int) -> Affine:
        """γ and β of a BatchNorm between a layer and φ in a chain of so many: the gain of all of them is bounded."""
        wanted = _CHAIN_GAIN ** (1.0 / max(depth, 1))
        low, high = 0.0, 0.999
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self._batch_norm_gain(middle) > wanted else (low, middle)
        return Affine((1.0 - high) * self.q, 0.0, high * self.q)

    def _batch_norm_gain(self, share: float) -> float:
        fluctuation = self.square - float(self.phi.cross_moment(share, self.q, self.q))
        gain: float = (1.0 - share) * self.q * self.slope / max(fluctuation, 1e-300)
        return gain

    def norm_in_branch(self, norm: str) -> Affine:
        """γ and β of a BatchNorm or GroupNorm that φ reads inside a residual block, or on the stream."""
        share = _SHIFT_SHARE[norm]
        return Affine((1.0 - share) * self.q, 0.0, share * self.q)

    def layer_norm_in_chain(self) -> Affine:
        """LayerNorm and GroupNorm divide by the second moment, so σ_w²E[φ²] and σ_b² do as in a plain chain."""
        return Affine(self.design.sigma_w2 * self.square, 0.0, self.design.sigma_b2)

    def block_end(self, *, rest: float, fluctuation: float, stream_mean: float, stream_variance: float) -> Affine:
        """The last norm of a block that ends in an activation, with the stream added as it is.

        Arguments:
            rest: G, the gain of a squared gradient through the branch up to what the last layer reads.
            fluctuation: f of what the last layer reads.
            stream_mean, stream_variance: of what is added.
        """
        gamma2 = (self.block_gain / self.slope - 1.0) * fluctuation / max(rest, 1e-300)
        return self._completed(gamma2, stream_mean, stream_variance)

    def block_end_with_shortcut(self, *, rest: float, fluctuation: float, shortcut: float) -> Affine:
        """The same where the stream comes through a layer and a norm of its own, of γ² = shortcut: both pass half."""
        gamma2 = 0.5 * self.block_gain / self.slope * fluctuation / max(rest, 1e-300)
        return self._completed(gamma2, 0.0, shortcut)

    def shortcut(self, fluctuation: float) -> float:
        """γ² of the norm on such a shortcut."""
        return min(0.5 * self.block_gain / self.slope * fluctuation, 0.5 * self.q)

    def _completed(self, gamma2: float, mean: float, variance: float) -> Affine:
        # A branch that is not to be lost keeps a twentieth of q*, also where the stream alone has more than q*.
        gamma2 = min(gamma2, max(self.q - variance, 0.05 * self.q))
        return Affine(gamma2, -mean, max(self.q - variance - gamma2, 0.0))
