from dataclasses import replace
from pathlib import Path

import pytest

from hush.train import Machine, Outcome, Result, TrainConfig, find_runs, finished_run, load_run
from hush.train.tables import read_table, write_table


def started(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(TrainConfig(v_prime=0.7).to_json())
    return path


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = load_run(started(tmp_path / "run"))
    assert run.result is None
    assert all(len(column) == 0 for table in (run.metrics, run.losses, run.layers) for column in table.values())


def test_tables_keep_every_digit_and_what_is_missing(tmp_path: Path) -> None:
    write_table(tmp_path, "losses", [[0, 1 / 3], [1, float("nan")], [2, float("inf")]])
    table = read_table(tmp_path, "losses")
    assert table["loss"][0] == 1 / 3
    assert str(table["loss"].tolist()[1:]) == "[nan, inf]"


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no run directory"):
        load_run(tmp_path)
    with pytest.raises(ValueError, match="there is no run at"):
        find_runs([tmp_path])


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.csv"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    path = started(tmp_path / "run")
    (path / name).write_text("{")
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        load_run(path)


def test_runs_are_found_in_a_directory(tmp_path: Path) -> None:
    one, two = started(tmp_path / "a"), started(tmp_path / "b")
    assert [run.directory for run in find_runs([tmp_path])] == [one, two]
    assert [run.directory for run in find_runs([two])] == [two]


# As hush 0.1.0 wrote it.
OLD = """{
  "outcome": "failed", "test_accuracy": 0.169, "test_loss": 2.29, "sparsity": 0.85, "train_loss": null, "epochs": 10,
  "steps": 410, "seconds": 4.2, "diverged": null, "gave_up": false, "predicted": "it should train.",
  "predicted_trains": true, "versions": {"hush": "0.1.0"}
}"""


def test_a_result_of_an_earlier_version_says_what_was_not_recorded() -> None:
    result = Result.from_json(OLD)
    assert (result.outcome, result.started, result.ended, result.machine) == (Outcome.FAILED, None, None, None)
    assert (result.when, result.where, result.notes) == ("not recorded", "not recorded", ())
    assert str(result) == "failed: test accuracy 0.169, sparsity 0.850, 10 epochs in 4 s"
    assert Result.from_json(result.to_json()) == result


def test_a_result_keeps_its_date_and_machine() -> None:
    machine = Machine("A processor", 2, 1, "avx2", "Linux x86_64")
    values = {"machine": machine, "started": "2026-11-17T01:00:00+00:00", "ended": "2026-11-17T02:00:00+00:00"}
    result = replace(Result.from_json(OLD), notes=("a note",), **values)
    again = Result.from_json(result.to_json())
    assert again == result
    assert again.when == "2026-11-17"
    assert again.where == "A processor, 2 cores (1 threads used), avx2, Linux x86_64"


def test_the_prediction_is_not_judged_before_its_time() -> None:
    trained, failed, not_yet = (
        replace(Result.from_json(OLD), outcome=outcome)
        for outcome in (Outcome.TRAINED, Outcome.FAILED, Outcome.NOT_YET)
    )
    assert (trained.prediction_held, failed.prediction_held, not_yet.prediction_held) == (True, False, None)


def test_a_finished_run_is_found_and_one_that_is_not_is_none(tmp_path: Path) -> None:
    config = TrainConfig(v_prime=0.7)
    assert finished_run(config, tmp_path) is None
    path = started(tmp_path / config.name)
    assert finished_run(config, tmp_path) is None
    (path / "result.json").write_text(OLD)
    run = finished_run(config, tmp_path)
    assert run is not None
    assert run.result == Result.from_json(OLD)


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", OLD.replace('"failed"', '"glorious"'), OLD.replace("0.169", '"x"')]
)
def test_what_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    path = started(tmp_path / "run")
    (path / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"result.json is damaged: .*remove it"):
        load_run(path)
