import dataclasses
import datetime
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("lightning")

import hush
from hush.data import DataError, load
from hush.diagnose.on_digits import diagnose_checkpoint
from hush.nn import checkpoint
from hush.train import RunBusyError, RunError, TrainConfig, load_run, train

# What Lightning and its dependencies warn about is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = TrainConfig(
    depth=4, width=40, v_prime=0.7, epochs=4, batch=64, lr=0.05, schedule="constant", warmup=0, watch=10
)
COMMAND = ["train", "--depth", "4", "--width", "40", "--v-prime", "0.7", "--epochs", "4", "--batch", "64"]
COMMAND += [
    "--lr",
    "0.05",
    "--schedule",
    "constant",
    "--warmup",
    "0",
    "--watch",
    "10",
    "--threads",
    "1",
    "--no-progress",
]


def run_quietly(config: TrainConfig, root: Path):
    return train(config, root, progress=False)


def tables(path: Path) -> dict[str, str]:
    """What a run recorded, but for the clock."""
    metrics = (path / "metrics.csv").read_text().splitlines()
    kept = {"metrics": "\n".join(line.rpartition(",")[0] for line in metrics)}
    kept |= {name: (path / f"{name}.csv").read_text() for name in ("losses", "layers")}
    result = json.loads((path / "result.json").read_text())
    for clock in ("seconds", "started", "ended"):
        del result[clock]
    return kept | {"result": json.dumps(result)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory):
    return run_quietly(SMALL, tmp_path_factory.mktemp("undisturbed"))


def test_a_run_leaves_everything(undisturbed) -> None:
    run = undisturbed
    assert {p.name for p in run.directory.iterdir()} >= {"config.json", "result.json", "last.ckpt", "checkpoint"}
    assert run.config == SMALL
    assert run.metrics["epoch"].tolist() == [1, 2, 3, 4]
    steps = 4 * math.ceil(len(load("digits").train) / 64)
    assert run.result.steps == run.metrics["step"][-1] == steps
    assert run.losses["step"].tolist() == [s for s in range(steps) if s < 15 or s % 10 == 0]
    watched = sorted({*range(15), *range(0, steps, 10)})
    assert np.unique(run.layers["step"]).tolist() == watched
    assert len(run.layers["step"]) == len(watched) * SMALL.depth
    assert (run.layers["gradient_norm"] > 0).all()
    assert (run.layers["weight_gradient_norm"] > 0).all()


def test_the_result_tells_when_and_where_it_was_computed(undisturbed) -> None:
    result = undisturbed.result
    assert datetime.datetime.fromisoformat(result.started) <= datetime.datetime.fromisoformat(result.ended)
    assert result.ended.endswith("+00:00")
    assert result.machine.cores == os.cpu_count()
    assert result.machine.threads == torch.get_num_threads()
    assert result.machine.isa == hush.sparse.isa()
    assert result.machine.processor
    assert result.notes == ()


def test_a_pace_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    train(dataclasses.replace(SMALL, epochs=3), tmp_path, progress=False, say=said.append)
    assert len(said) == 1
    # 3 epochs of 21 steps, of which 26 are over when it is told.
    assert re.fullmatch(
        r"At the pace of these 10 steps, [\d.]+ ms each, the remaining 37 steps of 3 epochs take about \d+ seconds, .*",
        said[0],
    )


def test_a_cnn_is_trained_on_the_engine_as_on_torch(tmp_path: Path) -> None:
    config = TrainConfig(depth=3, width=8, arch="cnn", v_prime=0.7, epochs=1, subset=64)
    before = hush.sparse.engine_calls()
    fast = train(config, tmp_path, progress=False)
    assert hush.sparse.engine_calls() > before
    dense = train(dataclasses.replace(config, engine="dense"), tmp_path, progress=False)
    assert fast.result.notes == dense.result.notes == ()
    assert fast.result.test_loss == pytest.approx(dense.result.test_loss, rel=1e-3)


