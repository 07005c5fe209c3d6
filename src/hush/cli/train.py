"""`hush train`."""

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from hush.train.config import TrainConfig


def train_command(
    root: Annotated[Path, typer.Option("--root", help="Where run directories go.")] = Path("runs"),
    data_dir: Annotated[Path | None, typer.Option(help="Where your own copy of the data is.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of torch and the engine.", min=1)] = None,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard's event files too.")] = True,
    progress: Annotated[bool, typer.Option(help="Draw a progress bar.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    **fields: Any,
) -> None:
    """Train one network and leave a run directory: config, curves, layers, checkpoint, result.

    The same command goes on where a stopped or killed one left off, at its last whole epoch, and ends with the same
    figures. A network that comes apart is a result, with the step and the layer it began at.

    Examples:

    hush train --data mnist --depth 30 --sparsity 0.85

    hush train --activation shifted_relu --sparsity 0.85 --epochs 2

    hush train --data mnist --devices 2 --strategy ddp
    """
    config = TrainConfig(**fields)
    verdict = config.design().verdict
    if not as_json:
        typer.echo(f"Before training: {verdict}")
    # torch and Lightning are loaded here and not at the top, so that `hush --help` is quick.
    import torch

    from hush.train import train

    if threads is not None:
        torch.set_num_threads(threads)
    run = train(config, root, directory=data_dir, progress=progress, tensorboard=tensorboard)
    assert run.result is not None
    if as_json:
        typer.echo(run.result.to_json().rstrip())
    else:
        typer.echo(f"After training: {run.result}")
        typer.echo(str(run.directory))


def _with_config_options(command: Any) -> None:
    """Give the command one option for each field of TrainConfig, with the field's own default and help."""
    hints = get_type_hints(TrainConfig)
    own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = []
    for field in dataclasses.fields(TrainConfig):
        flag = f"--{field.name.replace('_', '-')}"
        kind: Any = Annotated[hints[field.name], typer.Option(flag, help=field.metadata["help"])]
        keyword = inspect.Parameter.KEYWORD_ONLY
        options.append(inspect.Parameter(field.name, keyword, default=field.default, annotation=kind))
    parameters = [*options, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}


_with_config_options(train_command)
