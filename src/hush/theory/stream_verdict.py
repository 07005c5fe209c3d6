"""The verdict on a design for blocks on a residual stream, in words."""

from hush.theory.design_result import Design
from hush.theory.training_rule import TRAINABLE_ODDS
from hush.theory.verdict import in_words

__all__ = ["verdict_on_stream"]


def verdict_on_stream(design: Design) -> str:
    """What the stream does, then the odds of the four things that can go wrong, and what follows."""
    if design.norm is None:
        shape = "Without a norm q grows with the stream"
    elif design.post_norm:
        shape = "The norm behind the sum holds the stream, and with it q"
    else:
        shape = f"The norm holds q at {design.q_star:g} whatever the stream does"
    odds = design.odds
    if odds is None:
        return f"{shape}. Give width and depth for the odds."
    if not design.post_norm:
        shape += f", which grows from {design.stream_start:.3g} to {design.stream_end:.3g}"
    said = [in_words(odds.explode, "explode")]
    if odds.vanish > 0.01:
        said.append(in_words(odds.vanish, "vanish"))
    text = f"{shape}; at width {design.width} and {design.depth} blocks, {' and '.join(said)}"
    text += f"; two typical inputs end at 1 − ρ = {design.separation:.2g}"
    if odds.explode > TRAINABLE_ODDS:
        smaller = "; take branch_scale = '1/sqrt(depth)'" if design.branch_rule is None else ""
        return f"{text}: it will not train{smaller}."
    if odds.vanish > TRAINABLE_ODDS:
        return f"{text}: the first blocks will hardly learn; take a wider or shallower network."
    if odds.indistinguishable > TRAINABLE_ODDS:
        return f"{text}: inputs become indistinguishable, and it will hardly train; take fewer blocks or less sparsity."
    if odds.sparsity_lost > TRAINABLE_ODDS:
        return (
            f"{text}: it should train, but {in_words(odds.sparsity_lost, 'lose')} the sparsity in some layer before "
            f"training begins; put a norm in front of the branch."
        )
    return f"{text}: it should train."
