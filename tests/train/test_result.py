from pathlib import Path

import pytest

from hush.train import TrainConfig, find_runs, load_run
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
