"""The networks `hush train --arch` builds: their usual sizes, and which settings belong to which of them."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ARCHITECTURES", "Architecture", "parse_branch_scale"]


@dataclass(frozen=True)
class Architecture:
    """One of them.

    Attributes:
        usual: what a setting is that was not given.
        norms: the values `norm` may have; none where there is no norm to choose.
        layers: what `depth` counts.
        residual: whether blocks add to a stream. Torch's own engine is usual there, but for residual MLPs that are
            sparse enough (`TrainConfig`).
    """

    usual: dict[str, Any]
    norms: tuple[str, ...] = ()
    layers: str = "layers"
    residual: bool = False
    _own: tuple[str, ...] = field(default=(), repr=False)

    def owns(self, setting: str) -> bool:
        """Whether a setting that not every network has belongs to this one."""
        return setting in self._own


_CHAIN = {"data": "digits", "depth": 30, "width": 300, "engine": "sparse"}
_STREAM = {"branch_scale": "1/sqrt(depth)", "engine": "dense"}

ARCHITECTURES: dict[str, Architecture] = {
    "mlp": Architecture(_CHAIN),
    "cnn": Architecture(_CHAIN, _own=("pool",)),
    "residual_mlp": Architecture(
        {"data": "digits", "depth": 30, "width": 300, "norm": "rms", **_STREAM},
        norms=("rms", "layer", "none"),
        layers="blocks",
        residual=True,
        _own=("hidden", "norm", "branch_scale"),
    ),
    "resnet": Architecture(
        {"data": "digits", "depth": 9, "width": 16, "norm": "batch", **_STREAM},
        norms=("batch", "layer", "none"),
        layers="blocks",
        residual=True,
        _own=("norm", "branch_scale"),
    ),
    "gpt": Architecture(
        {
            "data": "text",
            "depth": 4,
            "width": 192,
            "norm": "rms",
            "context": 128,
            "steps_per_epoch": 100,
            **_STREAM,
        },
        norms=("rms", "layer"),
        residual=True,
        _own=("hidden", "norm", "branch_scale", "heads", "gated", "context", "steps_per_epoch"),
    ),
}


def parse_branch_scale(text: str) -> float | str:
    """ "0.5" as a number; the names of scales as they are.

    Raises:
        ValueError: if it is neither.
    """
    if text in ("1/sqrt(depth)", "1/depth", "learned"):
        return text
    try:
        return float(text)
    except ValueError:
        known = "1/sqrt(depth), 1/depth, learned"
        raise ValueError(f"branch_scale must be a number or one of {known}, got {text!r}.") from None
