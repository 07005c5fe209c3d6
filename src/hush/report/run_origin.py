"""When and where runs were trained, read from their directories.

A table or a picture may be made on another day and another machine than its runs were trained on, so the moment of
printing says nothing about them and is not mentioned.
"""

import datetime
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["NOT_RECORDED", "RunOrigin", "describe_origins", "origin_of_run"]

NOT_RECORDED = "machine not recorded"


@dataclass(frozen=True)
class RunOrigin:
    """When and where one run was trained.

    Attributes:
        day: the UTC date on which it finished, in ISO form.
        machine: its processor, cores and instruction set, or NOT_RECORDED.
        recorded: whether the run itself says so. A run of an older hush does not: its day is then that on which its
            result was last written, which a copy of the directory may have changed.
    """

    day: str
    machine: str
    recorded: bool


def describe_origins(origins: Sequence[RunOrigin]) -> str:
    """Every day and every machine of these runs, in one line; several are counted."""
    if not origins:
        return "Nothing was run yet."
    parts = []
    recorded = [origin for origin in origins if origin.recorded]
    if recorded:
        days = _counted([origin.day for origin in recorded])
        parts.append(f"Trained on {days}; {_counted([origin.machine for origin in recorded])}.")
    if older := [origin for origin in origins if not origin.recorded]:
        which = "The runs do" if len(older) == len(origins) else f"{len(older)} of {len(origins)} runs do"
        days = _counted([origin.day for origin in older])
        parts.append(f"{which} not record when and where; their results were last written on {days}.")
    return " ".join(parts)


def _counted(values: Sequence[str]) -> str:
    """ "2026-11-16", or where there are several "2026-11-16 (3 runs) and 2026-11-17 (2 runs)"."""
    counts = sorted(Counter(values).items())
    if len(counts) == 1:
        return counts[0][0]
    return " and ".join(f"{value} ({count} {'run' if count == 1 else 'runs'})" for value, count in counts)


def _recorded(values: dict[str, Any]) -> dict[str, Any] | None:
    """When the run finished and on what processor, as its result says it; None where it does not."""
    if values.get("ended") is not None and values.get("machine") is not None:
        return {"finished": values["ended"], **values["machine"]}
    found: dict[str, Any] | None = values.get("provenance")
    return found


def origin_of_run(directory: Path) -> RunOrigin:
    """When and where the finished run in `directory` was trained.

    Raises:
        ValueError: if its result cannot be read.
    """
    file = directory / "result.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        found = _recorded(values)
        if found is not None:
            day = datetime.datetime.fromisoformat(found["finished"]).astimezone(datetime.UTC).date().isoformat()
            machine = f"{found['processor']}, {found['cores']} cores, {found['isa']}"
            return RunOrigin(day, machine, recorded=True)
        written = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date().isoformat()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged: {error}; remove it, and train again to make it anew.") from error
    return RunOrigin(written, NOT_RECORDED, recorded=False)