def test_a_network_that_was_stopped_too_early_is_not_yet_trained(tmp_path: Path) -> None:
    run = run_quietly(dataclasses.replace(SMALL, epochs=2, lr=0.01), tmp_path)
    assert run.result.test_accuracy < 0.5
    assert run.result.outcome == "not yet trained"
    assert re.search(r"the training loss was still falling, by \d%.*; more epochs may train it", str(run.result))


def test_a_broken_config_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / SMALL.name).mkdir()
    (tmp_path / SMALL.name / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is damaged"):
        run_quietly(SMALL, tmp_path)


@pytest.mark.parametrize("where", [{"accelerator": "gpu"}, {"devices": 2, "strategy": "telepathy"}])
def test_where_lightning_cannot_train_is_one_sentence(tmp_path: Path, where: dict) -> None:
    if "accelerator" in where and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RunError, match="Lightning cannot train with accelerator"):
        run_quietly(dataclasses.replace(SMALL, **where), tmp_path)


def test_the_result_is_that_of_the_saved_network(undisturbed) -> None:
    model, plan = checkpoint.load(undisturbed.directory)
    test = load("digits", variance=plan.input_variance).test
    with torch.no_grad():
        right = (model(test.images).argmax(1) == test.labels).double().mean()
    assert undisturbed.result.test_accuracy == pytest.approx(float(right), abs=1e-9)
    zeros, x = [], test.images
    with torch.no_grad():
        for name, module in model.named_children():
            x = module(x)
            if name.startswith("phi"):
                zeros.append(float((x == 0).double().mean()))
    assert undisturbed.result.sparsity == pytest.approx(sum(zeros) / len(zeros), abs=1e-6)
    assert (undisturbed.result.outcome == "trained") == bool(right >= 0.5)


def test_tensorboard_has_the_curves(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(dataclasses.replace(SMALL, epochs=2), tmp_path, progress=False, tensorboard=True)
    events = EventAccumulator(str(run.directory / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("loss")] == run.losses["step"].tolist()
    np.testing.assert_allclose([e.value for e in events.Scalars("loss")], run.losses["loss"], rtol=1e-6)
    kept = [e.value for e in events.Scalars("epoch/validation_accuracy")]
    np.testing.assert_allclose(kept, run.metrics["validation_accuracy"], rtol=1e-6)


def test_a_finished_run_is_only_read(undisturbed) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.directory.iterdir()}
    again = run_quietly(SMALL, undisturbed.directory.parent)
    assert again.result == undisturbed.result
    assert {p: p.stat().st_mtime_ns for p in undisturbed.directory.iterdir()} == before


def test_a_run_of_another_config_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """Another version of hush may have had other defaults, of which the name tells nothing."""
    config = dataclasses.replace(SMALL, epochs=1)
    directory = tmp_path / config.name
    directory.mkdir()
    (directory / "config.json").write_text(dataclasses.replace(config, lr=0.1).to_json())
    with pytest.raises(ValueError, match=r"holds a run with lr = 0.1, not 0.05; move it away to train this one"):
        run_quietly(config, tmp_path)
    (directory / "config.json").unlink()
    run_quietly(config, tmp_path)
    (directory / "config.json").write_text(dataclasses.replace(config, lr=0.1).to_json())
    with pytest.raises(ValueError, match=r"holds a run with lr = 0.1, not 0.05"):
        run_quietly(config, tmp_path)


def test_dense_and_sparse_agree(tmp_path: Path, undisturbed) -> None:
    from dataclasses import replace

    dense = run_quietly(replace(SMALL, engine="dense"), tmp_path)
    np.testing.assert_allclose(dense.losses["loss"], undisturbed.losses["loss"], rtol=2e-3)


def test_killed_again_and_again_it_ends_with_the_same_figures(tmp_path: Path, undisturbed) -> None:
    path = tmp_path / SMALL.name
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from hush.cli import main; main()", *COMMAND, "--root", str(tmp_path)]
    for epoch, how in ((1, signal.SIGKILL), (2, signal.SIGINT)):
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while not (path / "metrics.csv").exists() or len((path / "metrics.csv").read_text().splitlines()) <= epoch:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.002)
            process.send_signal(how)
            process.wait()
        assert not (path / "result.json").exists()
        assert load_run(path).result is None
    run = run_quietly(SMALL, tmp_path)
    assert tables(run.directory) == tables(undisturbed.directory)
    assert not [p for p in path.iterdir() if p.name.startswith((".last", ".metrics"))]


