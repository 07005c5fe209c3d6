"""τ from a sparsity: where φ must begin for a share s of its Gaussian inputs to give exactly 0."""

from hush.theory._checks import check_positive
from hush.theory.activations.registry import entry_of

__all__ = ["threshold_from_sparsity"]


def threshold_from_sparsity(name: str, sparsity: float, q_star: float = 1.0) -> float:
    """τ̂(s, q*) = √q* Φ⁻¹(s), or √q* Φ⁻¹((1 + s)/2) for the odd activations (paper, eqs. 57 and 58).

    Of a threshold relative to the layer's own size the √q* is left out.
    """
    entry = entry_of(name, designable=True)
    check_positive("q_star", q_star)
    if not entry.lowest_sparsity <= sparsity < 1.0:
        raise ValueError(f"the sparsity of {name} lies in [{entry.lowest_sparsity:g}, 1), got {sparsity}.")
    assert entry.threshold_at is not None  # it is designable
    return max(0.0, entry.unit(q_star) * entry.threshold_at(sparsity))
