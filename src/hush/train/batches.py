"""The batches of an epoch: their order is a function of (seed, epoch), so a resumed run sees the same ones."""

from collections.abc import Iterator, Sized

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from hush.data import Split

__all__ = ["EpochBatches", "Rows", "WindowBatches", "loader"]


class EpochBatches(Sampler[Tensor]):
    """The indices of each batch; of several processes each takes its share of every batch.

    A last, smaller batch is kept where all shares of it are equal, else what does not divide is left out.
    """

    def __init__(self, count: int, batch: int, seed: int, rank: int = 0, world: int = 1) -> None:
        self.count, self.batch, self.seed = count, batch, seed
        self.rank, self.world = rank, world
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning when an epoch begins."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-(self.count - self.count % self.world) // self.batch)

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.count, generator=generator)[: self.count - self.count % self.world]
        for batch in order.split(self.batch):
            yield batch[self.rank :: self.world]


class WindowBatches(EpochBatches):
    """Where the windows of each batch begin in a text: anywhere, drawn anew in every epoch of `steps` batches."""

    def __init__(self, starts: int, steps: int, batch: int, seed: int, rank: int = 0, world: int = 1) -> None:
        super().__init__(starts, batch, seed, rank, world)
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        for _ in range(self.steps):
            yield torch.randint(self.count, (self.batch,), generator=generator)[self.rank :: self.world]


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """A split, taken by whole batches: one indexing instead of a collation of single images."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __getitem__(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.split.images[rows], self.split.labels[rows]

    def __len__(self) -> int:
        return len(self.split)


def loader(rows: Dataset[tuple[Tensor, Tensor]], batches: EpochBatches) -> DataLoader[tuple[Tensor, Tensor]]:
    """The batches of `rows`, each taken whole."""
    assert isinstance(batches, Sized)
    return DataLoader(rows, sampler=batches, batch_size=None)
