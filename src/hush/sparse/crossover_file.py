"""The file in which the measured crossovers of this machine are kept."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import torch

from hush._cache_dir import cache_dir
from hush._files import replace_text

from .cpu import isa

__all__ = ["crossover_path", "machine_name", "read_crossovers", "write_crossovers"]


def crossover_path() -> Path:
    """crossover.json in hush's cache."""
    return cache_dir() / "crossover.json"


def machine_name() -> str:
    """What the values hold for: processor, instruction set, torch."""
    return f"{platform.machine()} {isa()}, {os.cpu_count()} processors, torch {torch.__version__}"


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
