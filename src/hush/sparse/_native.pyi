"""The compiled kernels (native/module.cpp)."""

from typing import Any

from torch import Tensor

class Optimizer:
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
    ) -> Optimizer: ...

class DictVersions:
    def __init__(self, dicts: list[Any]) -> None: ...
    def same(self) -> bool: ...
    def refresh(self) -> None: ...

class Chain:
    row_major: bool
    def add(
        self,
        weight: Tensor,
        bias: Tensor | None,
        kind: int,
        threshold: float,
        clip: float,
        relative: bool = ...,
        through_scale: bool = ...,
    ) -> None: ...
    def turned(self, threads: int) -> Chain: ...
    def forward(self, h: Tensor, out: Tensor, threads: int) -> tuple[Any, int]: ...
    def infer_at(self, h: int, h_stride: int, batch: int, out: int, out_stride: int, threads: int) -> int: ...
    def first_activations(self, saved: Tensor, out: Tensor) -> None: ...
    def first_inputs(self, saved: Tensor, out: Tensor) -> None: ...
    def mean_inputs(self, saved: Tensor, batch: int, out: Tensor) -> None: ...
    def backward(
        self,
        saved: Tensor,
        grad_out: Tensor,
        grad_h: Tensor | None,
        threads: int,
        wants: list[int],
        optimizers: list[Optimizer],
        groups: list[int],
        addresses: list[int],
        row_gradients: bool,
        means: list[int] = ...,
    ) -> None: ...

class Residual:
    row_major: bool
    def add(
        self,
        weight: Tensor,
        bias: Tensor | None,
        kind: int,
        threshold: float,
        clip: float,
        norm: int,
        eps: float,
        gain: Tensor | None,
        shift: Tensor | None,
        scale: float,
        learned_scale: Tensor | None,
        inner_weight: Tensor | None,
        inner_bias: Tensor | None,
    ) -> None: ...
    def turned(self, threads: int) -> Residual: ...
    def forward(self, h: Tensor, out: Tensor, threads: int) -> tuple[Any, int]: ...
    def infer_at(self, h: int, h_stride: int, batch: int, out: int, out_stride: int, threads: int) -> int: ...
    def first_activations(self, saved: Tensor, out: Tensor) -> None: ...
    def backward(
        self,
        saved: Tensor,
        grad_out: Tensor,
        grad_h: Tensor | None,
        threads: int,
        wants: list[int],
        optimizers: list[Optimizer],
        groups: list[int],
        addresses: list[int],
        row_gradients: bool,
    ) -> None: ...

class Convolution:
    def __init__(self, sizes: list[int], circular: bool, kind: int, threshold: float, clip: float) -> None: ...
    def count(self, x: int, threads: int) -> int: ...
    def list_active(self, x: int, threads: int) -> Any: ...
    def forward(self, saved: Tensor, weight: int, strides: list[int], bias: int, out: int, threads: int) -> None: ...
    def activations(self, saved: Tensor, out: int) -> None: ...
    def backward(
        self,
        saved: Tensor,
        weight: int,
        strides: list[int],
        delta: int,
        dx: int,
        gradient: int,
        gradient_strides: list[int],
        threads: int,
    ) -> None: ...

def unchanged(
    dicts: list[Any],
    keys: list[Any],
    values: list[Any],
    children: list[Any],
    orders: list[Any],
    objects: list[Any],
    types: list[Any],
    hooks: list[Any],
    filled: list[bool],
    tensors: list[Tensor],
    addresses: list[int],
    forms: list[tuple[int, tuple[int, ...]] | None],
    versions: list[int],
    data_ptr: Any,
    numel: Any,
    stride: Any,
    version: Any,
) -> bool: ...
def isa() -> str: ...
def take_bytes(count: int) -> Any: ...
def count_on(addresses: list[int]) -> list[float]: ...
def team() -> str: ...
def flops_a_round() -> int: ...
def multiply(rounds: int) -> float: ...
def read(data: Tensor, passes: int) -> float: ...
