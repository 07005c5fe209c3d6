"""The figures that are drawn from runs and measurements, with hand-made ones."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import hush
from hush.reproduce.figures import bands, gradient_norms, loss_curves, odds, speedup
from hush.theory import Band, largest_safe_clip
from hush.train import TrainConfig, load_run


def layers_table(steps: int, depth: int) -> dict[str, np.ndarray]:
    step, layer = (a.ravel().astype(float) for a in np.meshgrid(range(steps), range(1, depth + 1), indexing="ij"))
    return {"step": step, "layer": layer, "weight_gradient_norm": 10.0 ** (step - layer / 10)}


def test_gradient_norms_are_those_of_the_table() -> None:
    table = layers_table(20, 7)
    table["weight_gradient_norm"][3] = 0.0
    figure = gradient_norms.draw_gradient_norms([("a", table), ("b", table)])
    lines = figure.axes[0].lines
    assert len(lines) == 15
    assert np.isnan(lines[0].get_ydata()[3])
    np.testing.assert_allclose(lines[4].get_ydata(), 10.0 ** (4 - np.arange(1, 8) / 10))
    assert figure.axes[0].get_yscale() == "log"


def test_gradient_norms_of_an_empty_run() -> None:
    with pytest.raises(ValueError, match="recorded no gradients"):
        gradient_norms.draw_gradient_norms([("a", {name: values[:0] for name, values in layers_table(1, 1).items()})])


def test_the_first_run_that_explodes_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(activation: str, v_prime: float, data: str, seed: int) -> TrainConfig:
        return TrainConfig(
            data=data, activation=activation, v_prime=v_prime, depth=3, width=16, batch=8, subset=120, epochs=1,
            warmup=0, engine="dense", seed=seed,
        )  # fmt: skip

    monkeypatch.setattr(gradient_norms, "_config", small)
    monkeypatch.setattr(gradient_norms, "_SEEDS", 2)
    with pytest.raises(ValueError, match="none of 2 runs of cst at V′ = 0.8 on digits explodes within 15 steps"):
        gradient_norms.failed_run("cst", 0.8, tmp_path, "digits")
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(gradient_norms, "_EXPLODED", 0.0)
    figure = gradient_norms.gradient_norms(tmp_path, "digits")
    assert [len(panel.lines) for panel in figure.axes[:2]] == [15, 15]
    assert all(np.all(line.get_ydata() > 0.0) for line in figure.axes[0].lines)
    # Each step of the picture is a step of the recorded run.
    run = load_run(tmp_path / small("cst", 0.8, "digits", 0).name)
    recorded = run.layers["weight_gradient_norm"][run.layers["step"] == 4]
    np.testing.assert_allclose(figure.axes[1].lines[4].get_ydata(), recorded)


def write_losses(path: Path, rows: list[str], header: str = "sparsity,clip,seed,step,loss") -> Path:
    path.write_text("\n".join(["# made by hand", header, *rows]) + "\n")
    return path


def test_loss_curves_from_a_file(tmp_path: Path) -> None:
    rows = [f"0.85,0.8094,{seed},{step},{2.0 - step / 100 + seed}" for seed in range(5) for step in range(0, 100, 10)]
    rows.append("0.9,0.5,0,0,1.0")  # of neither panel
    figure = loss_curves.loss_curves(write_losses(tmp_path / "losses.csv", rows))
    left, right = figure.axes
    assert len(left.lines) == 10
    np.testing.assert_allclose(left.lines[2].get_ydata(), 3.0 - np.arange(0, 100, 10) / 100)
    assert [text.get_text() for text in left.get_legend().get_texts()] == [f"seed {i}" for i in range(5)]
    assert right.texts[0].get_text() == "no runs yet"


def test_loss_curves_name_the_accuracy(tmp_path: Path) -> None:
    rows = ["0.9,0.76,3,0,2.3,0.712", "0.9,0.76,3,10,,0.712", "0.9,0.76,3,20,1.0,0.712"]
    path = write_losses(tmp_path / "losses.csv", rows, "sparsity,clip,seed,step,loss,test_accuracy")
    (label,) = loss_curves.loss_curves(path).axes[1].get_legend().get_texts()
    assert label.get_text() == "0.71"


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        ("a,b", [], "has no column 'sparsity'"),
        ("sparsity,clip,seed,step,loss", ["0.85,x,0,0,1"], "line 2, is damaged"),
        ("sparsity,clip,seed,step,loss", ["0.5,0.81,0,0,1"], "no run of CST at s = 0.85, m = 0.81"),
    ],
)
def test_bad_loss_files(header: str, rows: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence):
        loss_curves.loss_curves(write_losses(tmp_path / "losses.csv", rows, header))


def test_no_committed_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hush.reproduce.figures._results._CHECKOUT", tmp_path)
    with pytest.raises(ValueError, match="second_failure_mode.csv is not here"):
        loss_curves.loss_curves()
    with pytest.raises(ValueError, match="no measured speedup in docs/results"):
        speedup.speedup()
    (tmp_path / "docs" / "results").mkdir(parents=True)
    write_losses(tmp_path / "docs" / "results" / "second_failure_mode.csv", ["0.85,0.81,0,0,1", "0.85,0.81,0,9,1"])
    assert isinstance(loss_curves.loss_curves(), Figure)


def test_running_median_leaves_a_spike_out() -> None:
    values = np.ones(9)
    values[4], values[7] = 50.0, np.nan
    np.testing.assert_array_equal(loss_curves.running_median(values), np.ones(9))


def test_odds_agree_with_the_safe_clip() -> None:
    # The clip that the search finds at depth 30 is where one chain in a hundred explodes.
    clip = largest_safe_clip("cst", 0.85, 100, 30)
    at, beyond = (odds.odds_by_depth("cst", 0.85, m, 100, 40).explode for m in (clip, 1.25 * clip))
    assert at[28] == pytest.approx(0.01, abs=0.005)
    assert beyond[28] > 0.02


def test_odds_of_a_shallow_part_are_those_of_a_shallow_network() -> None:
    deep = odds.odds_by_depth("cst", 0.85, 1.6, 100, 40)
    plan = hush.design("cst", 0.85, clip=1.6, width=100, depth=20)
    assert deep.explode[18] == pytest.approx(plan.odds.explode, abs=0.03)
    assert np.all(deep.fail >= deep.explode)


def test_band_counts_the_paths_inside() -> None:
    band = Band((0.5, 0.5), (1.0, 1.0), (2.0, 2.0))
    measured = bands.Measured(np.array([[1.0, 1.5], [0.6, 0.4], [1.0, 3.0], [2.0, 0.5]]), band)
    assert measured.inside == 0.5
    figure = Figure()
    bands.draw_band(figure.subplots(), measured)
    assert len(figure.axes[0].lines) == 5


def test_real_networks_stay_in_their_band() -> None:
    measured = bands.measure(hush.design("crelu", 0.85, v_prime=0.6, width=60, depth=12), seeds=4, inputs=5)
    assert measured.q.shape == (20, 12)
    assert measured.inside >= 0.9
    # The first layer keeps |x|²/N.
    images = hush.data.load("digits", variance=1.0).train.images[:5].double()
    np.testing.assert_allclose(measured.q[:, 0].reshape(4, 5).mean(0), images.square().mean(1), rtol=0.5)


def bench_row(**values: object) -> dict[str, object]:
    row = {"work": "training", "peer": "hush", "width": 512, "batch": 128, "sparsity": 0.85, "ratio_to_best_peer": 3.0}
    return {**row, **values}


def test_speedup_draws_the_bound_and_the_ratios() -> None:
    rows = [bench_row(sparsity=s, ratio_to_best_peer=r) for s, r in ((0.9, 4.0), (0.5, 1.5), (0.85, "3.0"))]
    rows += [
        bench_row(peer="torch_eager", ratio_to_best_peer=1.0),
        bench_row(peer="hush_nn_dense", ratio_to_best_peer=9),
    ]
    rows += [bench_row(work="inference", batch=1, width=w, sparsity=s) for w in (256, 512) for s in (0.5, 0.9)]
    left, right = speedup.draw_speedup(rows).axes
    assert (left.get_title(), right.get_title()) == ("inference, batch 1", "training, batch 128")
    bound = right.lines[0]
    np.testing.assert_allclose(bound.get_ydata() * (1.0 - bound.get_xdata()), 1.0)
    np.testing.assert_allclose(right.lines[-1].get_xydata(), [[0.5, 1.5], [0.85, 3.0], [0.9, 4.0]])


def test_bad_speedups(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no speedup over several sparsities"):
        speedup.draw_speedup([bench_row()])
    with pytest.raises(ValueError, match="there is no file"):
        speedup.speedup(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="has no column 'work'"):
        speedup.speedup(write_losses(tmp_path / "losses.csv", []))
    with pytest.raises(ValueError, match="not both"):
        speedup.speedup(tmp_path / "x.csv", measured=True)