def test_divergence_is_a_result(tmp_path: Path) -> None:
    config = TrainConfig(depth=6, width=20, activation="shifted_relu", sparsity=0.7, lr=1e6, epochs=2, watch=1)
    run = run_quietly(config, tmp_path)
    assert run.result.outcome == "diverged"
    assert run.result.diverged.step >= 1
    assert 1 <= run.result.diverged.layer <= 7
    assert len(run.losses["step"]) >= 1
    assert "diverged: " in str(run.result)


def test_gives_up_at_chance(tmp_path: Path) -> None:
    config = TrainConfig(depth=2, width=20, v_prime=0.7, lr=1e-9, epochs=5, give_up=2)
    result = run_quietly(config, tmp_path).result
    assert (result.outcome, result.gave_up, result.epochs) == ("failed", True, 2)


def test_stops_when_it_is_accurate_enough(tmp_path: Path) -> None:
    run = run_quietly(dataclasses.replace(SMALL, epochs=40, enough=0.5), tmp_path)
    assert (run.result.outcome, run.result.gave_up) == ("trained", False)
    assert run.metrics["validation_accuracy"][-1] >= 0.5
    assert (run.metrics["validation_accuracy"][:-1] < 0.5).all()
    assert run.result.epochs < 40


@pytest.mark.parametrize("early", [{"lr": 1e-9, "give_up": 2}, {"epochs": 40, "enough": 0.5}])
def test_killed_after_an_early_end_it_trains_no_further(tmp_path: Path, early: dict[str, float]) -> None:
    config = dataclasses.replace(SMALL, **early)
    run = run_quietly(config, tmp_path)
    before = tables(run.directory)
    (run.directory / "result.json").unlink()
    assert tables(run_quietly(config, tmp_path).directory) == before


def test_layer_clip_and_schedule_train_a_cnn(tmp_path: Path) -> None:
    config = TrainConfig(
        depth=2, width=8, arch="cnn", v_prime=0.7, epochs=1, layer_clip=0.1, schedule="cosine", warmup=3, subset=200
    )
    run = run_quietly(config, tmp_path)
    assert run.result.steps == 7
    assert run.metrics["learning_rate"][-1] < config.lr


