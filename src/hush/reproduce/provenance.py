"""Where figures come from: the protocol, the command, the versions, the date and the kind of machine."""

import datetime
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hush.reproduce.presets import Preset, left_open
from hush.train.result import Result

__all__ = ["Provenance", "machine_class", "protocol", "provenance"]


@dataclass(frozen=True)
class Provenance:
    """The versions that a set of runs were trained with, and the time it took in all."""

    versions: Mapping[str, str]
    seconds: float

    def sentences(self, command: str) -> list[str]:
        """The command, and where and with what it was run."""
        if not self.versions:
            return [f"Command: {command}", "Nothing was run yet."]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        return [
            f"Command: {command}",
            f"Versions: {versions}. Date: {today}. Machine: {machine_class()}. Training time: {self.seconds:.0f} s.",
        ]


def provenance(results: Iterable[Result]) -> Provenance:
    """Of these results; where they differ in a version, all of them are named."""
    versions: dict[str, set[str]] = {}
    seconds = 0.0
    for result in results:
        seconds += result.seconds
        for name, version in result.versions.items():
            versions.setdefault(name, set()).add(version)
    return Provenance({name: " and ".join(sorted(found)) for name, found in sorted(versions.items())}, seconds)


def protocol(recipe: Preset) -> list[str]:
    """What differs from the paper's protocol, and what the paper leaves open, as a list under a table."""
    if recipe.differences:
        said = [f"Preset {recipe.name}; what differs from the paper's protocol:"]
        said += [f"- {sentence}" for sentence in recipe.differences]
    else:
        said = ["The paper's protocol."]
    return [*said, "What the paper leaves open:", *(f"- {sentence}" for sentence in left_open(recipe.fields))]


def machine_class() -> str:
    """The kind of machine, without its name: "2 cores, AMD EPYC, Linux x86_64"."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return ", ".join(filter(None, [f"{os.cpu_count()} cores", model, f"{platform.system()} {platform.machine()}"]))
