"""Up to which density the sparse kernels pay on this machine: measured, kept in a file, never guessed.

For a width and a batch, the dense time t_d and the sparse times at three densities are measured in turns; the sparse
cost grows with the number of active units,

    t_s(ρ) = a + b ρ,      crossover ρ* = (t_d − a) / b,

and a stretch whose density is above ρ* runs dense. Medians of interleaved turns. `accelerate` measures what it does not
know yet, about a second for each width that is met for the first time on a machine; a forward never does, it takes the
nearest of what is known. HUSH_CROSSOVER=always or =never overrules the measurement.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator

import torch

from .crossover_file import CrossoverTable, machine_name
from .crossover_timing import HIGHEST, Setting, measure

__all__ = ["Setting", "describe", "ensure_measured", "fixed_limit", "forced", "forget", "limit", "measure", "table"]

_WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
_BATCHES = (1, 16, 128, 512)
_MOST_FLOPS = 4e9  # of one dense run: a batch beyond 128 that takes more is judged by the next smaller one
_FIXED = 0.3  # pays for every batch from 16 and every width from 128 that has been measured on any machine
_table = CrossoverTable()


def forced() -> float | None:
    """What HUSH_CROSSOVER says, as a limit for everybody."""
    return {"always": 1.0, "never": -1.0}.get(os.environ.get("HUSH_CROSSOVER", ""))


def limit(width: int, batch: int, training: bool, turns: bool, by_gradient: bool = False) -> float:
    """The density up to which a stretch of that width and batch runs sparse: that of the nearest measured setting.

    Where nothing comparable has been measured (a model that was accelerated on another machine), 0: it runs dense.
    """
    overruled = forced()
    if overruled is not None:
        return overruled
    asked = Setting(width, batch, torch.get_num_threads(), training, turns, by_gradient)
    found: float | None = _table.answers.get(asked)
    if found is None:
        known = [(Setting.from_key(key), value) for key, value in _table.known().items()]
        alike = [(_distance(asked, s), value) for s, value in known if s[3:] == asked[3:]]
        # A file of an older version may say more.
        found = _table.answers[asked] = min(HIGHEST, min(alike)[1]) if alike else 0.0
    return found


def fixed_limit() -> float:
    """The density up to which a Linear by itself leaves out zeros where no clock may decide."""
    overruled = forced()
    return _FIXED if overruled is None else overruled


def _distance(a: Setting, b: Setting) -> float:
    """In octaves; another number of threads counts most."""
    width, batch = (abs(math.log2(max(x, 1) / y)) for x, y in ((a.width, b.width), (a.batch, b.batch)))
    return width + batch + 100.0 * abs(a.threads - b.threads)


def ensure_measured(widths: Iterable[int], turns: bool) -> None:
    """Measure what is not known of stretches of these widths on this machine, with as many threads as torch has now.

    `turns`: the weights lie row by row, as torch has them.
    """
    if forced() is not None:
        return
    with _table.lock:
        wanted = [s for width in {_nearest_width(w) for w in widths} for s in _settings_of(width, turns)]
        _table.learn({s.key: measure(s) for s in wanted if s.key not in _table.known()})


def _settings_of(width: int, turns: bool) -> Iterator[Setting]:
    threads = torch.get_num_threads()
    for batch in _BATCHES:
        # The zeros of ∂L/∂out pick rows of a weight, not columns: there it is the other layout that must be turned.
        for setting in (
            Setting(width, batch, threads, training=False, turns=turns),
            Setting(width, batch, threads, training=True, turns=turns),
            Setting(width, batch, threads, training=True, turns=not turns, by_gradient=True),
        ):
            if batch <= 128 or setting.flops <= _MOST_FLOPS:
                yield setting


def table() -> dict[str, float]:
    """What has been measured so far: Setting.key and ρ*."""
    return dict(_table.known())


def forget() -> None:
    """Measure everything again when a model is next accelerated."""
    _table.replace({})


def describe() -> str:
    """The table in words, a line for each setting."""
    lines = [f"{machine_name()}: the engine pays up to this density of active units"]
    for setting, value in sorted((Setting.from_key(key)[::-1], value) for key, value in table().items()):
        by_gradient, turns, training, threads, batch, width = setting
        work = "backward" if by_gradient else "training" if training else "inference"
        layout = "torch's layout" if turns != by_gradient else "input-major"
        lines.append(f"  {work:9}  {layout:14}  width {width:>4}  batch {batch:>3}  threads {threads:>2}  {value:.2f}")
    return "\n".join(lines)


def _nearest_width(value: int) -> int:
    return min(_WIDTHS, key=lambda step: max(step / max(value, 1), max(value, 1) / step))
