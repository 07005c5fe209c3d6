"""What the theory says today is what it said when it was pinned; `python -m benchmarks.pins` compares every digit."""

from typing import Any

import pytest

from benchmarks.pins import KINDS, differences, plain, read

# Every fifth of them here; the benchmark takes all.
DESIGNS, CHAINS = read("designs")[::5], read("chains")[::4]


def label(entry: dict[str, Any]) -> str:
    return "-".join(str(value) for value in entry["arguments"].values())


def agrees(pinned: Any, now: Any) -> bool:
    """Equal but for rounding: NumPy's vector instructions, and so the last bits, differ between processors."""
    if isinstance(pinned, dict):
        return pinned.keys() == now.keys() and all(agrees(pinned[key], now[key]) for key in pinned)
    if isinstance(pinned, list):
        return len(pinned) == len(now) and all(agrees(a, b) for a, b in zip(pinned, now, strict=True))
    if isinstance(pinned, float):
        return bool(now == pytest.approx(pinned, rel=1e-4, abs=1e-3))
    return bool(pinned == now)


@pytest.mark.parametrize("entry", DESIGNS, ids=label)
def test_designs(entry: dict[str, Any]) -> None:
    now = plain(KINDS["designs"][1](entry["arguments"]))
    assert now.get("refused") == entry["said"].get("refused")
    if "design" in now:
        now["design"].pop("verdict")
        pinned = dict(entry["said"]["design"])
        pinned.pop("verdict")
        assert agrees(pinned, now["design"]), differences(pinned, now["design"])


@pytest.mark.parametrize("entry", CHAINS, ids=label)
def test_chains(entry: dict[str, Any]) -> None:
    now = plain(KINDS["chains"][1](entry["arguments"]))
    assert agrees(entry["said"], now), differences(entry["said"], now)
