"""The whole demo, of networks so small that they learn little: the claims are then allowed to fail."""

import json
from pathlib import Path

import pytest
import torch

import hush
from hush.nn import checkpoint
from hush.reproduce.demo import Demo, demo_networks, run_demo, step_times, story
from hush.train import load_run

pytest.importorskip("lightning")

SMALL = demo_networks(depth=3, width=24, epochs=2)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def demo(root: Path, told: list[str]) -> Demo:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUSH_CACHE", str(root / "cache"))
        patch.setattr(step_times, "_TURNS", 1)
        return run_demo(root, seeds=1, networks=SMALL, say=told.append, progress=False)


def test_every_row_is_that_of_its_run(demo: Demo, root: Path) -> None:
    for row, (name, config) in zip(demo.networks, SMALL.items(), strict=True):
        result = load_run(root / config.name).result
        assert result is not None
        assert (row.name, row.test_accuracies, row.zeros) == (name, (result.test_accuracy,), (result.sparsity,))
        assert row.layer_zeros == ((min(result.layer_sparsity), max(result.layer_sparsity)),)
        assert row.predicted == config.design().verdict


def test_the_held_network_keeps_its_zeros_and_the_other_does_not(demo: Demo) -> None:
    _, held, drifting, _ = demo.networks
    assert abs(held.mean_zeros - 0.95) < abs(drifting.mean_zeros - 0.95)


def test_each_network_is_judged_before_it_is_trained(demo: Demo, told: list[str]) -> None:
    lines = [line.strip() for line in told]
    for number, row in enumerate((demo.networks[0], demo.networks[1], demo.networks[3])):
        judged, trained = lines.index(f"diagnosed  {row.diagnosed}"), lines.index(f"seed 0     {row.outcomes[0]}")
        assert judged < trained, number


def test_step_times(demo: Demo, root: Path) -> None:
    assert [(step.network, step.accelerated) for step in demo.steps] == [
        ("ReLU", False),
        ("CReLU, held", False),
        ("CReLU, held", True),
        ("CReLU, chain", False),
        ("CReLU, chain", True),
    ]
    assert all(step.ms > 0.0 for step in demo.steps)
    # Whatever this version of the engine fuses of the residual network is what the demo tells.
    model, _ = checkpoint.load(root / SMALL.held.name)
    taken = hush.sparse.report(hush.sparse.accelerate(model, adaptive=False)).taken
    assert demo.steps[2].fused == sum(len(names) for names in taken)
    assert demo.steps[2].linears == 2 * 3 + 2
    assert (demo.steps[4].fused, demo.steps[4].linears) == (3, 4)


def test_the_files(demo: Demo) -> None:
    assert demo.figure.read_bytes().startswith(b"\x89PNG")
    assert "<html" in demo.report.read_text(encoding="utf-8")


def test_the_json_is_strict_and_complete(demo: Demo) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    values = json.loads(demo.to_json(), parse_constant=refuse)
    assert [row["name"] for row in values["networks"]] == [name for name, _ in SMALL.items()]
    assert [claim["holds"] for claim in values["claims"]] == [claim.holds for claim in demo.claims]
    assert values["steps"][0]["ms"] == demo.steps[0].ms
    assert Path(values["figure"]) == demo.figure


def test_what_is_finished_is_read_and_says_so(demo: Demo, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "time_steps", lambda dense, held: demo.steps)
    before = {config.name: (root / config.name / "result.json").stat().st_mtime_ns for _, config in SMALL.items()}
    weights = checkpoint.load(root / SMALL.held.name)[0].state_dict()
    said: list[str] = []
    again = run_demo(root, seeds=1, networks=SMALL, say=said.append, progress=False)
    assert again.networks == demo.networks
    assert sum("(read: it was finished on " in line for line in said) == 4
    assert before == {name: (root / name / "result.json").stat().st_mtime_ns for name in before}
    for name, value in checkpoint.load(root / SMALL.held.name)[0].state_dict().items():
        assert torch.equal(value, weights[name])


def test_no_seed_is_no_demo(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^seeds must be at least 1, got 0\.$"):
        run_demo(tmp_path, seeds=0)
