import math
from pathlib import Path

import pytest

from hush.reproduce.demo import row_of
from hush.train import load_run
from tests.report.samples import make_diverged, make_run


def test_a_row_of_two_seeds(tmp_path: Path) -> None:
    runs = [
        load_run(make_run(tmp_path, seed=0, test_accuracy=0.9, layer_sparsity=(0.94, 0.95, 0.96, 0.97))),
        load_run(make_run(tmp_path, seed=1, test_accuracy=0.8, layer_sparsity=(0.93, 0.95, 0.96, 0.96))),
    ]
    row = row_of("CReLU", runs, "It should train.")
    assert row.test_accuracies == (0.9, 0.8)
    assert row.test_accuracy == pytest.approx(0.85)
    assert (row.lowest_layer, row.highest_layer, row.layers) == (0.93, 0.97, 4)
    # The samples' gradient is 10^-layer over four layers.
    assert row.gradient_growth == (pytest.approx(3.0), pytest.approx(3.0))
    assert row.went_as_predicted == (True, True)
    assert row.came_apart == (False, False)
    assert row.seconds == 24.0


def test_one_that_came_apart(tmp_path: Path) -> None:
    path = make_diverged(tmp_path)
    (path / "layers.csv").unlink()
    result = (path / "result.json").read_text().replace('"layer_sparsity": []', '"layer_sparsity": [0.1, 0.9]')
    (path / "result.json").write_text(result)
    row = row_of("shifted ReLU", [load_run(path)], "It will not train.")
    assert row.came_apart == (True,)
    assert row.went_as_predicted == (True,)
    assert math.isnan(row.gradient_growth[0])


def test_an_unfinished_run_has_no_row(tmp_path: Path) -> None:
    runs = [load_run(make_run(tmp_path, finished=False))]
    with pytest.raises(ValueError, match=r"^CReLU needs finished runs, got 0 of 1\.$"):
        row_of("CReLU", runs, "")
