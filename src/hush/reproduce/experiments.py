"""The paper's tables as experiments: each row, and the configs of its runs under a preset."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from hush.reproduce.paper import PaperRow, load_table
from hush.reproduce.presets import Preset, preset
from hush.train.config import TrainConfig

__all__ = ["EXPERIMENTS", "Experiment", "PaperTable", "TableRow", "experiment", "parse_fields", "select_rows"]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: the name of its file, and for each kind of network in it the kind of recipe."""

    file: str
    parts: Mapping[str, str]


# by the name of the command
EXPERIMENTS = {
    "table1": PaperTable("table1", {"dnn": "deep", "cnn": "cnn"}),
    "table-shallow-unclipped": PaperTable("table_shallow_unclipped", {"dnn": "shallow"}),
    "table-shallow-clipped": PaperTable("table_shallow_clipped", {"dnn": "shallow"}),
}


@dataclass(frozen=True)
class TableRow:
    """A row of the paper's table, counted from 1, and the configs of its runs, one for each seed."""

    number: int
    paper: PaperRow
    configs: tuple[TrainConfig, ...]

    @property
    def name(self) -> str:
        return self.paper.name


@dataclass(frozen=True)
class Experiment:
    """One table, of one kind of network, under one preset. Rows that are not asked for have no configs."""

    name: str
    part: str
    preset: Preset
    rows: tuple[TableRow, ...]

    @property
    def configs(self) -> list[TrainConfig]:
        """Seed 0 of every row first, then seed 1: results come early for all rows."""
        return sorted((c for row in self.rows for c in row.configs), key=lambda c: c.seed)


def experiment(
    name: str,
    preset_name: str = "quick",
    *,
    part: str = "dnn",
    rows: str | None = None,
    seeds: int | None = None,
    given: Mapping[str, Any] | None = None,
) -> Experiment:
    """A table of the paper as configs.

    Arguments:
        name: one of EXPERIMENTS.
        preset_name: smoke, probe, quick or paper.
        part: dnn, or cnn of table1.
        rows: such as "1-5,8" or "crelu-0.85-0.7"; by default those of the preset.
        seeds: runs of a row; by default those of the preset.
        given: fields of TrainConfig that shall differ from the preset.

    Raises:
        ValueError: if there is no such table, part, preset, row or field.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown table {name!r}; there are {', '.join(EXPERIMENTS)}.")
    table = EXPERIMENTS[name]
    if part not in table.parts:
        raise ValueError(f"{name} has no part {part!r}; it has {', '.join(table.parts)}.")
    recipe = preset(preset_name, table.parts[part], seeds).with_fields(given or {})
    paper = load_table(table.file)
    wanted = select_rows(rows, paper) if rows is not None else _usual_rows(paper, recipe)
    return Experiment(
        name,
        part,
        recipe,
        tuple(
            TableRow(number, row, _configs(row, recipe) if number in wanted else ())
            for number, row in enumerate(paper, start=1)
        ),
    )


def _configs(row: PaperRow, recipe: Preset) -> tuple[TrainConfig, ...]:
    slope = None if row.clip is None else row.v_prime
    first = TrainConfig(activation=row.activation, sparsity=row.sparsity, v_prime=slope, **recipe.fields)
    return tuple(first.with_seed(seed) for seed in range(recipe.seeds))


def _usual_rows(paper: list[PaperRow], recipe: Preset) -> set[int]:
    slopes = recipe.v_primes
    usual = {n: row for n, row in enumerate(paper, start=1) if not row.clip or slopes is None or row.v_prime in slopes}
    if recipe.one_each:
        return {max(n for n, row in usual.items() if row.activation == a) for a in {r.activation for r in paper}}
    return set(usual)


def select_rows(text: str, paper: list[PaperRow]) -> set[int]:
    """The numbers of the rows "1-5,8,crelu-0.85-0.7"; "crelu" and "crelu-0.85" mean every row that begins so.

    Raises:
        ValueError: if one is not there.
    """
    found: set[int] = set()
    for word in filter(None, (w.strip() for w in text.split(","))):
        first, _, last = word.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            low, high = int(first), int(last or first)
            # Before the range is made: "1-9999999999" would fill the memory.
            if not 1 <= low <= high <= len(paper):
                raise ValueError(f"there is no row {word}: the table has rows 1 to {len(paper)}.")
            numbers = set(range(low, high + 1))
        else:
            numbers = {n for n, row in enumerate(paper, start=1) if f"{row.name}-".startswith(f"{word}-")}
            if not numbers:
                raise ValueError(f"there is no row {word!r}; its rows are {', '.join(r.name for r in paper)}.")
        found |= numbers
    if not found:
        raise ValueError(f"{text!r} names no row; ask for rows such as 1-5,8 or crelu-0.85-0.7.")
    return found


def parse_fields(words: list[str]) -> dict[str, Any]:
    """ "lr=1e-3" as fields of TrainConfig.

    Raises:
        ValueError: if it is none, or its value is of the wrong kind.
    """
    hints = get_type_hints(TrainConfig)
    # What a row is and how often it is run is not a matter of the recipe.
    fixed = {"activation", "sparsity", "threshold", "clip", "v_prime", "seed"}
    known = [f.name for f in fields(TrainConfig) if f.name not in fixed]
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in known:
            raise ValueError(f"{word!r} sets nothing; write NAME=VALUE with a name of {', '.join(known)}.")
        kind = str(hints[name])
        try:
            if "None" in kind and value.lower() == "none":
                found[name] = None
            elif "bool" in kind:
                found[name] = {"true": True, "false": False}[value.lower()]
            elif "int" in kind:
                found[name] = int(value)
            else:
                found[name] = float(value) if "float" in kind else value
        except (KeyError, ValueError):
            raise ValueError(f"{name} cannot be {value!r}.") from None
    return found
