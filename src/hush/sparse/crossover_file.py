"""The file in which the measured crossovers of this machine are kept, and what a process knows of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import torch

import hush
from hush._cache_dir import cache_dir
from hush._files import replace_text
from hush._processor import processor_name

from .cpu import isa

__all__ = ["CrossoverTable", "crossover_path", "machine_name", "read_crossovers", "write_crossovers"]


def crossover_path() -> Path:
    """crossover.json in hush's cache."""
    return cache_dir() / "crossover.json"


def machine_name() -> str:
    """What the values hold for: processor, instruction set, and the versions whose kernels were compared."""
    versions = f"torch {torch.__version__}, hush {hush.__version__}"
    return f"{processor_name()}, {isa()}, {os.cpu_count()} processors, {versions}"


def read_crossovers(section: str = "") -> dict[str, float]:
    """What is known of this machine, in this section of the file; nothing where there is no file or it is not ours."""
    try:
        known = json.loads(crossover_path().read_text()).get(machine_name() + section, {})
        return {str(key): min(1.0, max(0.0, float(value))) for key, value in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_crossovers(known: dict[str, float], section: str = "") -> None:
    """Replace this machine's section. A file that cannot be written is no error: it is measured again next time."""
    target = crossover_path()
    try:
        try:
            whole = json.loads(target.read_text())
        except (OSError, ValueError):
            whole = {}
        whole = {**(whole if isinstance(whole, dict) else {}), machine_name() + section: known}
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_text(target, json.dumps(whole, indent=1, sort_keys=True))
    except OSError:
        pass


class CrossoverTable:
    """One section of the file, read when it is first asked for.

    Attributes:
        lock: held by whoever measures, so that two threads do not measure the same.
        answers: what has been looked up since the last measurement.
    """

    def __init__(self, section: str = "") -> None:
        self.lock = threading.RLock()
        self.answers: dict[Hashable, Any] = {}
        self._section = section
        self._known: dict[str, float] | None = None

    def known(self) -> dict[str, float]:
        """Every measured crossover by its key; to be read only."""
        with self.lock:
            if self._known is None:
                self._known = read_crossovers(self._section)
            return self._known

    def learn(self, measured: dict[str, float]) -> None:
        """Keep these too, here and in the file."""
        if measured:
            self.replace({**self.known(), **measured})

    def replace(self, known: dict[str, float]) -> None:
        """Keep these instead, here and in the file."""
        with self.lock:
            self._known = known
            self.answers.clear()
            write_crossovers(known, self._section)
