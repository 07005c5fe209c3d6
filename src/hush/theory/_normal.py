"""The normal distribution function, its inverse, and the logistic function: SciPy's, imported when first called.

Importing scipy.special takes half the time of `import hush.theory`, and whoever only asks for names or help needs none
of it.
"""

import numpy as np

from hush.theory._arrays import Array

__all__ = ["logistic", "ndtr", "ndtri"]


def ndtr(z: float | Array) -> Array:
    """Φ(z) = P(Z ≤ z)."""
    from scipy import special

    return np.asarray(special.ndtr(z))


def ndtri(p: float | Array) -> Array:
    """Φ⁻¹(p)."""
    from scipy import special

    return np.asarray(special.ndtri(p))


def logistic(x: Array) -> Array:
    """1/(1 + e^{−x})."""
    from scipy import special

    return np.asarray(special.expit(x))
