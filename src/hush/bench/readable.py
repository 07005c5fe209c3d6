"""What `hush bench` prints: what is timed, on which machine and in which units, then a line for each measurement."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import torch

from hush import __version__

from .block_networks import CONTEXT
from .machine_limits import Machine
from .measurement import OURS, Measurement
from .verification import tolerance

__all__ = ["header_lines", "line_of", "setting_lines"]

_NETWORK = "depth × (CReLU → Linear) on the Edge of Chaos with V′(q*) = 0.7"
_BLOCKS = {
    "residual": "depth residual blocks x + β(W CReLU(LayerNorm(x)) + b), β = 1/√depth",
    "residual_two": "depth residual blocks x + β(W CReLU(W₁ LayerNorm(x) + b₁) + b), β = 1/√depth, width units between",
    "feedforward": "depth blocks x + β(W₂ CReLU(W₁ LayerNorm(x) + b₁) + b₂), β = 1/√depth, 4 × width units between",
    "gated": "depth blocks x + βW₂(CReLU(W_g y) ∘ W_u y), y = LayerNorm(x), β = 1/√depth, 4 × width units between",
    "gpt": f"a byte transformer, hush.nn.gpt with CReLU: depth layers, 4 × width units, sequences of {CONTEXT} bytes",
    "conv": "depth × (CReLU → Conv2d 3×3) on 16×16 images, channels-last",
    "resnet": "hush.nn.resnet of depth blocks with batch norm on 32×32 images, channels-last",
}
_TIMED = {
    "inference": f"a forward pass without gradients through {_NETWORK}",
    "training": f"a full step of SGD (zero_grad, forward, backward, update) of {_NETWORK}",
    "layer": "a full step of SGD of one CReLU → Linear pair",
}
_RESULT = {"inference": "output", "training": "update", "layer": "update"}
_COLUMNS = (
    f"{'peer':18} {'weights':7} {'ms':>9} {'± iqr':>8} {'×best':>7} {'×eager':>7} {'error':>8}  {'of bound':>10} "
    f"{'useful GFLOP/s':>14}"
)


def header_lines(
    work: str,
    machine: Machine,
    threads: int,
    repeats: int,
    sparsities: Sequence[float],
    arch: str = "chain",
    keeps_freed_memory: bool = False,
) -> list[str]:
    """To be read before the numbers."""
    timed = _TIMED[work].replace(_NETWORK, _BLOCKS.get(arch, _NETWORK))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    shares = ", ".join(f"{s:g}" for s in sparsities)
    return [
        f"hush bench {work}: {timed}, at sparsity {shares}.",
        f"Machine: {machine}; {threads} threads. hush {__version__}, torch {torch.__version__}, {today}.",
        f"ms      median of {repeats} turns and their interquartile range; the peers take turns in one process.",
        *(["        Memory that is freed stays with the process, for all of them."] if keeps_freed_memory else []),
        "×best   time of the fastest peer with weights of the same precision over this one: above 1 is faster than it.",
        "        f32 and bf16 therefore have baselines of their own. What runs on the engine (*) is no peer.",
        "×eager  time of plain torch in f32 over this one, whatever its precision.",
        f"error   relative distance of the {_RESULT[work]} from that of plain torch in float64, compared first;",
        f"        beyond {tolerance(work, 'f32'):g} (f32) or {tolerance(work, 'bf16'):g} (bf16) nothing is timed.",
        "of bound  the part reached of what counting zeros alone would promise: 1/(1−s) where every product has them.",
        "",
    ]


def line_of(found: Measurement) -> str:
    """One measurement, under the columns of `setting_lines`."""
    ours = found.peer in OURS
    name = found.peer + ("*" if ours else "")
    text = f"{name:18} {found.precision:7} {found.median_ms:9.3f} {found.spread_ms:8.3f} "
    text += f"{_ratio(found.ratio_to_best_peer)} {_ratio(found.ratio_to_eager)} "
    text += f"{'' if found.error is None else f'{found.error:.1e}':>8}  "
    if ours and found.ratio_to_bound is not None:
        text += f"{found.ratio_to_bound:10.2f} {found.useful_gflops:14.1f}"
    return text.rstrip()


def setting_lines(found: Measurement) -> list[str]:
    """What the lines below share, and the names of their columns."""
    s = found.setting
    return [f"{s.work}, {s.depth} layers × {s.width}, s = {s.sparsity:g}, batch {s.batch}", _COLUMNS]


def _ratio(value: float | None) -> str:
    return f"{'–' if value is None else f'{value:.2f}':>7}"
