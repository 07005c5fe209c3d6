"""The four networks of the demo."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hush.train import TrainConfig

__all__ = ["DemoNetworks", "demo_networks"]


@dataclass(frozen=True)
class DemoNetworks:
    """A dense network, its sparse twin held and left alone, and the paper's counter-example.

    Attributes:
        dense: ReLU in residual blocks of two matrices.
        held: the same blocks with a designed CReLU, its zeros held while it trains.
        drifting: the same with thresholds that stay where the design put them.
        exploding: a plain chain of shifted ReLUs with as many zeros, on the Edge of Chaos too.
    """

    dense: TrainConfig
    held: TrainConfig
    drifting: TrainConfig
    exploding: TrainConfig

    def items(self) -> Iterator[tuple[str, TrainConfig]]:
        """(name, config) in the order of the story."""
        for config, what in (
            (self.dense, "ReLU"),
            (self.held, "CReLU, held"),
            (self.drifting, "CReLU, fixed"),
            (self.exploding, "shifted ReLU, chain"),
        ):
            yield what, config


def demo_networks(
    *, sparsity: float = 0.95, depth: int = 30, width: int = 300, epochs: int = 12, data: str = "digits"
) -> DemoNetworks:
    """All of one size and trained by the recipe that `hush train` takes for its kind; only the epochs are chosen here.

    Arguments:
        depth: residual blocks, and layers of the chain.
    """
    size: dict[str, Any] = {"data": data, "depth": depth, "width": width, "watch": 10}
    stream: dict[str, Any] = {"arch": "residual_mlp", "hidden": width, "epochs": epochs, **size}
    return DemoNetworks(
        dense=TrainConfig(activation="relu", **stream),
        held=TrainConfig(activation="crelu", sparsity=sparsity, hold=True, **stream),
        drifting=TrainConfig(activation="crelu", sparsity=sparsity, **stream),
        exploding=TrainConfig(activation="shifted_relu", sparsity=sparsity, give_up=3, **size),
    )
