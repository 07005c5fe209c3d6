"""What the engine is timed beside, and the engine itself.

A peer that is not installed is named as absent, never left out silently, and each comes with the result it computes, to
be compared before it is timed.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hush import sparse

from .image_networks import in_order
from .plain_torch import in_plain_torch
from .runtimes import compiled, on_onnxruntime, on_openvino, with_csr_activations
from .timing import Work

__all__ = [
    "INFERENCE",
    "TRAINING",
    "Peer",
    "gradient_reference",
    "inference_peers",
    "output_reference",
    "training_peers",
]

INFERENCE = (
    "torch_eager",
    "torch_nchw",  # of images alone
    "hush_nn_dense",
    "torch_compile",
    "torch_csr",
    "onnxruntime",
    "openvino_f32",
    "openvino_bf16",
)
TRAINING = ("torch_eager", "torch_nchw", "hush_nn_dense", "torch_compile")
_PACKAGES = {"onnxruntime": "onnxruntime", "openvino_f32": "openvino", "openvino_bf16": "openvino"}
_STEP = 1e-7  # a learning rate so small that the network stays where it is while its steps are timed


@dataclass(frozen=True)
class Peer:
    """What is timed, the precision of its weights, and its result on the first of the inputs."""

    precision: str
    work: Work
    result: Callable[[], Tensor]


def output_reference(model: nn.Sequential, x: Tensor) -> Tensor:
    """What every peer must compute in inference: the output of plain torch in float64."""
    with torch.no_grad():
        out: Tensor = in_plain_torch(model).double()(_in_float64(x))
    return out


def gradient_reference(model: nn.Sequential, x: Tensor) -> Tensor:
    """What every step of SGD must go down by: all gradients of plain torch in float64, one after the other."""
    plain = in_plain_torch(model).double()
    loss = (plain(_in_float64(x)) * _loss_weights(model, x).double()).sum()
    return torch.cat([gradient.reshape(-1) for gradient in torch.autograd.grad(loss, list(plain.parameters()))])


def _in_float64(x: Tensor) -> Tensor:
    """Numbers of tokens stay what they are."""
    return x.double() if x.is_floating_point() else x


@torch.no_grad()
def _loss_weights(model: nn.Sequential, x: Tensor) -> Tensor:
    """The loss is the sum of the outputs, each times one of these."""
    return torch.randn(model(x).shape, generator=torch.Generator().manual_seed(1)) / len(x)


def _without_gradients(run: Callable[[Tensor], object], inputs: list[Tensor]) -> Work:
    def work(turn: int) -> object:
        with torch.inference_mode():
            return run(inputs[turn % len(inputs)])

    return work


def _of_output(precision: str, work: Work) -> Peer:
    """A peer whose work gives out the network's output: as a tensor, an array or one of a list or mapping of them."""

    def result() -> Tensor:
        out: Any = work(0)
        if hasattr(out, "values") and not isinstance(out, Tensor):
            out = next(iter(out.values()))
        if isinstance(out, list):
            out = out[0]
        return torch.as_tensor(np.array(out)) if not isinstance(out, Tensor) else out.clone()

    return Peer(precision, work, result)


def _accelerated(model: nn.Sequential, adaptive: bool, **options: Any) -> nn.Sequential:
    """A copy on the engine."""
    twin = copy.deepcopy(model)
    sparse.accelerate(twin, adaptive=adaptive, **options)
    return twin


