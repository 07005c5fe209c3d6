"""The one verb: a config becomes a run directory, whatever interrupts it in between."""

import contextlib
import copy
import logging
import math
import os
import pickle
import platform
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import nn

import hush
from hush._files import replace_text, try_lock
from hush.nn import center_gradients, checkpoint, linear_start_
from hush.nn.holding import release
from hush.train.config import TrainConfig
from hush.train.errors import Interrupted, RunBusyError, RunError
from hush.train.hold_sparsity import hold_run
from hush.train.machine import this_machine, utc_now
from hush.train.material import Material, load_material
from hush.train.memory import check_memory
from hush.train.network import build
from hush.train.outcome import Outcome, judge_run, judge_text_run
from hush.train.pace import Pace
from hush.train.progress import ProgressLine
from hush.train.record import Ended, Record
from hush.train.result import Divergence, Result, Run, check_same, finished_run, load_run, read_config
from hush.train.scoring import Score, evaluate
from hush.train.task import Diverged, Task

__all__ = ["train"]

_START_INPUTS = 2000  # images on which a linear start measures means and active units


def train(
    config: TrainConfig,
    root: str | Path = "runs",
    *,
    data_dir: str | Path | None = None,
    progress: bool = True,
    tensorboard: bool = False,
    say: Callable[[str], None] | None = None,
) -> Run:
    """Train, or go on training, the run of `config` in the directory `root`/`config.name`; a finished one is only read.

    Arguments:
        data_dir: where your own copy of the data is.
        progress: draw a progress bar on stderr.
        tensorboard: also write TensorBoard's event files, under `tensorboard` in the run directory.
        say: told in sentences what a person should know: how long it will take, what its data are.

    Raises:
        DataError: if the data cannot be had.
        RunError: if the run directory cannot be written or read.
        Interrupted: after Ctrl-C.
    """
    finished = finished_run(config, root)
    if finished is not None:
        return finished
    path = Path(root) / config.name
    check_memory(config)
    material = load_material(config, data_dir, _rank())
    if say is not None:
        for note in material.notes:
            say(note)
    with _writing(path), _quiet():
        # Another process may have finished while this one waited or read the data.
        if not (path / "result.json").is_file():
            _train(config, path, material, progress, tensorboard, say)
    return load_run(path)


def _train(
    config: TrainConfig,
    path: Path,
    material: Material,
    progress: bool,
    tensorboard: bool,
    say: Callable[[str], None] | None,
) -> None:
    if (path / "config.json").is_file():
        check_same(path, read_config(path), config)
    elif _rank() == 0:
        replace_text(path / "config.json", config.to_json())
    model = build(config, material.shape, material.classes)
    if config.start != "drawn":
        assert isinstance(model, nn.Sequential)
        generator = torch.Generator().manual_seed(config.seed)
        how = {"even": config.start == "even", "white": config.start == "white"}
        linear_start_(model, config.design(), material.sample(_START_INPUTS), **how, generator=generator)
    if config.center:
        center_gradients(model)
    if config.hold:
        hold_run(config, model, material.steps)
    task = Task(config, model, config.epochs * material.steps)
    record = Record(config, path, material.validation, material.chance, material.fingerprint)
    callbacks: list[Callback] = [record]
    if say is not None:
        callbacks.append(Pace(config.epochs, say))
    if progress:
        callbacks.append(ProgressLine(record, config.name.rsplit("-", 2)[0], config.epochs))
    trainer = _trainer(config, path, callbacks, tensorboard)
    diverged: Divergence | None = None
    early = gave_up = False
    last = path / "last.ckpt"
    try:
        trainer.fit(task, material.batches(), ckpt_path=str(last) if last.is_file() else None, weights_only=True)
    except SystemExit:  # so Lightning ends after Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if not trainer.interrupted:
            raise
    except Diverged as end:
        diverged = Divergence(end.step, end.layer, end.reason)
    except Ended as end:
        early, gave_up = True, end.gave_up
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        if _is_damaged(last):
            raise RunError(f"{last} is damaged; remove {path} to train this run from its beginning.") from error
        raise
    if trainer.interrupted and diverged is None and not early:
        done = len(record.rows.metrics)
        raise Interrupted(f"stopped; {path} holds {done} of {config.epochs} epochs, the same call goes on.")
    if _rank() == 0:
        record.write()
        _finish(config, path, model, record, material, trainer.global_step, diverged, gave_up)


