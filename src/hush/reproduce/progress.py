"""How a sweep is going, live: runs done of all, and each running one's epoch, loss and accuracy from its metrics."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from hush.reproduce.sweep import Watcher
from hush.train.config import TrainConfig
from hush.train.tables import read_table

__all__ = ["watching"]

_REDRAW = 1.0  # seconds
_SHOWN = 16  # runs under way that a screen has room for


class _Silent:
    def started(self, config: TrainConfig) -> None: ...
    def ended(self, config: TrainConfig, error: str | None) -> None: ...
    def tick(self) -> None: ...


class _Lines:
    """One line for each run that ends: for logs and pipes."""

    def __init__(self, total: int, root: Path, console: Console) -> None:
        self.total, self.root, self.console = total, root, console
        self.ends = 0

    def started(self, config: TrainConfig) -> None: ...

    def ended(self, config: TrainConfig, error: str | None) -> None:
        # A run that goes on after a kill ends twice; the count is of runs that have a result.
        self.ends += error is None
        end = state(config, self.root) if error is None else error
        self.console.print(Text(f"{self.ends}/{self.total} {config.name}: {end}"), soft_wrap=True)

    def tick(self) -> None: ...


class _Screen(_Lines):
    """The lines scroll by above a bar and the runs under way."""

    def __init__(self, total: int, root: Path, console: Console) -> None:
        super().__init__(total, root, console)
        self.running: dict[str, TrainConfig] = {}
        self.drawn = 0.0
        self.bar = Progress(
            TextColumn("runs"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self.task = self.bar.add_task("runs", total=total)
        self.live = Live(self.view(), console=console, auto_refresh=False)

    def started(self, config: TrainConfig) -> None:
        self.running[config.name] = config

    def ended(self, config: TrainConfig, error: str | None) -> None:
        self.running.pop(config.name, None)
        super().ended(config, error)
        self.bar.update(self.task, completed=self.ends)

    def tick(self) -> None:
        if time.monotonic() - self.drawn >= _REDRAW:
            self.drawn = time.monotonic()
            self.live.update(self.view(), refresh=True)

    def view(self) -> RenderableType:
        shown = list(self.running.values())[:_SHOWN]
        lines = [Text(f"  {config.name}: {state(config, self.root)}") for config in shown]
        if len(self.running) > _SHOWN:
            lines.append(Text(f"  and {len(self.running) - _SHOWN} more"))
        return Group(*lines, self.bar)


def state(config: TrainConfig, root: Path) -> str:
    """Where a run is by its metrics: "epoch 3/9, loss 0.412, accuracy 0.88, sparsity 0.85"."""
    try:
        metrics = read_table(root / config.name, "metrics")
    except (OSError, ValueError):
        return "unreadable"
    if not len(metrics["epoch"]):
        return f"epoch 0/{config.epochs}"
    last = {name: float(column[-1]) for name, column in metrics.items()}
    return (
        f"epoch {last['epoch']:.0f}/{config.epochs}, loss {last['train_loss']:.3f}, "
        f"accuracy {last['validation_accuracy']:.3f}, sparsity {last['sparsity']:.3f}, {last['seconds']:.0f} s"
    )


@contextmanager
def watching(todo: list[TrainConfig], root: Path, progress: bool) -> Iterator[Watcher]:
    """On stderr: live in a terminal, a line for each run elsewhere."""
    console = Console(file=sys.stderr)
    if not progress:
        yield _Silent()
    elif console.is_terminal:
        screen = _Screen(len(todo), root, console)
        with screen.live:
            yield screen
    else:
        yield _Lines(len(todo), root, console)
