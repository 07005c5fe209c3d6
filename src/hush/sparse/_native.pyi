"""The compiled kernels (native/module.cpp)."""

from typing import Any

from torch import Tensor

class Optimiser:
    @staticmethod
    def make(
        kind: int,
        lr: float = ...,
        weight_decay: float = ...,
        momentum: float = ...,
        dampening: float = ...,
        nesterov: bool = ...,
        beta1: float = ...,
        beta2: float = ...,
        eps: float = ...,
        correction1: float = ...,
        correction2: float = ...,
    ) -> Optimiser: ...

class Chain:
    def add(self, weight: Tensor, bias: Tensor | None, kind: int, threshold: float, clip: float) -> None: ...
    def forward(self, h: Tensor, out: Tensor, save: bool, threads: int) -> tuple[Any, int]: ...
    def infer_at(self, h: int, h_stride: int, batch: int, out: int, out_stride: int, threads: int) -> int: ...
    def backward(
        self,
        saved: Tensor,
        grad_out: Tensor,
        grad_h: Tensor | None,
        threads: int,
        wants: list[int],
        optimisers: list[Optimiser],
        groups: list[int],
        addresses: list[int],
    ) -> None: ...

def same(dicts: list[Any], keys: list[str], values: list[Any], addresses: list[int]) -> bool: ...
def filled(dicts: list[Any]) -> bool: ...
def isa() -> str: ...
def team() -> str: ...
