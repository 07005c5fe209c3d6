"""The runtimes a figure is compared with. A peer that is not installed is named as absent, never skipped silently."""

from __future__ import annotations

import copy
import importlib.util
import io
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import hush.nn as hn
from hush import sparse

from .network import CReLU
from .timing import Work

__all__ = ["INFERENCE", "TRAINING", "inference_peers", "training_peers"]

INFERENCE = (
    "torch_eager",
    "hush_nn_dense",
    "torch_compile",
    "torch_csr",
    "onnxruntime",
    "openvino_f32",
    "openvino_bf16",
)
TRAINING = ("torch_eager", "hush_nn_dense", "torch_compile")


def _onnx(model: nn.Module, x: Tensor) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (x,),
            buffer,  # type: ignore[arg-type]
            input_names=["x"],
            output_names=["y"],
            dynamo=False,
        )
    return buffer.getvalue()


def _onnxruntime(model: nn.Module, inputs: list[Tensor], threads: int) -> Work:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(_onnx(model, inputs[0]), options, providers=["CPUExecutionProvider"])
    feeds = [{"x": x.numpy()} for x in inputs]
    return lambda turn: session.run(None, feeds[turn % len(feeds)])


def _openvino(model: nn.Module, inputs: list[Tensor], threads: int, precision: str) -> Work:
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(io.BytesIO(_onnx(model, inputs[0]))),
        "CPU",
        {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"},
    )
    request = compiled.create_infer_request()
    values = [np.ascontiguousarray(x.numpy()) for x in inputs]
    return lambda turn: request.infer({0: values[turn % len(values)]})


def _csr(model: nn.Sequential) -> Callable[[Tensor], Tensor]:
    """torch's own sparse matrices: the activations as CSR at each layer."""

    def run(h: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CSR support is in beta, says torch at each call
            for m in model:
                h = torch.addmm(m.bias, h.to_sparse_csr(), m.weight.t()) if isinstance(m, nn.Linear) else m(h)
        return h

    return run


def _without_gradients(run: Callable[[Tensor], object], inputs: list[Tensor]) -> Work:
    def work(turn: int) -> object:
        with torch.inference_mode():
            return run(inputs[turn % len(inputs)])

    return work


def _compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    # All Sequentials share one forward, and dynamo keeps at most a few compilations of it: without a reset the ninth
    # setting would be measured uncompiled.
    torch.compiler.reset()
    with warnings.catch_warnings():
        # torch's own compiler still imports a module that uses it.
        warnings.filterwarnings("ignore", "`torch.jit.script_method` is deprecated", DeprecationWarning)
        return torch.compile(model)


def _hushed(model: nn.Sequential) -> nn.Sequential:
    """A copy in which the benchmark's own CReLU is swapped for the library's."""
    return nn.Sequential(*(hn.CReLU(m.threshold, m.clip) if isinstance(m, CReLU) else copy.deepcopy(m) for m in model))


def _accelerated(model: nn.Sequential, adaptive: bool, frozen: bool = False, half: bool = False) -> nn.Sequential:
    """A copy on the engine."""
    twin = _hushed(model)
    sparse.accelerate(twin, adaptive=adaptive, frozen=frozen)
    if half:
        taken = {name for run in sparse.report(twin).taken for name in run}
        for name, m in twin.named_children():
            if isinstance(m, nn.Linear) and name in taken:
                m.weight.requires_grad_(False).data = m.weight.data.bfloat16()
    return twin


def inference_peers(
    model: nn.Sequential, inputs: list[Tensor], threads: int, wanted: set[str], adaptive: bool
) -> tuple[dict[str, tuple[str, Work]], list[str]]:
    """name → (precision, work), and the names of those that are not installed."""
    works: dict[str, tuple[str, Work]] = {
        "hush": ("f32", _without_gradients(_accelerated(model, adaptive), inputs)),
        "hush_frozen": ("f32", _without_gradients(_accelerated(model, adaptive, frozen=True), inputs)),
    }
    if "openvino_bf16" in wanted:
        half = _accelerated(model, adaptive, frozen=True, half=True)
        works["hush_bf16_weights"] = ("bf16", _without_gradients(half, inputs))
    if "torch_eager" in wanted:
        works["torch_eager"] = ("f32", _without_gradients(model, inputs))
    if "hush_nn_dense" in wanted:
        works["hush_nn_dense"] = ("f32", _without_gradients(_hushed(model), inputs))
    if "torch_compile" in wanted:
        works["torch_compile"] = ("f32", _without_gradients(_compiled(model), inputs))
    if "torch_csr" in wanted:
        works["torch_csr"] = ("f32", _without_gradients(_csr(model), inputs))
    absent = []
    for name, package in (("onnxruntime", "onnxruntime"), ("openvino_f32", "openvino"), ("openvino_bf16", "openvino")):
        if name not in wanted:
            continue
        if importlib.util.find_spec(package) is None or importlib.util.find_spec("onnx") is None:
            absent.append(name)
        elif name == "onnxruntime":
            works[name] = ("f32", _onnxruntime(model, inputs, threads))
        else:
            precision = name.split("_")[1]
            works[name] = (precision, _openvino(model, inputs, threads, precision))
    return works, absent


def training_peers(
    model: nn.Sequential, inputs: list[Tensor], wanted: set[str], adaptive: bool
) -> dict[str, tuple[str, Work]]:
    """A full SGD step each: zero_grad, forward, backward, update."""
    with torch.no_grad():
        shape = model(inputs[0]).shape
    target = torch.randn(shape, generator=torch.Generator().manual_seed(1)) / len(inputs[0])

    def step(net: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer) -> Work:
        def work(turn: int) -> None:
            optimizer.zero_grad()
            (net(inputs[turn % len(inputs)]) * target).sum().backward()
            optimizer.step()

        return work

    def sgd(net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(net.parameters(), lr=1e-7)  # small: the network must stay where it is while we look

    fast, fused = _accelerated(model, adaptive), _accelerated(model, adaptive)
    optimizer = sgd(fused)
    sparse.accelerate(fused, optimizer=optimizer, adaptive=adaptive)
    works: dict[str, tuple[str, Work]] = {"hush": ("f32", step(fast, sgd(fast)))}
    works["hush_fused"] = ("f32", step(fused, optimizer))
    if "torch_eager" in wanted:
        eager = copy.deepcopy(model)
        works["torch_eager"] = ("f32", step(eager, sgd(eager)))
    if "hush_nn_dense" in wanted:
        dense = _hushed(model)
        works["hush_nn_dense"] = ("f32", step(dense, sgd(dense)))
    if "torch_compile" in wanted:
        twin = copy.deepcopy(model)
        works["torch_compile"] = ("f32", step(_compiled(twin), sgd(twin)))
    return works
