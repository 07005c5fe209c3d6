"""The three benchmarks: inference, a full SGD step, and one layer's step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from .arguments import check_arguments
from .block_networks import random_bytes, random_feedforward, random_gpt
from .image_networks import IMAGE_ARCHS, random_convolutions, random_images, random_resnet
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
from .random_networks import Arch, depth_for, random_network, random_residual, sparsity_of
from .timing import Timed, compare
from .useful_work import Work, work_of
from .verification import verify

__all__ = ["inference", "layer", "training"]

_INPUTS = 64  # different batches that a peer is given in turn
_NETWORKS: dict[Arch, Callable[[int, int, float], nn.Sequential]] = {
    "chain": random_network,
    "residual": random_residual,
    "residual_two": partial(random_residual, matrices=2),
    "feedforward": random_feedforward,
    "gated": partial(random_feedforward, gated=True),
    "gpt": random_gpt,
    "conv": random_convolutions,
    "resnet": random_resnet,
}
# Of a batch, the width and a generator; Gaussian vectors where nothing is said.
_DRAWS: dict[Arch, Callable[[int, int, torch.Generator], Tensor]] = {
    "gpt": lambda batch, _width, generator: random_bytes(batch, generator),
    "conv": partial(random_images, "conv"),
    "resnet": partial(random_images, "resnet"),
}


@dataclass(frozen=True)
class _Prepared:
    """The setting, the network, its inputs, and what zeros leave of its work."""

    setting: Setting
    model: nn.Sequential
    inputs: list[Tensor]
    work: Work
    arch: Arch

    def compare(self, peers: Mapping[str, Peer], reference: Tensor, repeats: int) -> list[Measurement]:
        """Time the peers, once their results have been compared with the reference."""
        errors = verify(self.setting.work, peers, reference)
        works = {name: Timed(peer.precision, peer.work) for name, peer in peers.items()}
        bound = None if self.arch in ("chain", "residual") else self.work.bound
        return compare(self.setting, works, repeats, self.work.useful, errors, bound)


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

    With arch="residual" and "residual_two" the network is `random_residual`, with "feedforward" and "gated" it is
    `random_feedforward`, with "gpt" a byte transformer (`random_gpt`) of `depth` layers and a batch of that many
    sequences, with "conv" or "resnet" the batch is of images, `width` is channels and `depth` convolutions or blocks;
    torch_csr runs none of these. With `model` (as `train_network` makes it) and `samples`, masks are those of a trained
    network.

    Raises:
        ValueError: if an argument is out of range, or a peer computes something else than plain torch does.
    """
    check_arguments("inference", [width], depth, [batch], [sparsity], threads, repeats, peers)
    made = _prepare("inference", width, depth, batch, sparsity, threads, model, samples, arch)
    made.model.eval()
    wanted = set(peers) - (set() if arch == "chain" else {"torch_csr"})
    found, absent = inference_peers(made.model, made.inputs, threads, wanted, adaptive, images=arch in IMAGE_ARCHS)
    return made.compare(found, output_reference(made.model, made.inputs[0]), repeats), absent


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
    """A full SGD step: zero_grad, forward, backward, update; as `inference`."""
    check_arguments(work, [width], depth, [batch], [sparsity], threads, repeats, peers)
    made = _prepare(work, width, depth, batch, sparsity, threads, model, samples, arch)
    found = training_peers(made.model, made.inputs, set(peers), adaptive, images=arch in IMAGE_ARCHS)
    return made.compare(found, gradient_reference(made.model, made.inputs[0]), repeats), []


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
    if model is None or samples is None:
        depth = depth_for(width, arch) if depth is None else depth
        model = _NETWORKS[arch](width, depth, sparsity)
        draw = _DRAWS.get(arch, _normal)
        inputs = [draw(batch, width, generator) for _ in range(2 if arch in IMAGE_ARCHS else count)]
    else:
        linears = [m for m in model if isinstance(m, nn.Linear)]
        work, width, depth = f"{work}-trained", linears[0].out_features, len(linears) - 1
        order = torch.randint(len(samples), (count, batch), generator=generator)
        inputs = [samples[rows].contiguous() for rows in order]
        sparsity = round(sparsity_of(model, samples[:256]), 3)
    setting = Setting(work, width, depth, batch, sparsity, threads)
    return _Prepared(setting, model, inputs, work_of(model, inputs[0], not setting.work.startswith("inference")), arch)


def _normal(batch: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.randn(batch, width, generator=generator)
