"""What is said of when and where runs were trained comes from the runs, not from whoever prints."""

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hush.report.run_origin import NOT_RECORDED, origin_of_run
from hush.reproduce.comparison_table import compare_results
from hush.reproduce.experiments import experiment
from hush.reproduce.printed_table import render
from hush.reproduce.results import read_results
from hush.train import TrainConfig
from tests.reproduce.runs import write_run

TODAY = datetime.datetime.now(datetime.UTC).date().isoformat()
XEON = {"processor": "Some Xeon", "cores": 2, "isa": "avx512"}
EPYC = {"processor": "Some EPYC", "cores": 64, "isa": "avx2"}


def stamp(directory: Path, finished: str, machine: dict[str, Any]) -> None:
    file = directory / "result.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"provenance": {"started": finished, "finished": finished, **machine}}))


def test_a_run_that_says_when_and_where(tmp_path: Path) -> None:
    directory = write_run(tmp_path, TrainConfig(v_prime=0.7), 0.9, 0.85)
    stamp(directory, "2021-03-04T23:30:00-02:00", XEON)
    origin = origin_of_run(directory)
    assert (origin.day, origin.recorded) == ("2021-03-05", True)
    assert origin.machine == "Some Xeon, 2 cores, avx512"


def test_the_day_and_machine_may_also_stand_by_themselves(tmp_path: Path) -> None:
    directory = write_run(tmp_path, TrainConfig(v_prime=0.7), 0.9, 0.85)
    file = directory / "result.json"
    machine = {**XEON, "threads": 2, "system": "Linux x86_64"}
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"ended": "2021-03-04T10:00:00+00:00", "machine": machine})
    )
    origin = origin_of_run(directory)
    assert (origin.day, origin.machine, origin.recorded) == ("2021-03-04", "Some Xeon, 2 cores, avx512", True)


def test_an_older_run_has_the_day_of_its_file_and_no_machine(tmp_path: Path) -> None:
    directory = write_run(tmp_path, TrainConfig(v_prime=0.7), 0.9, 0.85)
    when = datetime.datetime(2020, 5, 6, 12, tzinfo=datetime.UTC).timestamp()
    os.utime(directory / "result.json", (when, when))
    origin = origin_of_run(directory)
    assert (origin.day, origin.machine, origin.recorded) == ("2020-05-06", NOT_RECORDED, False)


def test_a_damaged_stamp_is_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path, TrainConfig(v_prime=0.7), 0.9, 0.85)
    stamp(directory, "yesterday", XEON)
    with pytest.raises(ValueError, match="result.json is damaged: .*yesterday"):
        origin_of_run(directory)


def test_a_table_names_every_day_and_machine_of_its_runs_and_not_the_day_it_is_printed(tmp_path: Path) -> None:
    made = experiment("table-shallow-clipped", "quick", rows="8", seeds=3)
    first, second, third = (write_run(tmp_path, config, 0.9, 0.85) for config in made.configs)
    stamp(first, "2021-03-04T10:00:00+00:00", XEON)
    stamp(second, "2021-03-04T11:00:00+00:00", XEON)
    stamp(third, "2021-03-09T11:00:00+00:00", EPYC)
    table = read_results(made, tmp_path)
    assert table.origin.stamp() == (
        "Trained on 2021-03-04 (2 runs) and 2021-03-09 (1 run); "
        "Some EPYC, 64 cores, avx2 (1 run) and Some Xeon, 2 cores, avx512 (2 runs)."
    )
    printed = compare_results(table, "hush")
    for form in ("markdown", "csv", "latex", "rich"):
        text = render([printed], form, width=400)
        assert "2021-03-09" in text
        assert "Some Xeon" in text
        assert TODAY not in text


def test_runs_that_record_nothing_are_said_to(tmp_path: Path) -> None:
    made = experiment("table-shallow-clipped", "quick", rows="8", seeds=2)
    old, new = (write_run(tmp_path, config, 0.9, 0.85) for config in made.configs)
    when = datetime.datetime(2020, 5, 6, 12, tzinfo=datetime.UTC).timestamp()
    os.utime(old / "result.json", (when, when))
    stamp(new, "2021-03-04T10:00:00+00:00", XEON)
    assert read_results(made, tmp_path).origin.stamp() == (
        "Trained on 2021-03-04; Some Xeon, 2 cores, avx512. "
        "1 of 2 runs do not record when and where; their results were last written on 2020-05-06."
    )
