"""python benchmarks/saved_memory.py: bytes that autograd keeps for a backward, dense and accelerated."""

import torch
from torch import nn

from hush import sparse
from hush.bench import random_network
from hush.bench.plain_torch import in_plain_torch


def kept(model: nn.Module, x: torch.Tensor) -> int:
    """Distinct memory saved for the backward, parameters not counted."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = max(seen.get(storage.data_ptr(), 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = model(x)
    del out
    return sum(seen.values())


def main() -> None:
    for s in (0.85, 0.9, 0.95):
        hushed = random_network(300, 100, s)
        plain = in_plain_torch(hushed)
        x = torch.randn(128, 300)
        torch_own, hush_nn = kept(plain, x), kept(hushed, x)
        ours = kept(sparse.accelerate(hushed, adaptive=False), x)
        print(
            f"s={s}: torch.clamp {torch_own / 1e6:.1f} MB, hush.nn dense {hush_nn / 1e6:.1f} MB, accelerated "
            f"{ours / 1e6:.1f} MB: {ours / torch_own:.2f} and {ours / hush_nn:.2f} of them"
        )


if __name__ == "__main__":
    main()
