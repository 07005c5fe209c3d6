"""How a model was accelerated: what its modules are told once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["Layout", "Settings"]

Layout = Literal["torch", "input_major"]


@dataclass(frozen=True)
class Settings:
    """Arguments of `accelerate`, as its docstring explains them."""

    adaptive: bool = True
    frozen: bool = False
    layout: Layout = "torch"
    frozen_dtype: torch.dtype = torch.float32
    watch: bool = True
