"""What makes the package `hush.diagnose` callable, and how type checkers see it."""

import sys
from types import ModuleType
from typing import cast

from torch import Tensor, nn

from hush.diagnose import diagnosis, monitor
from hush.diagnose.arguments import Inputs
from hush.diagnose.comparison import diagnose_model
from hush.diagnose.measure import Loss
from hush.theory import Design

__all__ = ["CallablePackage", "diagnose"]


class CallablePackage(ModuleType):
    """The type of the package `hush.diagnose`."""

    Diagnosis: type[diagnosis.Diagnosis]
    Monitor: type[monitor.Monitor]

    def __call__(
        self,
        model: nn.Module,
        inputs: Inputs,
        targets: Tensor | None = None,
        *,
        design: Design | None = None,
        loss: Loss | None = None,
        chunk: int = 128,
        allow: tuple[type[nn.Module], ...] = (),
    ) -> diagnosis.Diagnosis:
        return diagnose_model(model, inputs, targets, design=design, loss=loss, chunk=chunk, allow=allow)

    __call__.__doc__ = diagnose_model.__doc__


diagnose = cast(CallablePackage, sys.modules["hush.diagnose"])
