from pathlib import Path

import numpy as np

from hush.reproduce.demo import draw_training
from hush.train import Run, TrainConfig, load_run
from hush.train.tables import write_table
from tests.report.samples import make_diverged, make_run


def _residual(path: Path, **values: object) -> Run:
    """The sample run as one of a residual network."""
    config = TrainConfig(arch="residual_mlp", depth=4, width=20, epochs=3, **values)  # type: ignore[arg-type]
    (path / "config.json").write_text(config.to_json())
    return load_run(path)


def test_what_the_panels_show(tmp_path: Path) -> None:
    exploded = make_diverged(tmp_path / "d")
    write_table(exploded, "metrics", [])
    runs = {
        "ReLU": [_residual(make_run(tmp_path / "a"), activation="relu")],
        "CReLU, held": [_residual(make_run(tmp_path / "b"), sparsity=0.95, hold=True)],
        "CReLU, fixed": [_residual(make_run(tmp_path / "c"), sparsity=0.95)],
        "shifted ReLU, chain": [load_run(exploded)],
    }
    figure = draw_training(runs, 0.95)
    accuracy, loss, zeros, gradient = figure.axes
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), [0.3, 0.6, 0.9])
    # It came apart in its first epoch: a cross at what the test set says, and no loss to draw.
    np.testing.assert_allclose(accuracy.lines[3].get_xydata(), [[0.0, 0.1]])
    assert len(loss.lines) == 3
    # Zeros are those of the two sparse residual networks, and the target.
    assert len(zeros.lines) == 3
    np.testing.assert_allclose(zeros.lines[0].get_ydata(), np.full(17, 0.825))
    np.testing.assert_allclose(zeros.lines[2].get_ydata(), [0.95, 0.95])
    np.testing.assert_allclose(gradient.lines[3].get_ydata(), [1e3, 1e2, 1e1, 1.0])
