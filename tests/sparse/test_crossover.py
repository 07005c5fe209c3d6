"""The crossover: the line, the file, the decision."""

import json

import pytest
import torch
from torch import nn

from hush.sparse import accelerate, crossover
from hush.sparse.crossover import crossing


@pytest.fixture(autouse=True)
def own_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path))
    monkeypatch.delenv("HUSH_CROSSOVER", raising=False)
    monkeypatch.setattr(crossover, "_known", None)
    monkeypatch.setattr(crossover, "_limits", {})
    return tmp_path


def test_the_line_and_its_bounds():
    assert crossing((0.1, 0.3, 0.5), (2.0, 4.0, 6.0), 5.0) == pytest.approx(0.85 * 0.4)
    assert crossing((0.1, 0.3, 0.5), (2.0, 4.0, 6.0), 0.5) == 0.0
    assert crossing((0.1, 0.3, 0.5), (2.0, 2.1, 2.2), 50.0) == pytest.approx(0.85)
    assert crossing((0.1, 0.3, 0.5), (2.0, 2.0, 1.9), 1.0) == 0.0
    assert crossing((0.1, 0.3, 0.5), (2.0, 2.0, 1.9), 3.0) == 1.0


def test_measured_once_kept_and_printed(own_file, monkeypatch):
    calls = []
    monkeypatch.setattr(crossover, "measure", lambda *a: calls.append(a) or 0.4)
    assert crossover.limit(300, 100, True) == 0.4
    assert crossover.limit(300, 100, True) == 0.4
    assert calls == [(256, 128, True)]
    (entry,) = json.loads((own_file / "crossover.json").read_text()).values()
    assert entry == {"256x128x2t": 0.4}
    monkeypatch.setattr(crossover, "_known", None)  # as a new process would
    monkeypatch.setattr(crossover, "_limits", {})
    assert crossover.limit(300, 100, True) == 0.4
    assert len(calls) == 1
    assert "training   width  256  batch 128  threads  2  0.40" in crossover.describe()


def test_a_spoilt_file_is_measured_anew(own_file, monkeypatch):
    (own_file / "crossover.json").write_text("not json")
    monkeypatch.setattr(crossover, "measure", lambda *a: 0.3)
    assert crossover.limit(64, 1, False) == 0.3


@pytest.mark.parametrize("training", [False, True])
def test_a_real_measurement_is_a_density(training):
    assert 0.0 <= crossover.measure(64, 16, training) <= 1.0


def test_a_dense_link_runs_dense_and_comes_back(monkeypatch):
    monkeypatch.setattr(crossover, "measure", lambda *a: 0.3)
    model = accelerate(nn.Sequential(nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 20)))
    link = model.forward.steps[0]
    sparse_runs = []
    prepared = link._prepare()
    monkeypatch.setattr(link, "_note", lambda *a: (sparse_runs.append(1), type(link)._note(link, *a)))
    dense, quiet = torch.ones(4, 20), -torch.ones(4, 20)
    assert prepared.units == 40
    with torch.no_grad():
        model(dense)
        assert len(sparse_runs) == 1  # the first look
        for _ in range(10):
            model(dense)
        assert len(sparse_runs) == 1
        for _ in range(40):
            model(quiet)
        assert len(sparse_runs) > 1
