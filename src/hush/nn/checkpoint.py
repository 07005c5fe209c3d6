"""A saved run in one file: the design, how the network was built, and its state_dict; nothing in it runs code."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hush.nn.models import cnn, mlp
from hush.theory import Design

__all__ = ["load", "save"]


def save(model: nn.Sequential, design: Design, path: str | Path) -> None:
    """Write a network made by `hush.nn.mlp` or `hush.nn.cnn` with its design, for `load` and `hush diagnose`."""
    torch.save({"design": design.to_json(), "network": _network(model), "state_dict": model.state_dict()}, path)


def load(path: str | Path) -> tuple[nn.Sequential, Design]:
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
        design = Design.from_json(saved["design"])
        arguments = dict(saved["network"])
        builders: dict[str, Callable[..., nn.Sequential]] = {"mlp": mlp, "cnn": cnn}
        model = builders[arguments.pop("kind")](design=design, **arguments)
        model.load_state_dict(saved["state_dict"])
    except (KeyError, TypeError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{file} is not a checkpoint that hush.nn.checkpoint.save wrote: {reason}.") from error
    return model, design


def _network(model: nn.Sequential) -> dict[str, Any]:
    """The arguments that build this network again, read off its layers."""
    names = [name for name, _ in model.named_children()]
    first, head = getattr(model, "layer1", None), getattr(model, "head", None)
    depth = sum(name.startswith("layer") for name in names)
    if not isinstance(first, (nn.Linear, nn.Conv1d, nn.Conv2d)) or not isinstance(head, nn.Linear):
        raise ValueError("only networks made by hush.nn.mlp or hush.nn.cnn can be saved so; keep others by state_dict.")
    if isinstance(first, nn.Linear):
        sizes = {"in_features": first.in_features, "out_features": head.out_features, "width": first.out_features}
        return {"kind": "mlp", "depth": depth, **sizes}
    pooled = "pool" in names
    return {
        "kind": "cnn",
        "depth": depth,
        "in_channels": first.in_channels,
        "out_features": head.out_features,
        "channels": first.out_channels,
        "kernel": first.kernel_size[0],
        "dims": len(first.kernel_size),
        "padding": first.padding_mode,
        "pool": "average" if pooled else "none",
        "positions": None if pooled else head.in_features // first.out_channels,
    }
