"""One measured time, and what it is compared with."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["OURS", "Measurement", "Setting"]

OURS = (
    "hush",
    "hush_input_major",
    "hush_frozen",
    "hush_fused",
    "hush_bf16_weights",
)  # what runs on the engine; all others are peers


@dataclass(frozen=True)
class Setting:
    """What is timed: all peers of a setting do the same work."""

    work: str
    width: int
    depth: int
    batch: int
    sparsity: float
    threads: int


@dataclass(frozen=True)
class Measurement:
    """A peer's median and spread (interquartile range) in ms in one setting.

    Attributes:
        precision: f32 or bf16, the type of its weights.
        ratio_to_best_peer: the time of the fastest peer of the same precision over this one, the engine itself not
            counted among the peers; None where there is none.
        useful_gflops: multiplications and additions on active units only.
        ratio_to_eager: the time of plain torch in f32 over this one, whatever the precision.
        error: how far its result is from that of plain torch in float64, relative; None where it was not compared.
        bound: what counting zeros alone would promise; None for 1/(1 − s), where every product has them.
    """

    setting: Setting
    peer: str
    precision: str
    median_ms: float
    spread_ms: float
    ratio_to_best_peer: float | None
    useful_gflops: float
    ratio_to_eager: float | None = None
    error: float | None = None
    bound: float | None = None

    @property
    def ratio_to_bound(self) -> float | None:
        """The ratio over what counting zeros alone would promise."""
        share = 1 - self.setting.sparsity if self.bound is None else 1 / self.bound
        return None if self.ratio_to_best_peer is None else self.ratio_to_best_peer * share

    def to_dict(self) -> dict[str, object]:
        """The setting, the peer and its precision, median_ms, spread_ms, ratio_to_best_peer and error."""
        setting = asdict(self.setting)
        return {
            "work": setting.pop("work"),
            "peer": self.peer,
            **setting,
            "median_ms": round(self.median_ms, 5),
            "spread_ms": round(self.spread_ms, 5),
            "ratio_to_best_peer": None if self.ratio_to_best_peer is None else round(self.ratio_to_best_peer, 4),
            "precision": self.precision,
            "error": None if self.error is None else float(f"{self.error:.2g}"),
        }
