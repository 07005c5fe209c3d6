"""Benchmarks run, and their rows are what is promised; no figure is tested here."""

import json
import subprocess
import sys

import pytest
import torch

from hush import bench
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


def test_the_command_refuses_in_a_sentence():
    command = [sys.executable, "-m", "hush", "bench", "inference", "--masks", "pretty"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "hush: --masks is random or trained, got 'pretty'.\n"
