"""Up to which density each product of a convolution pays on this machine: measured by `accelerate`, kept in its file.

As `hush.sparse.crossover`, for four products instead of two works: the output, ∂L/∂x with ∂L/∂W in one sweep, and each
of the two alone. A forward measures nothing and takes what is known of its kind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .activation import Activation
from .backend import backend_for
from .convolution_backend import runs_convolutions
from .convolution_form import ConvolutionForm
from .convolution_gradients import ConvolutionCall, Limits, gradients_of_convolution
from .crossover import forced
from .crossover_file import CrossoverTable
from .crossover_timing import crossing

__all__ = ["ConvolutionSetting", "describe", "ensure_measured", "forget", "limits", "measure", "setting_of"]

_CHANNELS = (16, 32, 64, 128, 256, 512)
_PIXELS = (64, 512, 4096)
_DENSITIES = (0.1, 0.3, 0.5)
_MOST_FLOPS = 1e9  # of one dense product: what is larger is judged by fewer pixels
# Where no clock may decide: so much pays on every machine that was measured.
_FIXED, _FIXED_POINTWISE = Limits(0.3, 0.3, 0.15, 0.25), Limits(0.3, 0.15, 0.05, 0.1)
_SECONDS, _TURNS = 0.15, 4
# Seconds that a sparse product takes beside its kernels: looking at the module, torch's way into a Python backward.
_FORWARD_CALL, _BACKWARD_CALL = 60e-6, 60e-6
_PRODUCTS = ("output", "both", "input", "weight")
_DENSE, _SPARSE = Limits(-1.0, -1.0, -1.0, -1.0), Limits(1.0, 1.0, 1.0, 1.0)
_table = CrossoverTable(", convolutions")


class ConvolutionSetting(NamedTuple):
    """What a crossover depends on; `channels` is the geometric mean of in and out, `kernel` the side of it."""

    channels: int
    kernel: int
    stride: int
    pixels: int
    threads: int

    def key(self, product: str) -> str:
        return f"{'x'.join(str(size) for size in self)} {product}"


def setting_of(form: ConvolutionForm, weight: Tensor, pixels: int) -> ConvolutionSetting:
    outputs, inputs, taps_y, taps_x = weight.shape
    kernel = round(math.sqrt(taps_y * taps_x))
    return ConvolutionSetting(
        _nearest(math.sqrt(inputs * outputs), _CHANNELS),
        1 if kernel == 1 else 3 if kernel <= 3 else 5,
        1 if form.stride == (1, 1) else 2,
        _nearest(pixels, _PIXELS),
        torch.get_num_threads(),
    )


def _nearest(value: float, steps: tuple[int, ...]) -> int:
    return min(steps, key=lambda step: abs(math.log(step / max(value, 1.0))))


def limits(form: ConvolutionForm, x: Tensor, weight: Tensor, adaptive: bool = True) -> Limits:
    """Where nothing comparable has been measured, 0: dense. Without `adaptive`, what depends on no clock."""
    overruled = forced()
    if overruled is not None:
        return _SPARSE if overruled > 0.0 else _DENSE
    if not adaptive:
        return _FIXED if weight[0, 0].numel() > 1 else _FIXED_POINTWISE
    asked = (form, weight.shape, x.shape[0] * x.shape[2] * x.shape[3], torch.get_num_threads())
    found: Limits | None = _table.answers.get(asked)
    if found is None:
        found = _table.answers[asked] = _look_up(setting_of(form, weight, asked[2]))
    return found


def _look_up(setting: ConvolutionSetting) -> Limits:
    known = _table.known()
    if setting.key(_PRODUCTS[0]) not in known:
        others = [setting._replace(threads=threads) for threads in range(1, 4 * setting.threads + 1)]
        measured = [other for other in others if other.key(_PRODUCTS[0]) in known]
        setting = min(measured, key=lambda other: abs(other.threads - setting.threads), default=setting)
    return Limits(*(known.get(setting.key(product), 0.0) for product in _PRODUCTS))


def ensure_measured(convolutions: Iterable[tuple[ConvolutionForm, Tensor]]) -> None:
    """Measure what is not known of these forms and weights, with as many threads as torch has now."""
    if forced() is not None:
        return
    wanted = {setting_of(form, weight, pixels) for form, weight in convolutions for pixels in _PIXELS}
    with _table.lock:
        missing = sorted(setting for setting in wanted if setting.key(_PRODUCTS[0]) not in _table.known())
        values = {setting: measure(setting) for setting in missing}
        _table.learn(
            {s.key(p): value for s, found in values.items() for p, value in zip(_PRODUCTS, found, strict=True)}
        )


def forget() -> None:
    """Measure everything again when a model is next accelerated."""
    _table.replace({})


def describe() -> str:
    """What has been measured, a line for each kind of convolution; nothing where there is none."""
    known = _table.known()
    kinds = sorted({tuple(int(size) for size in key.split(" ")[0].split("x")) for key in known})
    lines = ["convolutions: the output, both gradients, ∂L/∂x alone and ∂L/∂W alone pay up to"] if kinds else []
    for kind in kinds:
        setting = ConvolutionSetting(*kind)
        values = ", ".join(f"{known.get(setting.key(p), 0.0):.2f}" for p in _PRODUCTS)
        channels, kernel, stride, pixels, threads = setting
        kind_of = f"{channels:>3} channels  kernel {kernel}  stride {stride}  {pixels:>4} pixels  threads {threads:>2}"
        lines.append(f"  {kind_of}  {values}")
    return "\n".join(lines)


@torch.no_grad()
def measure(setting: ConvolutionSetting) -> tuple[float, float, float, float]:
    """ρ* of the output, of both gradients, of the input's alone and of the weight's alone, each between 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    channels, kernel = setting.channels, setting.kernel
    side = 8 if setting.pixels <= 512 else 16
    images = max(1, setting.pixels // side**2)
    while images > 1 and 2.0 * images * side**2 * kernel**2 * channels**2 > _MOST_FLOPS:
        images //= 2

    def normal(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        return drawn.contiguous(memory_format=torch.channels_last)

    form = ConvolutionForm((setting.stride,) * 2, (kernel // 2,) * 4)
    weight = normal(channels, channels, kernel, kernel) / math.sqrt(channels * kernel**2)
    drawn = normal(images, channels, side, side)
    grad = torch.randn_like(form.dense(drawn, weight, None))
    sparse = [_works(form, _at_density(drawn, rho), weight, grad) for rho in _DENSITIES]
    dense: list[Callable[[], Any]] = [
        partial(form.dense, drawn, weight, None),
        partial(form.dense_input_gradient, grad, drawn, weight),
        partial(form.dense_weight_gradient, grad, drawn, weight),
    ]
    times = _fastest([*dense, *(work for works in sparse for work in works)])
    output, of_x, of_weight = times[:3]
    calls = (_FORWARD_CALL, _BACKWARD_CALL, _BACKWARD_CALL)
    by_product = [[t + calls[i] for t in times[3 + i :: 3]] for i in range(3)]  # output, both, weight at each density
    pairs = ((0, output), (1, of_x + of_weight), (1, of_x), (2, of_weight))
    found = [crossing(_DENSITIES, by_product[which], t) for which, t in pairs]
    return found[0], found[1], found[2], found[3]


def _fastest(works: Sequence[Callable[[], Any]]) -> list[float]:
    """The shortest time of each, taken in turns: a convolution takes long enough for others to come in between."""
    times = [math.inf] * len(works)
    for work in works:
        work()
    stop, turns = time.perf_counter() + _SECONDS, 0
    while turns < _TURNS or time.perf_counter() < stop:
        turns += 1
        for i, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def _at_density(x: Tensor, density: float) -> Tensor:
    threshold = torch.quantile(x.flatten()[:100_000], 1.0 - density)
    return x.sub(threshold).clamp_(min=0.0)


def _works(form: ConvolutionForm, x: Tensor, weight: Tensor, grad: Tensor) -> list[Callable[[], Any]]:
    """The three products as a call has them: looking and listing belong to the output."""
    phi, backend = Activation.identity(), backend_for(x)
    assert runs_convolutions(backend)
    program = backend.compile_convolution(form, x, weight, phi)
    program.look(x)
    call = ConvolutionCall(program, form, phi, 0.0, _SPARSE)
    saved = program.list_active(x)

    def output() -> Tensor:
        program.look(x)
        return program.forward(program.list_active(x), weight, None)

    return [
        output,
        partial(program.backward, saved, weight, grad, True, True),
        partial(gradients_of_convolution, call, grad, x, saved, weight, False, True),
    ]
