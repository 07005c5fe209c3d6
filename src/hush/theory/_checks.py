"""The checks of arguments that several modules share; each raises a ValueError of one sentence."""

import math

__all__ = ["check_positive", "check_samples", "check_sigmas", "check_size", "check_variance"]

# Beyond these sizes the numbers of the chains would not fit into memory, or tell nothing.
_MOST_LAYERS = 10_000
_MOST_UNITS = 10**12
_MOST_NUMBERS = 100_000_000
# A variance is free in its unit, but the sixth power of its root must stay a float64, at q/10⁸ and at 10⁸ q too.
_SMALLEST, _LARGEST = 1e-80, 1e80


def check_positive(name: str, value: float) -> None:
    """Raise a ValueError unless `value` is a positive finite number."""
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def check_variance(name: str, value: float) -> None:
    """Raise a ValueError unless `value` is a positive number far enough from 0 and ∞ to compute with."""
    check_positive(name, value)
    if not _SMALLEST <= value <= _LARGEST:
        raise ValueError(
            f"{name} must lie between {_SMALLEST:g} and {_LARGEST:g}, got {value}; it is only a unit, take one near 1."
        )


def check_sigmas(sigma_w: float, sigma_b: float) -> None:
    """Raise a ValueError unless σ_w and σ_b are finite and not negative."""
    for name, value in (("sigma_w", sigma_w), ("sigma_b", sigma_b)):
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} must be finite and not negative, got {value}.")


def check_size(width: int, depth: int, positions: int = 1) -> None:
    """Raise a ValueError unless width, depth and positions are whole numbers a network can have."""
    bounds = (
        ("width", width, 2, _MOST_UNITS),
        ("depth", depth, 2, _MOST_LAYERS),
        ("positions", positions, 1, _MOST_UNITS),
    )
    for name, value, least, most in bounds:
        # Compared before it is rounded: neither NaN nor ∞ is a whole number, and neither can be made one.
        if not least <= value < math.inf or int(value) != value:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value}.")
        if value > most:
            raise ValueError(f"{name} must be at most {most}, got {value}.")


def check_samples(samples: int, depth: int) -> None:
    """Raise a ValueError unless so many chains of that depth fit into memory."""
    if samples < 1 or int(samples) != samples:
        raise ValueError(f"samples must be a whole number of at least 1, got {samples}.")
    if samples * depth > _MOST_NUMBERS:
        raise ValueError(
            f"{samples} samples of {depth} layers are more than fit into memory; take at most "
            f"{_MOST_NUMBERS // depth} samples."
        )
