"""A saved run in one file: the design, how the network was built, and its state_dict; nothing in it runs code."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hush.nn.models import cnn, gpt, mlp, residual_mlp, resnet
from hush.nn.models.description import describe_network
from hush.theory import Design

__all__ = ["load", "save"]

# Each with the name of the argument that takes the activation.
_BUILDERS: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "mlp": (mlp, "design"),
    "cnn": (cnn, "design"),
    "residual_mlp": (residual_mlp, "activation"),
    "resnet": (resnet, "activation"),
    "gpt": (gpt, "activation"),
}


def save(model: nn.Module, design: Design, path: str | Path) -> None:
    """Write a network that a function of `hush.nn` made with its design, for `load` and `hush diagnose`."""
    saved = {"design": design.to_json(), "network": describe_network(model), "state_dict": model.state_dict()}
    torch.save(saved, path)


def load(path: str | Path) -> tuple[nn.Module, Design]:
    """The network and the design that `save` wrote. A run directory stands for the file `checkpoint` in it.

    Raises:
        ValueError: if the file is missing or holds something else.
    """
    path = Path(path)
    file = path / "checkpoint" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"there is no checkpoint at {file}.")
    try:
        # Tensors and plain values only: a checkpoint from elsewhere must not run code.
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}.") from error
    except Exception as error:
        # torch raises whatever its readers of zip archives and pickles happen to raise on a file of another kind.
        raise _not_ours(file, "it is damaged, or a file of another kind") from error
    if not isinstance(saved, dict) or not {"design", "network", "state_dict"} <= saved.keys():
        raise _not_ours(file, "it lacks the design, the network or the state_dict")
    arguments = saved["network"]
    if not isinstance(arguments, dict) or arguments.get("kind") not in _BUILDERS:
        raise _not_ours(file, f"its network is none of {', '.join(_BUILDERS)}")
    sizes = {name: value for name, value in arguments.items() if name != "kind"}
    try:
        design = Design.from_json(saved["design"])
        builder, takes = _BUILDERS[arguments["kind"]]
        model = builder(**{takes: design}, **sizes)
        model.load_state_dict(saved["state_dict"])
    except (AttributeError, KeyError, TypeError, RuntimeError, ValueError) as error:
        # torch lists every missing and superfluous weight, line by line; how it begins is enough.
        raise _not_ours(file, str(error).partition("\n")[0].rstrip(".:")) from error
    return model, design


def _not_ours(file: Path, reason: str) -> ValueError:
    return ValueError(f"{file} is not a checkpoint that hush.nn.checkpoint.save wrote: {reason}.")
