"""`hush train`."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from hush.train.config import FILLED_IN, TrainConfig
from hush.train.memory import check_memory
from hush.train.recipe import expectation
from hush.train.result import Run, finished_run

_DEEP = 50  # layers from which on it is said beforehand what a run will take


def train_command(
    root: Annotated[Path, typer.Option("--root", help="Where run directories go.")] = Path("runs"),
    data_dir: Annotated[Path | None, typer.Option(help="Where your own copy of the data is.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of torch and the engine.", min=1, max=1024)] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard's event files too.")] = False,
    progress: Annotated[bool, typer.Option(help="Draw a progress bar.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    **fields: Any,
) -> None:
    """Train one network and leave a run directory: config, curves, layers, checkpoint, result.

    The same command goes on where a stopped or killed one left off, at its last whole epoch, and ends with the same
    figures. A network that comes apart is a result, with the step and the layer it began at.

    Examples:

    hush train --data digits --depth 30

    hush train --data mnist --depth 30 --sparsity 0.85

    hush train --activation shifted_relu --sparsity 0.85 --epochs 2

    hush train --data mnist --devices 2 --strategy ddp

    hush train --arch residual_mlp --sparsity 0.95 --blocks 30

    hush train --arch residual_mlp --activation relu --blocks 30 --hidden 600

    hush train --arch resnet --data mnist --blocks 9 --width 16

    hush train --arch gpt --sparsity 0.95 --depth 4 --width 192 --epochs 4
    """
    config = TrainConfig(**fields)
    # Neither torch nor the data are needed to see that there is nothing left to do.
    run = finished_run(config, root)
    if run is not None:
        if not as_json:
            typer.echo(f"Finished already ({_when(run)}); remove {run.directory} to train it again.")
    else:
        check_memory(config)
        say = _silent if as_json else typer.echo
        say_before(config, say)
        run = _train(config, root, data_dir, threads, tensorboard, progress, say)
    assert run.result is not None
    if as_json:
        typer.echo(run.result.to_json().rstrip())
    else:
        typer.echo(f"After training: {run.result}")
        typer.echo(str(run.directory))


def _train(
    config: TrainConfig,
    root: Path,
    data_dir: Path | None,
    threads: int | None,
    tensorboard: bool,
    progress: bool,
    say: Callable[[str], None],
) -> Run:
    # torch and Lightning are loaded here and not at the top, so that `hush train --help` is quick.
    from hush.cli._lightning import load_lightning

    load_lightning()
    from hush.sparse import keep_freed_memory
    from hush.train import train

    keep_freed_memory()
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return train(config, root, data_dir=data_dir, progress=progress, tensorboard=tensorboard, say=say)


def say_before(config: TrainConfig, say: Callable[[str], None]) -> None:
    """The verdict, what the recipe chose, and for deep networks what the run will take."""
    design = config.design()
    say(f"Before training: {design.verdict}")
    if config.start != "drawn" and not design.trains:
        say(
            f"That is said of the network as it is drawn. The {config.start} start changes it, and has trained "
            f"networks of which this was said; a clip that hush chooses (no --v-prime, no --clip) is the safer way."
        )
    steps = config.steps_of_an_epoch()
    start = "" if config.start == "drawn" else f", {config.start} start"
    head = "" if config.head_rate == 1.0 else f", the head at {config.head_rate:g} times the rate"
    say(
        f"{config.optimizer}, learning rate {config.lr:g} ({config.schedule}, warm-up over {config.warmup} steps), "
        f"batch {config.batch}, {config.epochs} epochs of {steps} steps"
        f"{', centred gradients' if config.center else ''}{start}{head}."
    )
    if config.depth >= _DEEP and not config.architecture.residual:
        say(f"{config.depth} layers take long: {config.epochs * steps:,} steps. The first of them will tell how long.")
        say(expectation(config.data, config.arch, config.depth))


def _when(run: Run) -> str:
    assert run.result is not None
    return f"ended {run.result.ended}" if run.result.ended else "when was not recorded"


def _silent(_: str) -> None:
    pass


def _with_config_options(command: Any) -> None:
    """Give the command one option for each field of TrainConfig, with the field's own default and help."""
    hints = get_type_hints(TrainConfig)
    own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = []
    for field in dataclasses.fields(TrainConfig):
        flag = f"--{field.name.replace('_', '-')}"
        hint: Any = hints[field.name] | None if field.name in FILLED_IN else hints[field.name]
        flags = (flag, "--blocks") if field.name == "depth" else (flag,)
        if field.name == "center":
            flags = ("--center/--no-center",)  # without either the recipe decides
        kind: Any = Annotated[hint, typer.Option(*flags, help=field.metadata["help"])]
        keyword = inspect.Parameter.KEYWORD_ONLY
        options.append(inspect.Parameter(field.name, keyword, default=field.default, annotation=kind))
    parameters = [*options, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}


_with_config_options(train_command)
