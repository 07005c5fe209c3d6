"""Benchmarks run, and their rows are what is promised; no figure is tested here."""

import functools
import json
import subprocess
import sys

import pytest
import torch

from hush import bench
from hush.cli import main
from tests.helpers import digits

KEYS = [
    "work",
    "peer",
    "width",
    "depth",
    "batch",
    "sparsity",
    "threads",
    "median_ms",
    "spread_ms",
    "ratio_to_best_peer",
]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("HUSH_CROSSOVER", "always")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_rows_have_exactly_the_promised_keys():
    rows, absent = bench.inference(width=20, depth=3, batch=1, threads=1, repeats=2, peers=["torch_eager", "torch_csr"])
    assert absent == []
    assert [list(row.to_dict()) for row in rows] == [KEYS] * 4
    assert [row.peer for row in rows] == ["hush", "hush_frozen", "torch_eager", "torch_csr"]
    best = min(row.median_ms for row in rows[2:])
    assert rows[0].ratio_to_best_peer == pytest.approx(best / rows[0].median_ms)
    assert rows[0].ratio_to_bound == pytest.approx(rows[0].ratio_to_best_peer * 0.15)


@pytest.mark.parametrize("work", [bench.training, bench.layer])
def test_training_and_layer(work):
    rows, _ = work(width=20, batch=4, threads=1, repeats=2, peers=["torch_eager"])
    assert {row.setting.work for row in rows} == {work.__name__}
    assert [row.peer for row in rows] == ["hush", "hush_fused", "torch_eager"]


def test_the_random_network_has_its_sparsity():
    for s in (0.5, 0.85, 0.95):
        assert bench.sparsity_of(bench.network(300, 10, s), torch.randn(64, 300)) == pytest.approx(s, abs=0.04)


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("hush.bench.peers.importlib.util.find_spec", lambda name: None)
    _, absent = bench.inference(width=8, depth=2, threads=1, repeats=1, peers=["onnxruntime", "openvino_f32"])
    assert absent == ["onnxruntime", "openvino_f32"]


def test_masks_of_a_trained_network():
    images, labels = digits(128)
    model, accuracy = bench.trained(images, labels, width=24, depth=2, epochs=1)
    assert 0.0 <= accuracy <= 1.0
    rows, _ = bench.inference(threads=1, repeats=1, peers=["torch_eager"], model=model, samples=images)
    assert rows[0].setting.work == "inference-trained"
    assert rows[0].setting.width == 24


def test_wrong_values_are_sentences():
    with pytest.raises(ValueError, match="batch must be at least 1"):
        bench.inference(batch=0)
    with pytest.raises(ValueError, match="no peer here"):
        bench.training(width=8, depth=1, peers=["onnxruntime"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        bench.layer(sparsity=1.0)


def test_the_command_prints_json_and_draws(tmp_path):
    figure = tmp_path / "speed.png"
    command = [sys.executable, "-m", "hush", "bench", "layer", "--width", "16", "--batch", "2", "--repeats", "1"]
    command += ["--sparsity", "0.5", "--peer", "torch_eager", "--json", "--plot", str(figure)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [list(row) for row in json.loads(done.stdout)] == [KEYS] * 3
    assert "sgemm peak" in done.stderr
    assert figure.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--masks", "pretty"], "--masks is random or trained, got 'pretty'."),
        (["--width", "0"], "width must be at least 1, got 0."),
        (["--batch", "-1"], "batch must be at least 1, got -1."),
        (["--depth", "0"], "depth must be at least 1, got 0."),
        (["--threads", "0"], "threads must be at least 1, got 0."),
        (["--repeats", "0"], "repeats must be at least 1, got 0."),
        (["--sparsity", "0.9", "--sparsity", "1"], "The sparsity is 1.0; it must lie between 0 and 1."),
        (["--plot", "nowhere/speed.png"], "--plot is 'nowhere/speed.png', whose folder does not exist."),
        (["--masks", "trained", "--data", "nowhere"], "--data is 'nowhere', which is no folder; give the one with the"),
        (["--peer", "tensorrt"], "'tensorrt' is no peer here; the peers are torch_eager, hush_nn_dense, torch_"),
    ],
)
def test_the_command_refuses_in_a_sentence_before_it_measures(options, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hush", "bench", "inference", *options])
    monkeypatch.setattr(bench, "machine", lambda threads: pytest.fail("the machine was measured first"))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"hush: {sentence}")


def test_dense_hush_modules_count_as_a_peer():
    names = ["torch_eager", "hush_nn_dense"]
    for work in (bench.inference, bench.training):
        rows, _ = work(width=20, depth=2, batch=4, threads=1, repeats=3, peers=names)
        median = {row.peer: row.median_ms for row in rows}
        best = min(median[name] for name in names)
        for row in rows:
            assert row.ratio_to_best_peer == pytest.approx(best / row.median_ms)
            assert row.ratio_to_eager == pytest.approx(median["torch_eager"] / row.median_ms)


@pytest.fixture
def no_inductor(monkeypatch):
    """Graphs are captured and differentiated as ever, but not turned into C++, which takes many seconds."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))


@pytest.mark.usefixtures("no_inductor")
def test_torch_compile_is_a_peer_in_training():
    rows, _ = bench.training(width=8, depth=1, batch=2, threads=1, repeats=1, peers=["torch_compile"])
    assert [row.peer for row in rows] == ["hush", "hush_fused", "torch_compile"]


@pytest.mark.usefixtures("no_inductor")
def test_torch_compile_compiles_at_each_setting():
    from torch._dynamo.utils import counters

    with torch._dynamo.config.patch(recompile_limit=1):
        for width in (8, 12, 16):
            counters.clear()
            bench.inference(width=width, depth=2, batch=4, threads=1, repeats=1, peers=["torch_compile"])
            assert counters["stats"]["unique_graphs"] >= 1
