"""Settings to and from the query part of an address, so that a page can be bookmarked.

Only what counts is written: the clip of an activation that has one, σ's when they are off the Edge of Chaos, a norm
where there is a residual stream. What cannot be read is never guessed at: it is named, with what would be right and
what is shown instead.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hush.app.settings import BLOCKS, NORMS, NUMBER, WHOLE, Clip, Settings, Sigmas, branch_rules, q_is_given, span
from hush.theory import activation_names, entry_of

__all__ = ["NAMES", "from_address", "to_address"]

NAMES = (
    "activation", "sparsity", "clip", "v_prime", "q_star", "width", "depth", "sigma_w_factor", "sigma_w", "sigma_b",
    "start", "block", "norm", "branch_scale", "hidden_ratio",
)  # fmt: skip
_OF_CHAINS = ("v_prime", "sigma_w_factor", "sigma_w", "sigma_b", "start")
_OF_STREAMS = ("norm", "branch_scale", "hidden_ratio")


def to_address(settings: Settings) -> dict[str, str]:
    """The parameters that `from_address` reads back."""
    address = {"activation": settings.activation, "sparsity": _text(settings.sparsity)}
    if settings.is_clipped:
        if settings.clip_by is Clip.SLOPE:
            address["v_prime"] = _text(settings.v_prime)
        else:
            address["clip"] = "safe" if settings.clip_by is Clip.SAFE else _text(settings.clip)
    address["width"], address["depth"] = str(settings.width), str(settings.depth)
    if settings.has_stream:
        return {"block": settings.block, **address, **_stream_part(settings)}
    names = {Sigmas.EDGE: (), Sigmas.FACTOR: ("sigma_w_factor",), Sigmas.FREE: ("sigma_w", "sigma_b")}
    for name in ("q_star", *names[settings.sigmas], "start"):
        if name.startswith("sigma") or getattr(settings, name) != span(name).default:
            address[name] = _text(getattr(settings, name))
    return address


def _stream_part(settings: Settings) -> dict[str, str]:
    part = {"norm": settings.norm}
    if settings.branch_rule == NUMBER:
        part["branch_scale"] = _text(settings.branch_scale)
    elif settings.branch_rule != Settings.branch_rule:
        part["branch_scale"] = settings.branch_rule
    for name in (*(["hidden_ratio"] if settings.has_hidden else []), "q_star"):
        if getattr(settings, name) != span(name).default:
            part[name] = _text(getattr(settings, name))
    return part


def from_address(parameters: Mapping[str, Sequence[str]]) -> tuple[Settings, list[str]]:
    """(the settings, one sentence for each parameter that could not be used); each value is a list, as in a query."""
    complaints: list[str] = []
    given: dict[str, str] = {}
    for name, values in parameters.items():
        if name not in NAMES:
            complaints.append(f"“{name}” is not a parameter of this page and is ignored; it knows {', '.join(NAMES)}.")
        elif len(values) != 1:
            complaints.append(f"{name} is given {len(values)} times; give it once. Showing the default.")
        else:
            given[name] = values[0]
    chosen: dict[str, Any] = {
        "activation": _choice("activation", given, activation_names(), complaints),
        "block": _choice("block", given, BLOCKS, complaints),
    }
    _drop_of_other_blocks(given, chosen["block"], complaints)
    _drop_contradictions(given, chosen["activation"], complaints)
    chosen["norm"] = _choice("norm", given, tuple(NORMS), complaints)
    if q_is_given(chosen["block"], chosen["norm"]) and "q_star" in given:
        complaints.append(
            "q_star is given, but with its norm behind the sum a residual block has q = 1; it is ignored."
        )
        del given["q_star"]
    if given.get("branch_scale") in branch_rules() and given["branch_scale"] != NUMBER:
        chosen["branch_rule"] = given.pop("branch_scale")
    if given.get("clip") == "safe":
        del given["clip"]
    for name in ("q_star", *(n for n in given if n not in ("activation", "block", "norm", "q_star"))):
        if name in given:
            value = _number(name, given[name], chosen, complaints)
            if value is not None:
                chosen[name] = value
    if "clip" in chosen:
        chosen["clip_by"] = Clip.HEIGHT
    if "branch_scale" in chosen:
        chosen["branch_rule"] = NUMBER
    if "v_prime" in chosen:
        chosen["clip_by"] = Clip.SLOPE
    if "sigma_w_factor" in chosen:
        chosen["sigmas"] = Sigmas.FACTOR
    if "sigma_w" in chosen and "sigma_b" in chosen:
        chosen["sigmas"] = Sigmas.FREE
    for name in ("sparsity", "clip", "sigma_b", "depth"):
        # The defaults are those of q* = 1, of all activations and blocks; keep them inside what this one allows.
        allowed = span(name, chosen["activation"], chosen.get("q_star", 1.0), chosen["block"])
        chosen.setdefault(name, allowed.nearest(getattr(Settings, name)))
    return Settings(**chosen), complaints


def _choice(name: str, given: dict[str, str], choices: tuple[str, ...], complaints: list[str]) -> str:
    default = str(getattr(Settings, name))
    value = given.get(name, default)
    if value in choices:
        return value
    complaints.append(
        f"{name} is “{_short(value)}”, but must be one of {', '.join(choices)}. Showing {default} instead."
    )
    return default


def _drop_of_other_blocks(given: dict[str, str], block: str, complaints: list[str]) -> None:
    for name in _OF_STREAMS if block == "chain" else _OF_CHAINS:
        if name in given:
            theirs = "blocks on a residual stream" if block == "chain" else "chains"
            complaints.append(f"{name} is for {theirs}, and the block is {block}; it is ignored.")
            del given[name]
    if block == "residual" and given.pop("hidden_ratio", None) is not None:
        complaints.append("hidden_ratio is given, but a residual block has one matrix; it is ignored.")


def _drop_contradictions(given: dict[str, str], activation: str, complaints: list[str]) -> None:
    for name in ("clip", "v_prime"):
        if name in given and not entry_of(activation).clipped:
            complaints.append(f"{name} is given, but {activation} has no clip; it is ignored.")
            del given[name]
    if "clip" in given and "v_prime" in given:
        complaints.append("clip and v_prime contradict each other; give one of them. v_prime is ignored.")
        del given["v_prime"]
    if "sigma_w_factor" in given and ("sigma_w" in given or "sigma_b" in given):
        complaints.append("sigma_w_factor contradicts sigma_w and sigma_b; sigma_w_factor is ignored.")
        del given["sigma_w_factor"]
    if ("sigma_w" in given) != ("sigma_b" in given):
        complaints.append("sigma_w and sigma_b go together; give both. Showing the Edge of Chaos instead.")
        given.pop("sigma_w", None)
        given.pop("sigma_b", None)


def _number(name: str, text: str, chosen: dict[str, Any], complaints: list[str]) -> float | int | None:
    activation = chosen["activation"]
    allowed = span(name, activation, chosen.get("q_star", 1.0), chosen["block"])
    right = f"a whole number {allowed}" if name in WHOLE else f"a number {allowed}"
    if name == "clip":
        right = f"“safe” or {right}"
    if name == "branch_scale":
        rules = (rule for rule in branch_rules() if rule != NUMBER)
        right = f"{', '.join(rules)} or {right}"
    if name == "sparsity":
        right += f" for {activation}"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not allowed.holds(value) or (name in WHOLE and value != int(value)):
        instead = "the Edge of Chaos" if name.startswith("sigma") else "the default"
        complaints.append(f"{name} is “{_short(text)}”, but must be {right}. Showing {instead} instead.")
        return None
    return int(value) if name in WHOLE else value


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _text(value: float) -> str:
    """The shortest text that reads back as the value."""
    return repr(int(value)) if value == int(value) else repr(float(value))
