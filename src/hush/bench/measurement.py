"""One measured figure, and what it is compared with."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["OURS", "Machine", "Row", "Setting"]

OURS = ("hush", "hush_frozen", "hush_fused", "hush_bf16_weights")  # what runs on the engine; all others are peers


@dataclass(frozen=True)
class Machine:
    """The measured limits that a figure stands beside."""

    isa: str
    sgemm_gflops: float
    read_gb_s: float

    def __str__(self) -> str:
        return f"{self.isa}, sgemm peak {self.sgemm_gflops:.0f} GFLOP/s, memory read {self.read_gb_s:.1f} GB/s"


@dataclass(frozen=True)
class Setting:
    """What is run: all peers of a setting do the same work."""

    work: str
    width: int
    depth: int
    batch: int
    sparsity: float
    threads: int


@dataclass(frozen=True)
class Row:
    """A peer's median and spread (interquartile range) in ms in one setting."""

    setting: Setting
    peer: str
    precision: str
    median_ms: float
    spread_ms: float
    ratio_to_best_peer: float | None  # of the same precision, the engine itself not counted; None where there is none
    useful_gflops: float  # multiplications and additions on active units only
    ratio_to_eager: float | None = None  # to plain torch, whatever other peers there are

    @property
    def ratio_to_bound(self) -> float | None:
        """The ratio over 1/(1 − s), what counting zeros alone would promise."""
        return None if self.ratio_to_best_peer is None else self.ratio_to_best_peer * (1 - self.setting.sparsity)

    def to_dict(self) -> dict[str, object]:
        """work, peer, width, depth, batch, sparsity, threads, median_ms, spread_ms, ratio_to_best_peer."""
        setting = asdict(self.setting)
        return {
            "work": setting.pop("work"),
            "peer": self.peer,
            **setting,
            "median_ms": round(self.median_ms, 5),
            "spread_ms": round(self.spread_ms, 5),
            "ratio_to_best_peer": None if self.ratio_to_best_peer is None else round(self.ratio_to_best_peer, 4),
        }
