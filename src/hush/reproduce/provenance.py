"""Where results come from: when and on which machine each run was trained, and by which protocol.

Everything is read from the run directories. A table may be printed on another day and another machine than its runs
were trained on, so the moment of printing says nothing about them and is not mentioned.
"""

import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hush.reproduce.presets import Preset, left_open
from hush.train.result import Run

__all__ = ["NOT_RECORDED", "Provenance", "RunOrigin", "origin_of_run", "protocol", "provenance_of_runs"]

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


@dataclass(frozen=True)
class Provenance:
    """What a set of runs were trained with, when and where, and the time they took in all."""

    versions: Mapping[str, str]
    seconds: float
    origins: tuple[RunOrigin, ...]

    def sentences(self, command: str) -> list[str]:
        """The command, what the runs were trained with, and on which days and machines."""
        if not self.origins:
            return [f"Command: {command}", "Nothing was run yet."]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [
            f"Command: {command}",
            f"Versions: {versions}. Training time: {self.seconds:.0f} s.",
            self.stamp(),
        ]

    def stamp(self) -> str:
        """Every day and every machine of the runs, in one line; several are counted."""
        if not self.origins:
            return "Nothing was run yet."
        parts = []
        recorded = [origin for origin in self.origins if origin.recorded]
        if recorded:
            days = _counted([origin.day for origin in recorded])
            parts.append(f"Trained on {days}; {_counted([origin.machine for origin in recorded])}.")
        if older := [origin for origin in self.origins if not origin.recorded]:
            which = "The runs do" if len(older) == len(self.origins) else f"{len(older)} of {len(self.origins)} runs do"
            days = _counted([origin.day for origin in older])
            parts.append(f"{which} not record when and where; their results were last written on {days}.")
        return " ".join(parts)

    def to_dict(self) -> dict[str, object]:
        return {
            "versions": dict(self.versions),
            "seconds": self.seconds,
            "days": sorted({origin.day for origin in self.origins}),
            "machines": sorted({origin.machine for origin in self.origins}),
            "recorded": all(origin.recorded for origin in self.origins),
        }


def _counted(values: Sequence[str]) -> str:
    """ "2026-11-16", or where there are several "2026-11-16 (3 runs) and 2026-11-17 (2 runs)"."""
    counts = sorted(Counter(values).items())
    if len(counts) == 1:
        return counts[0][0]
    return " and ".join(f"{value} ({count} {'run' if count == 1 else 'runs'})" for value, count in counts)


def origin_of_run(directory: Path) -> RunOrigin:
    """When and where the finished run in `directory` was trained.

    Raises:
        ValueError: if its result cannot be read.
    """
    file = directory / "result.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("provenance")
        if found is not None:
            day = datetime.datetime.fromisoformat(found["finished"]).astimezone(datetime.UTC).date().isoformat()
            machine = f"{found['processor']}, {found['cores']} cores, {found['isa']}"
            return RunOrigin(day, machine, recorded=True)
        written = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date().isoformat()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged: {error}; remove it, and train again to make it anew.") from error
    return RunOrigin(written, NOT_RECORDED, recorded=False)


def provenance_of_runs(runs: Iterable[Run]) -> Provenance:
    """Of those of these runs that are finished; where they differ in a version, all of them are named."""
    versions: dict[str, set[str]] = {}
    seconds, origins = 0.0, []
    for run in runs:
        if run.result is None:
            continue
        seconds += run.result.seconds
        origins.append(origin_of_run(run.directory))
        for name, version in run.result.versions.items():
            versions.setdefault(name, set()).add(version)
    named = {name: " and ".join(sorted(found)) for name, found in sorted(versions.items())}
    return Provenance(named, seconds, tuple(origins))


def protocol(recipe: Preset) -> list[str]:
    """What differs from the paper's protocol, and what the paper leaves open, as a list under a table."""
    if recipe.differences:
        said = [f"Preset {recipe.name}; what differs from the paper's protocol:"]
        said += [f"- {sentence}" for sentence in recipe.differences]
    else:
        said = ["The paper's protocol."]
    if recipe.own:
        seen = ", on the one seed shown" if recipe.seeds == 1 else ""
        said.append(
            f"{len(recipe.own)} recipes for single rows or groups of rows were found by trials on these very "
            f"rows{seen}: what they reach is in-sample."
        )
    return [*said, "What the paper leaves open:", *(f"- {sentence}" for sentence in left_open(recipe.fields))]
