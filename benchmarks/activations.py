"""Forward and backward of each activation against the plain composition of clamps, as ratios in one run.

    python benchmarks/activations.py

Interleaved medians, so that both sides see the same machine; below 1 hush is faster. The peer composes torch's own
clamps, whose derivative at the kinks is another one and which keep their inputs for the backward pass.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from hush.nn import functional

TAU, CLIP = 1.04, 1.17
PAIRS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "shifted_relu": (lambda x: functional.shifted_relu(x, TAU), lambda x: torch.clamp(x - TAU, min=0.0)),
    "soft_threshold": (lambda x: functional.soft_threshold(x, TAU), lambda x: x - torch.clamp(x, -TAU, TAU)),
    "crelu": (lambda x: functional.crelu(x, TAU, CLIP), lambda x: torch.clamp(x - TAU, 0.0, CLIP)),
    "cst": (
        lambda x: functional.cst(x, TAU, CLIP),
        lambda x: torch.clamp(x - torch.clamp(x, -TAU, TAU), -CLIP, CLIP),
    ),
    "fatrelu": (lambda x: functional.fatrelu(x, TAU), lambda x: torch.where(x <= TAU, 0.0, x)),
}
SHAPES = ((16, 300), (128, 300), (1024, 300), (16, 64, 32, 32))


def ratio(ours: Callable, theirs: Callable, shape: tuple[int, ...], repeats: int) -> tuple[float, float]:
    """(median time of ours / of theirs, median of ours in µs), forward and backward."""
    x, gradient = torch.randn(shape, requires_grad=True), torch.randn(shape)
    times: dict[Callable, list[float]] = {ours: [], theirs: []}
    for _ in range(repeats):
        for function in times:
            start = time.perf_counter()
            torch.autograd.grad(function(x), x, gradient)
            times[function].append(time.perf_counter() - start)
    medians = [statistics.median(times[function][repeats // 10 :]) for function in (ours, theirs)]
    return medians[0] / medians[1], 1e6 * medians[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    names = ["×".join(map(str, shape)) for shape in SHAPES]
    print(f"time of hush / time of clamps, forward + backward, float32, {options.threads} thread(s); µs of hush behind")
    print(f"{'':<16}" + "".join(f"{name:>20}" for name in names))
    for name, (ours, theirs) in PAIRS.items():
        cells = []
        for shape in SHAPES:
            repeats = max(30, min(options.repeats, int(options.repeats * 300_000 / torch.Size(shape).numel())))
            quotient, micros = ratio(ours, theirs, shape, repeats)
            cells.append(f"{quotient:8.2f} {micros:8.0f} µs")
        print(f"{name:<16}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
