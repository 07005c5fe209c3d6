"""β, the scale of a branch: a number, or a rule that depends on how many branches add to the stream.

At 1/√L the L branches together add as much as one of scale 1 would, and the stream's variance and the gain stay of
order 1 at any depth; at 1/L a deep stack becomes the identity plus a small whole; at 1 both grow with depth. A learned
scale starts at 1/√L and is, at initialisation, nothing else.
"""

import math

__all__ = ["BRANCH_SCALES", "resolve_branch_scale"]

BRANCH_SCALES = ("1/sqrt(depth)", "1/depth", "learned")


def resolve_branch_scale(scale: float | str, depth: int | None) -> float:
    """β of `scale` in a network of `depth` branches.

    Raises:
        ValueError: if it is neither a number of at least 0 nor one of the rules, or a rule comes without a depth.
    """
    if isinstance(scale, str):
        if scale not in BRANCH_SCALES:
            raise ValueError(f"branch_scale must be a number or one of {', '.join(BRANCH_SCALES)}, got {scale!r}.")
        if depth is None:
            raise ValueError(f"branch_scale = {scale!r} depends on the depth; give one, or a number.")
        return 1.0 / depth if scale == "1/depth" else 1.0 / math.sqrt(depth)
    if not (math.isfinite(scale) and scale >= 0.0):
        raise ValueError(f"branch_scale must be finite and not negative, got {scale}.")
    return float(scale)
