"""The three benchmarks: inference, a full SGD step, and one layer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .arguments import check_arguments
from .image_networks import IMAGE_ARCHS, IMAGE_NETWORKS, active_weights_of, depth_of_images, random_images
from .measurement import Measurement, Setting
from .peers import (
    INFERENCE,
    TRAINING,
    Peer,
    gradient_reference,
    inference_peers,
    output_reference,
    training_peers,
)
from .random_networks import Arch, activations_read, depth_for, random_network, random_residual, sparsity_of
from .timing import Timed, compare
from .verification import verify

__all__ = ["inference", "layer", "training"]

_INPUTS = 64  # different batches that a peer is given in turn


@dataclass(frozen=True)
class _Prepared:
    """The setting, the network, its inputs, and the number of active weights that one pass meets."""

    setting: Setting
    model: nn.Sequential
    inputs: list[Tensor]
    active_weights: float

    def compare(
        self, peers: Mapping[str, Peer], reference: Tensor, repeats: int, flops_per_weight: int
    ) -> list[Measurement]:
        """Time the peers, once their results have been compared with the reference."""
        errors = verify(self.setting.work, peers, reference)
        works = {name: Timed(peer.precision, peer.work) for name, peer in peers.items()}
        return compare(self.setting, works, repeats, flops_per_weight * self.active_weights, errors)


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
    arch: Arch = "chain",
) -> tuple[list[Measurement], list[str]]:
    """Forward without gradients; the measurements, and the names of the peers that are not installed.

    With arch="residual" the network is `random_residual`, which torch_csr cannot run. With `model` (as `train_network`
    makes it) and `samples`, masks are those of a trained network.

    Raises:
        ValueError: if an argument is out of range, or a peer computes something else than plain torch does.
    """
    if arch in IMAGE_ARCHS:
        raise ValueError(f"arch={arch!r} goes with training.")
    check_arguments("inference", [width], depth, [batch], [sparsity], threads, repeats, peers)
    made = _prepare("inference", width, depth, batch, sparsity, threads, model, samples, arch)
    wanted = set(peers) - ({"torch_csr"} if arch == "residual" else set())
    found, absent = inference_peers(made.model, made.inputs, threads, wanted, adaptive)
    return made.compare(found, output_reference(made.model, made.inputs[0]), repeats, 2), absent


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
    arch: Arch = "chain",
) -> tuple[list[Measurement], list[str]]:
    """A full SGD step: zero_grad, forward, backward, update; as `inference`.

    With arch="conv" or "resnet" the batch is of images, `width` is channels and `depth` convolutions or blocks.
    """
    check_arguments(work, [width], depth, [batch], [sparsity], threads, repeats, peers)
    made = _prepare(work, width, depth, batch, sparsity, threads, model, samples, arch)
    found = training_peers(made.model, made.inputs, set(peers), adaptive, images=arch in IMAGE_ARCHS)
    return made.compare(found, gradient_reference(made.model, made.inputs[0]), repeats, 6), []


def layer(
    width: int = 300,
    batch: int = 128,
    sparsity: float = 0.85,
    threads: int = 2,
    repeats: int = 30,
    peers: Sequence[str] = TRAINING,
    adaptive: bool = True,
) -> tuple[list[Measurement], list[str]]:
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
    arch: Arch,
) -> _Prepared:
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(2)
    count = max(2, min(_INPUTS, 65536 // (batch * width) + 2))
    if arch in IMAGE_ARCHS:
        depth = depth_of_images(arch) if depth is None else depth
        model = IMAGE_NETWORKS[arch](width, depth, sparsity)
        inputs = [random_images(arch, batch, width, generator) for _ in range(2)]
        return _Prepared(
            Setting(work, width, depth, batch, sparsity, threads), model, inputs, active_weights_of(model, inputs[0])
        )
    if model is None or samples is None:
        depth = depth_for(width) if depth is None else depth
        model = (random_residual if arch == "residual" else random_network)(width, depth, sparsity)
        inputs = [torch.randn(batch, width, generator=generator) for _ in range(count)]
    else:
        linears = [m for m in model if isinstance(m, nn.Linear)]
        work, width, depth = f"{work}-trained", linears[0].out_features, len(linears) - 1
        order = torch.randint(len(samples), (count, batch), generator=generator)
        inputs = [samples[rows].contiguous() for rows in order]
        sparsity = round(sparsity_of(model, samples[:256]), 3)
    setting = Setting(work, width, depth, batch, sparsity, threads)
    return _Prepared(setting, model, inputs, _active_weights(model, inputs[0]))


def _active_weights(model: nn.Sequential, x: Tensor) -> float:
    """Each active unit of a layer meets as many weights as the layer has outputs."""
    outputs = [m.out_features for m in model.modules() if isinstance(m, nn.Linear)]
    read = activations_read(model, x)
    return sum(float(torch.count_nonzero(h)) * n for h, n in zip(read, outputs, strict=True))