def test_two_processes_share_the_batches(tmp_path: Path) -> None:
    """DDP over gloo: the same steps, and the losses of one process to rounding."""
    alone = run_quietly(TrainConfig(depth=3, width=20, v_prime=0.7, epochs=2, subset=400, batch=40), tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = tmp_path / "hush_main.py"
    script.write_text("from hush.cli import main\nif __name__ == '__main__':\n    main()\n")
    command = [sys.executable, str(script), "train", "--depth", "3", "--width", "20", "--v-prime", "0.7"]
    command += ["--epochs", "2", "--subset", "400", "--batch", "40", "--devices", "2", "--strategy", "ddp"]
    command += ["--accelerator", "cpu", "--threads", "1", "--no-progress", "--root", str(tmp_path)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    together = load_run(tmp_path / TrainConfig(
        depth=3, width=20, v_prime=0.7, epochs=2, subset=400, batch=40, devices=2).name)  # fmt: skip
    assert together.result.steps == alone.result.steps
    np.testing.assert_allclose(together.metrics["validation_loss"], alone.metrics["validation_loss"], rtol=1e-4)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    from hush._files import try_lock

    path = tmp_path / SMALL.name
    path.mkdir()
    with (path / ".lock").open("ab") as lock:
        assert try_lock(lock)
        with pytest.raises(RunBusyError, match="another process is training"):
            run_quietly(SMALL, tmp_path)


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write to .*: what was finished before is intact"):
        run_quietly(SMALL, tmp_path / "file")


def test_a_full_disk_is_a_sentence_and_leaves_what_was_there(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the checkpoint no longer fits, the small tables would."""
    command = [sys.executable, "-c", "from hush.cli import main; main()", *COMMAND, "--root", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=limit, timeout=120)
    assert done.returncode == 2
    assert "cannot write to" in done.stderr
    assert "Traceback" not in done.stderr
    path = tmp_path / SMALL.name
    assert not (path / "result.json").exists()
    assert load_run(path).result is None
    assert run_quietly(SMALL, tmp_path).result is not None


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / SMALL.name
    path.mkdir()
    (path / "last.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(RunError, match=r"last\.ckpt is damaged; remove"):
        run_quietly(SMALL, tmp_path)


def test_too_large_a_subset(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got a subset of 99999"):
        run_quietly(TrainConfig(depth=2, width=20, v_prime=0.7, subset=99999), tmp_path)


def test_scored_on_the_first_images_only(tmp_path: Path) -> None:
    config = TrainConfig(depth=2, width=20, v_prime=0.7, epochs=1, subset=200, scored=30)
    run = run_quietly(config, tmp_path)
    model, design = checkpoint.load(run.directory)
    test = load("digits", variance=design.input_variance).test
    assert len(test) > 30
    with torch.no_grad():
        right = float((model(test.images[:30]).argmax(1) == test.labels[:30]).float().mean())
    assert right == pytest.approx(run.result.test_accuracy, abs=1e-6)


@pytest.mark.parametrize("start", ["even", "white"])
def test_a_cnn_whose_head_reads_all_positions_is_kept_and_diagnosed(tmp_path: Path, start: str) -> None:
    asked = {"pool": "none", "start": start, "center": True, "optimizer": "adamw", "lr": 1e-3, "head_rate": 10.0}
    config = TrainConfig(depth=3, width=16, arch="cnn", v_prime=0.7, epochs=1, subset=128, **asked)
    run = train(config, tmp_path, progress=False)
    model, design = checkpoint.load(run.directory)
    assert model.head.in_features == 16 * 64
    assert design.positions == 64
    test = load("digits", variance=design.input_variance, flat=False).test
    with torch.no_grad():
        right = float((model(test.images).argmax(1) == test.labels).float().mean())
    assert right == pytest.approx(run.result.test_accuracy, abs=1e-6)
    assert len(hush.diagnose(model, test.images, test.labels).layers) >= 3
    assert len(diagnose_checkpoint(run.directory, 32).layers) >= 3
    smaller = train(dataclasses.replace(config, shrink=2), tmp_path, progress=False)
    with pytest.raises(ValueError, match="the embedded digits have 64 positions and the head reads 16"):
        diagnose_checkpoint(smaller.directory, 32)


def test_a_cnn_of_patches_starts_linear(tmp_path: Path) -> None:
    asked = {"patch": 2, "start": "linear", "center": True, "optimizer": "adamw", "lr": 1e-3}
    config = TrainConfig(depth=3, width=16, arch="cnn", v_prime=0.7, epochs=1, subset=128, **asked)
    run = train(config, tmp_path, progress=False)
    assert run.result.epochs == 1
    assert run.config.patch == 2
    with pytest.raises(DataError, match="images of 8 × 8 do not fall into squares of 3 pixels a side"):
        train(dataclasses.replace(config, patch=3), tmp_path, progress=False)
