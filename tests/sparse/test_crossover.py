"""The crossover: the line, the file, the decision."""

import json

import pytest
import torch
from torch import nn

from hush.sparse import accelerate, crossover, engine_calls
from hush.sparse.crossover import Setting
from hush.sparse.crossover_file import CrossoverTable
from hush.sparse.crossover_timing import HIGHEST, crossing


@pytest.fixture(autouse=True)
def own_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path))
    monkeypatch.delenv("HUSH_CROSSOVER", raising=False)
    monkeypatch.setattr(crossover, "_table", CrossoverTable())
    return tmp_path


def test_the_line_and_its_bounds():
    assert crossing((0.1, 0.3, 0.5), (2.0, 4.0, 6.0), 5.0) == pytest.approx(0.85 * 0.4)
    assert crossing((0.1, 0.3, 0.5), (2.0, 4.0, 6.0), 0.5) == 0.0
    assert crossing((0.1, 0.3, 0.5), (2.0, 2.1, 2.2), 50.0) == HIGHEST
    assert crossing((0.1, 0.3, 0.5), (2.0, 2.0, 1.9), 1.0) == 0.0
    assert crossing((0.1, 0.3, 0.5), (2.0, 2.0, 1.9), 3.0) == HIGHEST


def test_measured_once_kept_and_printed(own_file, monkeypatch):
    calls = []
    monkeypatch.setattr(crossover, "measure", lambda setting: calls.append(setting) or 0.4)
    crossover.ensure_measured([300, 280], turns=True)
    for kind in ((False, True, False), (True, True, False), (True, False, True)):
        assert [s.batch for s in calls if (s.training, s.turns, s.by_gradient) == kind] == [1, 16, 128, 512]
    assert {s.width for s in calls} == {256}
    assert len(calls) == 12
    crossover.ensure_measured([300], turns=True)
    assert len(calls) == 12
    (entry,) = json.loads((own_file / "crossover.json").read_text()).values()
    assert entry["256x128x2tr"] == 0.4
    monkeypatch.setattr(crossover, "_table", CrossoverTable())  # as a new process would
    crossover.ensure_measured([300], turns=True)
    assert len(calls) == 12
    assert "backward   torch's layout  width  256  batch 128  threads  2  0.40" in crossover.describe()
    assert "training   torch's layout  width  256  batch 128  threads  2  0.40" in crossover.describe()


def test_the_nearest_measured_setting_decides():
    values = {Setting(256, 128, 2, True, True): 0.4, Setting(256, 1, 2, True, True): 0.1}
    values[Setting(256, 128, 2, False, True)] = 0.2
    values[Setting(256, 128, 2, True, True, by_gradient=True)] = 0.5
    crossover._table.learn({s.key: v for s, v in values.items()})
    assert crossover.limit(300, 100, True, True) == 0.4
    assert crossover.limit(300, 2, True, True) == 0.1
    assert crossover.limit(300, 2, False, True) == 0.2
    assert crossover.limit(300, 2, True, True, by_gradient=True) == 0.5
    assert crossover.limit(300, 2, True, False, by_gradient=True) == 0.0
    assert crossover.limit(300, 2, False, False) == 0.0  # nothing comparable is known
    assert all(Setting.from_key(s.key) == s for s in values)


def test_a_spoilt_file_is_measured_anew(own_file, monkeypatch):
    (own_file / "crossover.json").write_text("not json")
    monkeypatch.setattr(crossover, "measure", lambda setting: 0.3)
    crossover.ensure_measured([64], turns=False)
    assert crossover.limit(64, 1, False, False) == 0.3


@pytest.mark.parametrize("work", [(False, False), (True, False), (True, True)], ids=["forward", "both", "backward"])
@pytest.mark.parametrize("turns", [False, True])
def test_a_real_measurement_is_a_density(work, turns):
    training, by_gradient = work
    small = crossover.measure(Setting(64, 1, 2, training, turns, by_gradient))
    large = crossover.measure(Setting(64, 128, 2, training, turns, by_gradient))
    assert 0.0 <= small <= 1.0
    assert 0.0 <= large <= 1.0


def test_a_forward_measures_nothing_and_writes_nothing(own_file, monkeypatch):
    model = accelerate(nn.Sequential(nn.ReLU(), nn.Linear(20, 20)), adaptive=True)
    (own_file / "crossover.json").unlink()
    monkeypatch.setattr(crossover, "measure", None)  # whoever measures fails
    for batch in (1, 3, 1000):
        model(torch.randn(batch, 20)).sum().backward()
    assert not list(own_file.iterdir())


@pytest.mark.parametrize("head", [[nn.ReLU()], []], ids=["fused", "alone"])
def test_a_dense_stretch_runs_dense_and_comes_back(monkeypatch, head):
    monkeypatch.setattr(crossover, "measure", lambda setting: 0.3)
    model = accelerate(nn.Sequential(*head, nn.Linear(20, 20)))
    dense, quiet = torch.ones(4, 20), torch.zeros(4, 20)
    with torch.no_grad():
        model(dense)
        before = engine_calls()
        for _ in range(10):
            model(dense)
        assert engine_calls() == before
        for _ in range(40):
            model(quiet)
        assert engine_calls() > before