def _trainer(config: TrainConfig, path: Path, callbacks: list[Callback], tensorboard: bool) -> Trainer:
    loggers: list[Logger] = []
    if tensorboard:
        loggers.append(TensorBoardLogger(path, name=None, version="tensorboard"))
    try:
        return Trainer(
            accelerator=config.accelerator,
            devices=config.devices,
            strategy=config.strategy if config.devices > 1 else "auto",
            precision=config.precision,  # type: ignore[arg-type]
            max_epochs=config.epochs,
            callbacks=callbacks,
            logger=loggers,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            default_root_dir=path,
        )
    except (MisconfigurationException, ValueError) as error:
        where = f"accelerator {config.accelerator}, {config.devices} devices, strategy {config.strategy}"
        raise RunError(f"Lightning cannot train with {where}, precision {config.precision}: {error}") from error


def _finish(
    config: TrainConfig,
    path: Path,
    model: nn.Module,
    record: Record,
    material: Material,
    steps: int,
    diverged: Divergence | None,
    gave_up: bool,
) -> None:
    """Judge, keep the network, and last of all write result.json: a run that has one is done."""
    # A copy, since DDP may still hold the original, whose layout must then stay.
    model = copy.deepcopy(model)
    hush.sparse.decelerate(model)
    release(model)  # the thresholds stay, what the hold has counted is of no use to readers
    plan = config.design()
    score = evaluate(model, material.test)
    scratch = path / f".checkpoint.{os.getpid()}"
    checkpoint.save(model, plan, scratch)
    os.replace(scratch, path / "checkpoint")
    metrics = record.rows.metrics
    outcome, why = _judge(material, score, [row.train_loss for row in metrics], diverged is not None, gave_up)
    result = Result(
        outcome=outcome,
        test_accuracy=score.accuracy,
        test_loss=score.loss,
        sparsity=score.sparsity,
        train_loss=metrics[-1].train_loss if metrics else math.nan,
        epochs=len(metrics),
        steps=steps,
        seconds=round(record.seconds, 3),
        diverged=diverged,
        gave_up=gave_up,
        predicted=plan.verdict,
        predicted_trains=bool(plan.trains),
        versions={
            "hush": hush.__version__,
            "torch": torch.__version__,
            "lightning": lightning.__version__,
            "python": platform.python_version(),
        },
        started=record.started,
        ended=utc_now(),
        machine=this_machine(),
        why=why,
        notes=material.notes,
        layer_sparsity=tuple(round(share, 6) for share in score.layer_sparsity),
        per_byte=material.baseline is not None,
    )
    replace_text(path / "result.json", result.to_json())


def _judge(
    material: Material, score: Score, train_losses: list[float], diverged: bool, gave_up: bool
) -> tuple[Outcome, str]:
    told = {"diverged": diverged, "gave_up": gave_up}
    if material.baseline is None:
        return judge_run(score.accuracy, material.classes, train_losses, **told)
    return judge_text_run(score.loss, material.baseline.single, material.baseline.pair, train_losses, **told)


def _rank() -> int:
    """Which of the processes that Lightning starts this one is; the first one writes."""
    return int(os.environ.get("LOCAL_RANK", 0))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Alone in the run directory; what the disk refuses is one sentence."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            if _rank() == 0:
                lock = stack.enter_context((path / ".lock").open("ab"))
                if not try_lock(lock):
                    raise RunBusyError(f"another process is training {path}; wait for it, or stop it.")
                for leftover in path.glob(".*.ckpt"):
                    leftover.unlink()
            yield
    except OSError as error:
        raise RunError(
            f"cannot write to {path} ({error.strerror or error}): what was finished before is intact, "
            "and the same call goes on once there is room and leave to write."
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's advice: what it warns of (workers, loggers, devices) is decided here on purpose."""
    names = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    levels = {name: logging.getLogger(name).level for name in names}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


def _is_damaged(file: Path) -> bool:
    try:
        torch.load(file, map_location="cpu", weights_only=True)
    except Exception:
        return file.is_file()
    return False
