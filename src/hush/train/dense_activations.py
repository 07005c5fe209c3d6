"""The activations hush does not design, for networks to compare with: torch's own that have nothing to choose."""

from hush.theory import entries

__all__ = ["dense_names"]


def dense_names() -> tuple[str, ...]:
    """Those of the registry without a parameter that are modules of torch: relu, gelu, silu, tanh."""
    return tuple(entry.name for entry in entries() if not entry.parameters and entry.torch_twins)
