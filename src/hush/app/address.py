"""Settings to and from the query part of an address, so that a page can be bookmarked.

Only what counts is written: the clip of an activation that has one, σ's when they are off the Edge of Chaos. What
cannot be read is never guessed at: it is named, with what would be right and what is shown instead.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hush.app.settings import WHOLE, Clip, Settings, Sigmas, span
from hush.theory import activation_names, entry_of

__all__ = ["NAMES", "from_address", "to_address"]

NAMES = (
    "activation", "sparsity", "clip", "v_prime", "q_star", "width", "depth", "sigma_w_factor", "sigma_w", "sigma_b",
    "start",
)  # fmt: skip


def to_address(settings: Settings) -> dict[str, str]:
    """The parameters that `from_address` reads back."""
    address = {"activation": settings.activation, "sparsity": _text(settings.sparsity)}
    if settings.is_clipped:
        if settings.clip_by is Clip.SLOPE:
            address["v_prime"] = _text(settings.v_prime)
        else:
            address["clip"] = "safe" if settings.clip_by is Clip.SAFE else _text(settings.clip)
    address["width"], address["depth"] = str(settings.width), str(settings.depth)
    names = {Sigmas.EDGE: (), Sigmas.FACTOR: ("sigma_w_factor",), Sigmas.FREE: ("sigma_w", "sigma_b")}
    for name in ("q_star", *names[settings.sigmas], "start"):
        if name.startswith("sigma") or getattr(settings, name) != span(name).default:
            address[name] = _text(getattr(settings, name))
    return address


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
    chosen: dict[str, Any] = {"activation": _activation(given, complaints)}
    _drop_contradictions(given, chosen["activation"], complaints)
    if given.get("clip") == "safe":
        del given["clip"]
    for name in ("q_star", *(n for n in given if n not in ("activation", "q_star"))):
        if name in given:
            value = _number(name, given[name], chosen["activation"], chosen.get("q_star", 1.0), complaints)
            if value is not None:
                chosen[name] = value
    if "clip" in chosen:
        chosen["clip_by"] = Clip.HEIGHT
    if "v_prime" in chosen:
        chosen["clip_by"] = Clip.SLOPE
    if "sigma_w_factor" in chosen:
        chosen["sigmas"] = Sigmas.FACTOR
    if "sigma_w" in chosen and "sigma_b" in chosen:
        chosen["sigmas"] = Sigmas.FREE
    for name in ("sparsity", "clip", "sigma_b"):
        # The defaults are those of q* = 1 and of all activations; keep them inside what this one allows.
        allowed = span(name, chosen["activation"], chosen.get("q_star", 1.0))
        chosen.setdefault(name, allowed.nearest(getattr(Settings, name)))
    return Settings(**chosen), complaints


def _activation(given: dict[str, str], complaints: list[str]) -> str:
    name = given.get("activation", Settings.activation)
    if name in activation_names():
        return name
    complaints.append(
        f"activation is “{_short(name)}”, but must be one of {', '.join(activation_names())}. "
        f"Showing {Settings.activation} instead."
    )
    return Settings.activation


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


def _number(name: str, text: str, activation: str, q_star: float, complaints: list[str]) -> float | int | None:
    allowed = span(name, activation, q_star)
    right = f"a whole number {allowed}" if name in WHOLE else f"a number {allowed}"
    if name == "clip":
        right = f"“safe” or {right}"
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
