"""Where the results of a table come from: the versions, days and machines of its runs, and their protocol.

Everything is read from the run directories.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hush.report.run_origin import RunOrigin, describe_origins, origin_of_run
from hush.reproduce.presets import Preset, left_open
from hush.train.result import Run

__all__ = ["Provenance", "protocol", "provenance_of_runs"]


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
        """Every day and every machine of the runs, in one line."""
        return describe_origins(self.origins)

    def to_dict(self) -> dict[str, object]:
        return {
            "versions": dict(self.versions),
            "seconds": self.seconds,
            "days": sorted({origin.day for origin in self.origins}),
            "machines": sorted({origin.machine for origin in self.origins}),
            "recorded": all(origin.recorded for origin in self.origins),
        }


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
    return [*said, "What the paper leaves open:", *(f"- {sentence}" for sentence in left_open(recipe.fields))]
