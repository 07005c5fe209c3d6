"""How a design for blocks on a residual stream is shown: (name, value) rows of a table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush.theory.design_result import Design

__all__ = ["parameter_rows", "rows_of_stream"]


def parameter_rows(design: "Design") -> list[tuple[str, str]]:
    """The rows of τ and m, and of what they are measured in."""
    unit = "" if design.through_scale is None else " rms(h)"
    rows = [
        ("threshold τ", f"{design.threshold:.6g}{unit}"),
        ("clip m", "none" if design.clip is None else f"{design.clip:.6g}{unit}"),
    ]
    if design.through_scale is not None:
        rows.append(("gradient through rms(h)", "yes" if design.through_scale else "no"))
    return rows


def rows_of_stream(design: "Design") -> list[tuple[str, str]]:
    """The rows of a design for blocks on a residual stream."""
    place = "none" if design.norm is None else f"{design.norm}, {'behind the sum' if design.post_norm else 'in front'}"
    sigmas = (("σ_in²", design.sigma_in2), ("σ_up²", design.sigma_up2), ("σ_out²", design.sigma_out2))
    rule = f" ({design.branch_rule})" if design.branch_rule else ""
    rows = [
        ("block", design.block_name),
        ("norm", place),
        ("activation", design.activation),
        ("sparsity s", f"{design.sparsity:g}"),
        *parameter_rows(design),
        ("q*", f"{design.q_star:g}"),
        *((name, f"{value:.6g}") for name, value in sigmas if value is not None),
        ("branch scale β", f"{design.branch_scale:.6g}{rule}"),
        ("stream |x|²/N at the start", f"{design.stream_start:.6g}"),
        ("mean gain of the first block", f"{design.chi1:.6g}"),
    ]
    if design.odds is not None and design.gain_log10 is not None:
        gain, odds = design.gain_log10, design.odds
        rows += [
            ("width × blocks", f"{design.width} × {design.depth}"),
            *([("hidden units", f"{design.hidden}")] if design.hidden is not None else []),
            ("stream |x|²/N at the end", f"{design.stream_end:.4g}"),
            ("log10 gain, 10/50/90 %", f"{gain.q10:.2f} / {gain.median:.2f} / {gain.q90:.2f}"),
            ("1 − ρ at the end", f"{design.separation:.3g}"),
            ("odds to explode", f"{odds.explode:.3g}"),
            ("odds to vanish", f"{odds.vanish:.3g}"),
            ("odds that inputs become indistinguishable", f"{odds.indistinguishable:.3g}"),
            ("odds that sparsity is lost", f"{odds.sparsity_lost:.3g}"),
        ]
    return rows
