"""Quantiles of any number of values, in constant memory: a histogram over the leading bits of their float32 form.

The bits of float32 numbers that are not negative, read as whole numbers, have the order of the numbers. Their leading
18 bits (the exponent and 10 of the significand) are the bins, so a bin is at most 1/1024 of its value wide, at any
scale and without knowing the range beforehand. Values of bfloat16 and float16 have a bin each: there counts are exact.
"""

import math

import torch
from torch import Tensor

__all__ = ["BitHistogram"]

_SHIFT = 13
_INFINITY = 0x7F800000 >> _SHIFT


class BitHistogram:
    """Counts of |values|, 2 MB; `add` them in any portions."""

    def __init__(self) -> None:
        self.counts: Tensor | None = None
        self._half = False  # whether all that came was in half precision

    def add(self, values: Tensor) -> None:
        bits = values.detach().abs().float().contiguous().view(torch.int32).flatten()
        found = torch.bincount(bits >> _SHIFT, minlength=1 << (31 - _SHIFT))
        half = values.dtype in (torch.bfloat16, torch.float16)
        self._half = half if self.counts is None else half and self._half
        self.counts = found if self.counts is None else self.counts + found.to(self.counts.device)

    @property
    def total(self) -> int:
        return 0 if self.counts is None else int(self.counts.sum())

    def is_finite(self) -> bool:
        return self.counts is None or int(self.counts[_INFINITY:].sum()) == 0

    def share_up_to(self, threshold: float) -> float:
        """The share of values with |value| ≤ threshold, to within that of one bin."""
        if self.counts is None:
            return math.nan
        key = int(torch.tensor(threshold, dtype=torch.float32).view(torch.int32)) >> _SHIFT
        return float(self.counts[: key + 1].sum()) / self.total

    def threshold_for(self, share: float, lowest: float = 0.0) -> float:
        """The τ ≥ `lowest` for which the share of values with |value| ≤ τ comes nearest to `share` and is below 1.

        Where no τ above `lowest` divides the values, or so many are below it already, it is `lowest`.
        """
        if self.counts is None or self.share_up_to(lowest) >= share:
            return lowest
        below = self.counts.cumsum(0).double() / self.total
        possible = (self.counts > 0) & (below < 1.0)
        if not bool(possible.any()):
            return lowest
        distance = torch.where(possible, (below - share).abs(), math.inf)
        found = int(distance.argmin())
        if abs(self.share_up_to(lowest) - share) <= float(distance[found]):
            return lowest
        # The largest number of the bin, so that all of it is silenced. In half precision all of it is its smallest.
        bits = found << _SHIFT if self._half else ((found + 1) << _SHIFT) - 1
        return max(lowest, float(torch.tensor(bits, dtype=torch.int32).view(torch.float32)))