def inference_peers(
    model: nn.Sequential, inputs: list[Tensor], threads: int, wanted: set[str], adaptive: bool, images: bool = False
) -> tuple[dict[str, Peer], list[str]]:
    """The peers by name, and the names of those that are not installed.

    Of `images`, which lie channels-last, torch runs in its own order too; the engine has one way for them.
    """
    plain = in_plain_torch(model)
    runs: dict[str, Callable[[], Callable[[Tensor], object]]] = {
        "torch_eager": lambda: plain,
        "hush_nn_dense": lambda: copy.deepcopy(model),
        "torch_compile": lambda: compiled(plain),
        "torch_csr": lambda: with_csr_activations(plain),
    }
    ours: dict[str, dict[str, Any]] = {"hush": {}}
    if not images:
        ours["hush_input_major"] = {"layout": "input_major"}
        ours["hush_frozen"] = {"frozen": True, "watch": False}
    peers = {
        name: _of_output("f32", _without_gradients(_accelerated(model, adaptive, **options), inputs))
        for name, options in ours.items()
    }
    if "openvino_bf16" in wanted and not images:
        half = _accelerated(model, adaptive, frozen=True, watch=False, frozen_dtype=torch.bfloat16)
        peers["hush_bf16_weights"] = _of_output("bf16", _without_gradients(half, inputs))
    for name, make in runs.items():
        if name in wanted:
            peers[name] = _of_output("f32", _without_gradients(make(), inputs))
    if images and "torch_nchw" in wanted:
        twin = in_order(in_plain_torch(model), torch.contiguous_format)
        peers["torch_nchw"] = _of_output("f32", _without_gradients(twin, [x.contiguous() for x in inputs]))
    absent = []
    for name, package in _PACKAGES.items():
        if name not in wanted:
            continue
        if importlib.util.find_spec(package) is None or importlib.util.find_spec("onnx") is None:
            absent.append(name)
        elif name == "onnxruntime":
            peers[name] = _of_output("f32", on_onnxruntime(plain, inputs, threads))
        else:
            precision = name.removeprefix("openvino_")
            peers[name] = _of_output(precision, on_openvino(plain, inputs, threads, precision))
    return peers, absent


def training_peers(
    model: nn.Sequential, inputs: list[Tensor], wanted: set[str], adaptive: bool, images: bool = False
) -> dict[str, Peer]:
    """A full SGD step each: zero_grad, forward, backward, update.

    Of `images`, which lie channels-last, torch runs in its own order too; their updates are not fused.
    """
    target = _loss_weights(model, inputs[0])
    if target.dim() == 4:
        target = target.contiguous(memory_format=torch.channels_last)

    def step(net: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, given: list[Tensor] = inputs) -> Work:
        def work(turn: int) -> None:
            optimizer.zero_grad()
            torch.autograd.backward((net(given[turn % len(given)]) * target).sum())
            optimizer.step()

        return work

    def sgd(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(net.parameters(), lr=_STEP)

    peers = {}
    ours: dict[str, dict[str, Any]] = {"hush": {}}
    if not images:
        ours["hush_input_major"] = {"layout": "input_major"}
    for name, options in ours.items():
        twin = _accelerated(model, adaptive, **options)
        own = sgd(twin)
        peers[name] = _of_step(step(twin, own), own)
    if not images:
        fused = copy.deepcopy(model)
        optimizer = sgd(fused)
        sparse.accelerate(fused, optimizer=optimizer, adaptive=adaptive)

        def fused_step(turn: int) -> None:
            sparse.step(fused, (fused(inputs[turn % len(inputs)]) * target).sum())

        peers["hush_fused"] = _of_step(fused_step, optimizer)
    for name, twin, prepare in (
        ("torch_eager", in_plain_torch(model), None),
        ("hush_nn_dense", copy.deepcopy(model), None),
        ("torch_compile", in_plain_torch(model), compiled),
    ):
        if name in wanted:
            optimizer = sgd(twin)
            peers[name] = _of_step(step(prepare(twin) if prepare else twin, optimizer), optimizer)
    if images and "torch_nchw" in wanted:
        twin = in_order(in_plain_torch(model), torch.contiguous_format)
        optimizer = sgd(twin)
        peers["torch_nchw"] = _of_step(step(twin, optimizer, [x.contiguous() for x in inputs]), optimizer)
    return peers


def _of_step(work: Work, optimizer: torch.optim.Optimizer) -> Peer:
    """A peer whose work is a step of SGD; its result is what the step goes down by at a learning rate of 1."""

    @torch.no_grad()
    def result() -> Tensor:
        (group,) = optimizer.param_groups
        before = [parameter.clone() for parameter in group["params"]]
        group["lr"] = 1.0
        with torch.enable_grad():
            work(0)
        group["lr"] = _STEP
        moved = []
        for parameter, old in zip(group["params"], before, strict=True):
            moved.append((old.double() - parameter.double()).reshape(-1))
            parameter.copy_(old)
        return torch.cat(moved)

    return Peer("f32", work, result)
