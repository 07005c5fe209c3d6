"""The three benchmarks: inference, a full SGD step, and one layer's step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .check import check
from .network import depth_for, network, sparsity_of
from .peers import INFERENCE, TRAINING, inference_peers, training_peers
from .row import Row, Setting
from .timing import compare

__all__ = ["inference", "layer", "training"]

_INPUTS = 64  # different batches that a peer is given in turn


def inference(
    width: int = 300,
    depth: int | None = None,
    batch: int = 1,
    sparsity: float = 0.85,
    threads: int = 2,
    repeats: int = 15,
    peers: Sequence[str] = INFERENCE,
    adaptive: bool = True,
    model: nn.Sequential | None = None,
    samples: Tensor | None = None,
) -> tuple[list[Row], list[str]]:
    """Forward without gradients; the rows, and the names of the peers that are not installed.

    With `model` (Linear and bench.CReLU modules) and `samples`, masks are those of a trained network.
    """
    check("inference", [width], depth, [batch], [sparsity], threads, repeats, peers)
    setting, model, inputs, flops = _prepare("inference", width, depth, batch, sparsity, threads, model, samples)
    works, absent = inference_peers(model, inputs, threads, set(peers), adaptive)
    return compare(setting, works, repeats, 2 * flops), absent


def training(
    width: int = 300,
    depth: int | None = None,
    batch: int = 128,
    sparsity: float = 0.85,
    threads: int = 2,
    repeats: int = 10,
    peers: Sequence[str] = TRAINING,
    adaptive: bool = True,
    model: nn.Sequential | None = None,
    samples: Tensor | None = None,
    work: str = "training",
) -> tuple[list[Row], list[str]]:
    """A full SGD step: zero_grad, forward, backward, update."""
    check(work, [width], depth, [batch], [sparsity], threads, repeats, peers)
    setting, model, inputs, flops = _prepare(work, width, depth, batch, sparsity, threads, model, samples)
    return compare(setting, training_peers(model, inputs, set(peers), adaptive), repeats, 6 * flops), []


def layer(
    width: int = 300,
    batch: int = 128,
    sparsity: float = 0.85,
    threads: int = 2,
    repeats: int = 30,
    peers: Sequence[str] = TRAINING,
    adaptive: bool = True,
) -> tuple[list[Row], list[str]]:
    """One activation → Linear pair: forward, backward and update."""
    return training(width, 1, batch, sparsity, threads, repeats, peers, adaptive, work="layer")


def _prepare(
    work: str,
    width: int,
    depth: int | None,
    batch: int,
    sparsity: float,
    threads: int,
    model: nn.Sequential | None,
    samples: Tensor | None,
) -> tuple[Setting, nn.Sequential, list[Tensor], float]:
    """The setting, the network, its inputs, and the number of active weights that one pass meets."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(2)
    count = max(2, min(_INPUTS, 65536 // (batch * width) + 2))
    if model is None or samples is None:
        depth = depth_for(width) if depth is None else depth
        model = network(width, depth, sparsity)
        inputs = [torch.randn(batch, width, generator=generator) for _ in range(count)]
    else:
        linears = [m for m in model if isinstance(m, nn.Linear)]
        work, width, depth = f"{work}-trained", linears[0].out_features, len(linears) - 1
        order = torch.randint(len(samples), (count, batch), generator=generator)
        inputs = [samples[rows].contiguous() for rows in order]
        sparsity = round(sparsity_of(model, samples[:256]), 3)
    setting = Setting(work, width, depth, batch, sparsity, threads)
    return setting, model, inputs, _active_weights(model, inputs[0])


@torch.no_grad()
def _active_weights(model: nn.Sequential, x: Tensor) -> float:
    total = 0.0
    for module in model:
        if isinstance(module, nn.Linear):
            total += float((x != 0).sum()) * module.out_features
        x = module(x)
    return total
