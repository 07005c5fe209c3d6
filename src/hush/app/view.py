"""Everything the page shows for a plain chain of layers, as numbers."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hush.app.curve import Array, Curve, silhouette
from hush.app.settings import Clip, Settings, Sigmas
from hush.app.verdict import Verdict, judge
from hush.theory import (
    IMAGE_NORMS,
    Activation,
    Chain,
    Design,
    FiniteWidth,
    FixedPoints,
    Phase,
    correlation_fixed_points,
    correlation_map,
    design,
    edge_curve,
    entry_of,
    largest_safe_clip,
    phase,
    slope_and_curvature_of_clip,
    variance_fixed_points,
    variance_map,
)
from hush.theory.chain_run import run_chains
from hush.theory.chain_summary import summarise
from hush.theory.design_arguments import RELATIVE_CLIP

__all__ = ["SafeClip", "View", "compute_view"]

# Beyond this many q* a fixed point is drawn on logarithmic axes.
_FAR = 12.0
_COBWEB_STEPS = 40


@dataclass(frozen=True)
class SafeClip:
    """The largest safe clip at q* = 1, or why there is none; of a relative activation the usual one."""

    value: float | None
    reason: str = ""


@dataclass(frozen=True)
class View:
    """One design of a chain, on the Edge of Chaos or off it, and what to expect of it.

    Attributes:
        design: the design on the Edge of Chaos at the same activation, sparsity, clip and q*.
        sigma_w, sigma_b: those in force; the design's own when `settings.on_edge`.
        phase: where (σ_w, σ_b) lie and which q is reached; None on the Edge of Chaos.
        fixed_points: every fixed point of V at these σ's.
        variance, cobweb: V(q), and the staircase of q from layer to layer.
        logarithmic: whether V is to be drawn on logarithmic axes.
        correlation, correlations: R(ρ) at the q reached, and its fixed points; None where q runs away.
        silhouette: φ.
        slope_of_clip, curvature_of_clip: V′ and V″ on the Edge of Chaos against m; None without a clip.
        edge: σ_w and σ_b along the Edge of Chaos.
        safe_clip: the largest safe clip here, None without a clip.
    """

    settings: Settings
    design: Design
    sigma_w: float
    sigma_b: float
    phase: Phase | None
    fixed_points: FixedPoints
    finite: FiniteWidth
    verdict: Verdict
    variance: Curve
    cobweb: Curve
    logarithmic: bool
    correlation: Curve | None
    correlations: FixedPoints | None
    silhouette: Curve
    slope_of_clip: Curve | None
    curvature_of_clip: Curve | None
    edge: Curve
    safe_clip: SafeClip | None

    @property
    def q_reached(self) -> float | None:
        """The variance the layers settle at; None where it runs away."""
        return self.design.q_star if self.phase is None else self.phase.q_star


# The page asks for the same state again whenever Streamlit runs its script without a control having moved, and the
# presets are computed ahead: one server keeps what it has computed for all of its readers.
@lru_cache(maxsize=256)
def compute_view(settings: Settings) -> View:
    """Compute what the page shows.

    Raises:
        ValueError: if there is no such design: no safe clip at this width and depth, or no Edge of Chaos; or if the
            settings are of another block.
    """
    if settings.has_stream:
        raise ValueError(f"the block is {settings.block}, which compute_stream_view is for.")
    safe = safe_clip(settings.activation, settings.sparsity, settings.width, settings.depth, settings.q_star)
    made = _design(settings, safe)
    phi = made.phi()
    sigma_w, sigma_b = _sigmas(settings, made)
    block = Chain(phi, sigma_w, sigma_b)
    # On the Edge of Chaos this is the block of the design, whose chains have run already and are kept.
    chains = run_chains(block, settings.width, settings.depth, made.input_variance, IMAGE_NORMS)
    finite = summarise(settings.width, *chains)
    where = None if settings.on_edge else phase(phi, sigma_w, sigma_b, q_start=made.input_variance)
    reached = made.q_star if where is None else where.q_star
    points = _fixed_points(made, sigma_w, sigma_b, settings.on_edge)
    cobweb = _cobweb(phi, sigma_w, sigma_b, settings.start * made.q_star)
    variance, logarithmic = _variance(phi, sigma_w, sigma_b, points, made.q_star)
    alive = reached is not None and reached > 0.0
    unit = entry_of(settings.activation).unit(made.q_star)
    slopes = _clip_curves(settings.activation, made.threshold / unit) if settings.is_clipped else None
    return View(
        settings=settings,
        design=made,
        sigma_w=sigma_w,
        sigma_b=sigma_b,
        phase=where,
        fixed_points=points,
        finite=finite,
        verdict=judge(made, finite, where),
        variance=variance,
        cobweb=cobweb,
        logarithmic=logarithmic,
        correlation=_correlation(phi, reached, sigma_w, sigma_b) if alive and reached is not None else None,
        correlations=correlation_fixed_points(phi, reached, sigma_w, sigma_b) if alive and reached else None,
        silhouette=silhouette(phi, made),
        slope_of_clip=None if slopes is None else Curve(unit * slopes[0], slopes[1]),
        curvature_of_clip=None if slopes is None else Curve(unit * slopes[0], slopes[2] / made.q_star),
        edge=_edge(phi, made.q_star),
        safe_clip=safe,
    )


def safe_clip(activation: str, sparsity: float, width: int, depth: int, q_star: float) -> SafeClip | None:
    """The largest safe clip, or the sentence why there is none; None for an activation without a clip."""
    if not entry_of(activation).clipped:
        return None
    if entry_of(activation).relative:
        # Nothing needs a clip to be safe there; this is what `design` takes.
        return SafeClip(RELATIVE_CLIP)
    # Scale is free: one search serves all q*.
    unit = _unit_safe_clip(activation, sparsity, width, depth)
    return unit if unit.value is None else SafeClip(math.sqrt(q_star) * unit.value)


# A search takes most of a redraw, and moving the clip, σ or q* does not change its result.
@lru_cache(maxsize=512)
def _unit_safe_clip(activation: str, sparsity: float, width: int, depth: int) -> SafeClip:
    try:
        return SafeClip(largest_safe_clip(activation, sparsity, width, depth))
    except ValueError as error:
        return SafeClip(None, str(error))


def _design(settings: Settings, safe: SafeClip | None) -> Design:
    # Off the Edge of Chaos its odds are not those of the design.
    choice: dict[str, Any] = {"width": settings.width, "depth": settings.depth} if settings.on_edge else {}
    if safe is not None:
        if settings.clip_by is Clip.SLOPE:
            choice["v_prime"] = settings.v_prime
        elif settings.clip_by is Clip.HEIGHT:
            choice["clip"] = settings.clip
        elif safe.value is None:
            raise ValueError(safe.reason)
        else:
            # What `design` would find by itself, found already.
            choice["clip"] = safe.value
    return design(settings.activation, settings.sparsity, q_star=settings.q_star, **choice)


def _sigmas(settings: Settings, made: Design) -> tuple[float, float]:
    if settings.sigmas is Sigmas.FREE:
        return settings.sigma_w, settings.sigma_b
    factor = settings.sigma_w_factor if settings.sigmas is Sigmas.FACTOR else 1.0
    return factor * made.sigma_w, made.sigma_b


def _fixed_points(made: Design, sigma_w: float, sigma_b: float, on_edge: bool) -> FixedPoints:
    if on_edge and not made.phi().is_homogeneous:
        return FixedPoints("q", made.fixed_points)
    return variance_fixed_points(made.phi(), sigma_w, sigma_b)


def _cobweb(phi: Activation, sigma_w: float, sigma_b: float, start: float) -> Curve:
    """(q, q), (q, V(q)), (V(q), V(q)), …: the staircase between the curve and the diagonal."""
    # One call for a fine table instead of one for each step: that would be most of the page's time.
    table = start * np.geomspace(1e-6, 1e6, 1500)
    image = np.asarray(variance_map(phi, table, sigma_w, sigma_b))
    x, y, q = [start], [start], start
    for _ in range(_COBWEB_STEPS):
        following = float(np.interp(q, table, image))
        x += [q, following]
        y += [following, following]
        if abs(following - q) <= 1e-3 * q or not table[0] < following < table[-1]:
            break
        q = following
    return Curve(np.array(x), np.array(y))


def _variance(
    phi: Activation, sigma_w: float, sigma_b: float, points: FixedPoints, q_star: float
) -> tuple[Curve, bool]:
    """V over a range that holds every fixed point, and whether that calls for logarithmic axes."""
    values = [point.value for point in points]
    furthest, nearest = max(values, default=q_star), min(values, default=q_star)
    logarithmic = furthest > _FAR * q_star or nearest < 1e-3 * q_star
    if logarithmic:
        q = np.geomspace(min(0.1 * q_star, 0.3 * nearest), max(10.0 * q_star, 3.0 * furthest), 240)
    else:
        q = np.linspace(0.0, max(2.5 * q_star, 1.3 * furthest), 241)
    return Curve(q, np.asarray(variance_map(phi, q, sigma_w, sigma_b))), logarithmic


def _correlation(phi: Activation, q: float, sigma_w: float, sigma_b: float) -> Curve:
    rho = np.linspace(-1.0, 1.0, 61)
    return Curve(rho, np.asarray(correlation_map(phi, rho, q, sigma_w, sigma_b)))


# Moving the width, the depth or the clip does not change these curves.
@lru_cache(maxsize=64)
def _clip_curves(activation: str, threshold: float) -> tuple[Array, Array, Array]:
    """(m, V′, V″) on the Edge of Chaos at q* = 1."""
    clips = np.geomspace(0.1, 4.0, 14)
    return clips, *slope_and_curvature_of_clip(activation, threshold, clips)


def _edge(phi: Activation, q_star: float) -> Curve:
    sigma_w, sigma_b = edge_curve(phi, q_star * np.geomspace(0.02, 50.0, 160))
    return Curve(sigma_w, sigma_b)
