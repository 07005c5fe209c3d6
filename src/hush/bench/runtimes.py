"""How a network in plain torch runs elsewhere: ONNX Runtime, OpenVINO, torch.compile, torch's sparse matrices."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from .timing import Work

__all__ = ["compiled", "on_onnxruntime", "on_openvino", "with_csr_activations"]


class _WrittenOutRMSNorm(nn.Module):
    """nn.RMSNorm in operations that every exporter knows."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight = norm.weight
        self.eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def _onnx(model: nn.Module, x: Tensor) -> bytes:
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.RMSNorm):
                setattr(parent, name, _WrittenOutRMSNorm(child))
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


def on_onnxruntime(model: nn.Module, inputs: list[Tensor], threads: int) -> Work:
    """ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(_onnx(model, inputs[0]), options, providers=["CPUExecutionProvider"])
    feeds = [{"x": np.ascontiguousarray(x.numpy())} for x in inputs]
    return lambda turn: session.run(None, feeds[turn % len(feeds)])


def on_openvino(model: nn.Module, inputs: list[Tensor], threads: int, precision: str) -> Work:
    """OpenVINO on the CPU; precision is f32 or bf16."""
    import openvino

    core = openvino.Core()
    network = core.compile_model(
        core.read_model(io.BytesIO(_onnx(model, inputs[0]))),
        "CPU",
        {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"},
    )
    request = network.create_infer_request()
    values = [np.ascontiguousarray(x.numpy()) for x in inputs]
    return lambda turn: request.infer({0: values[turn % len(values)]})


def with_csr_activations(model: nn.Sequential) -> Callable[[Tensor], Tensor]:
    """torch's own sparse matrices: the activations as CSR at each layer."""

    def run(h: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CSR support is in beta, says torch at each call
            for m in model:
                h = torch.addmm(m.bias, h.to_sparse_csr(), m.weight.t()) if isinstance(m, nn.Linear) else m(h)
        return h

    return run


def compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """By torch.compile."""
    # All Sequentials share one forward, and dynamo keeps at most a few compilations of it: without a reset the ninth
    # setting would be measured uncompiled.
    torch.compiler.reset()
    with warnings.catch_warnings():
        # torch's own compiler still imports a module that uses it.
        warnings.filterwarnings("ignore", "`torch.jit.script_method` is deprecated", DeprecationWarning)
        return torch.compile(model)
