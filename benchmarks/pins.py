"""Whether the theory still says what it said: 200 designs, compared digit by digit with those on file.

    python -m benchmarks.pins            recompute all 200 and report every number that moved
    python -m benchmarks.pins --write    pin what the code says now

A pinned setting is an activation × sparsity × width × depth × how the clip is chosen × q*. On file are its design as
JSON at full precision (τ, m, σ_w², σ_b², χ₁, V′, V″, fixed points, odds, gains, verdict) and as printed; where the clip
is left to hush, m is the largest safe clip. A setting that is refused is pinned with its sentence. Beside them are some
runs of the chains with what a design does not show: positions, seeds, quantiles by layer, bands.
"""

import argparse
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from hush.theory import IMAGE_NORMS, activation, bands, correlation_band, design, finite_width

PINS = Path(__file__).resolve().parents[1] / "tests" / "theory" / "pins"

_CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"v_prime": 0.5},
    {"v_prime": 0.9},
    {"clip": 0.8},
    {"clip": 2.0},
)
_SIZES = ((300, 100), (100, 30), (1000, 200), (50, 12))


def settings() -> list[dict[str, Any]]:
    """The 200 settings, as arguments of `design`."""
    made: list[dict[str, Any]] = []
    clipped = product(("crelu", "cst"), (0.6, 0.7, 0.8, 0.85, 0.9), _SIZES, _CHOICES)
    # Every second of the 200 combinations, with q* taking turns so that it meets every choice of the clip.
    for i, (name, sparsity, (width, depth), choice) in enumerate(clipped):
        if i % 5 in (0, 1, 3) or i % 7 == 0:
            q_star = (1.0, 1.0, 0.25, 9.0)[(i // 5 + i) % 4]
            made.append(
                {"activation": name, "sparsity": sparsity, "width": width, "depth": depth, **choice, "q_star": q_star}
            )
    unclipped = product(("shifted_relu", "soft_threshold"), (0.5, 0.6, 0.7, 0.85, 0.95), _SIZES)
    for i, (name, sparsity, (width, depth)) in enumerate(unclipped):
        q_star = (1.0, 0.5, 4.0)[i % 3]
        made.append({"activation": name, "sparsity": sparsity, "width": width, "depth": depth, "q_star": q_star})
    # Without a width and a depth, and at the ends of the range.
    edges = product(("crelu", "cst"), (0.5, 0.75, 0.95, 0.99), ({"v_prime": 0.7}, {"v_prime": 0.99}, {"clip": 0.3}))
    made += [{"activation": name, "sparsity": sparsity, **choice} for name, sparsity, choice in edges]
    # Other odds than one in a hundred; the last cannot be had.
    made += [{"activation": "crelu", "sparsity": s, "width": 300, "depth": 60, "odds": 0.1} for s in (0.7, 0.85, 0.95)]
    made.append({"activation": "cst", "sparsity": 0.9, "width": 20, "depth": 30, "odds": 1e-6})
    return made


def chains() -> list[dict[str, Any]]:
    """Settings of finite_width and bands beyond what a design shows: positions, seeds, quantiles, off the edge."""
    return [
        {"activation": name, "threshold": 1.0, "clip": 1.2, "sigma_w": 2.5, "sigma_b": 0.6, "width": width,
         "depth": depth, "positions": positions, "seed": seed}
        for name, (width, depth), positions, seed in product(("crelu", "cst"), ((100, 30), (300, 12)), (1, 64), (0, 3))
    ]  # fmt: skip


def said(arguments: dict[str, Any]) -> dict[str, Any]:
    """What the code says of a setting: {"design": …, "printed": …}, or {"refused": …}."""
    try:
        made = design(**arguments)
    except ValueError as error:
        return {"refused": str(error)}
    return {"design": made.to_dict(), "printed": str(made)}


def simulated(of: dict[str, Any]) -> dict[str, Any]:
    """What the chains say: quantiles at the first, middle and last layer, the odds, and the ends of the bands."""
    phi = activation(of["activation"], of["threshold"], of["clip"])
    chain = phi, of["sigma_w"], of["sigma_b"], of["width"], of["depth"]
    options: dict[str, Any] = {"q_start": 1.3, "norms": IMAGE_NORMS, "positions": of["positions"], "seed": of["seed"]}
    finite, band = finite_width(*chain, **options), bands(*chain, **options)
    correlated = correlation_band(*chain, q_start=1.3, correlations=np.array([0.2, 0.6]), seed=of["seed"])
    layers = (0, of["depth"] // 2, -1)
    return {
        "q": {f"{level}": [row[i] for i in layers] for level, row in finite.q_quantiles.items()},
        "gain": {f"{level}": [row[i] for i in layers] for level, row in finite.gain_quantiles.items()},
        "odds": [finite.explode, finite.vanish, band.explode, band.vanish],
        "bands": {
            name: [edge[i] for edge in (one.low, one.median, one.high) for i in layers]
            for name, one in (
                ("q", band.q),
                ("sparsity", band.sparsity),
                ("saturation", band.saturation),
                ("gain", band.gain_log10),
                ("correlation", correlated),
            )
        },
    }


def differences(pinned: Any, now: Any, path: str = "") -> list[str]:
    """Every value in which the two differ, by its path."""
    if isinstance(pinned, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*pinned, *now])
        return [d for key in keys for d in differences(pinned.get(key), now.get(key), f"{path}.{key}")]
    if isinstance(pinned, list) and isinstance(now, list) and len(pinned) == len(now):
        return [d for i, (a, b) in enumerate(zip(pinned, now, strict=True)) for d in differences(a, b, f"{path}[{i}]")]
    return [] if pinned == now else [f"{path[1:]}: {pinned!r} → {now!r}"]


KINDS: dict[str, tuple[Callable[[], list[dict[str, Any]]], Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "designs": (settings, said),
    "chains": (chains, simulated),
}


def read(name: str) -> list[dict[str, Any]]:
    """The pins on file: {"arguments": …, "said": …} each."""
    entries: list[dict[str, Any]] = json.loads((PINS / f"{name}.json").read_text(encoding="utf-8"))
    return entries


def plain(value: Any) -> Any:
    """`value` as it comes back from a file: tuples are lists."""
    return json.loads(json.dumps(value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="pin what the code says now")
    if parser.parse_args().write:
        PINS.mkdir(parents=True, exist_ok=True)
        for name, (listed, say) in KINDS.items():
            entries = [{"arguments": arguments, "said": say(arguments)} for arguments in listed()]
            text = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
            (PINS / f"{name}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
            print(f"{name}: {len(entries)} settings pinned.")
        return
    for name, (_, say) in KINDS.items():
        moved = printed = 0
        entries = read(name)
        for entry in entries:
            now = plain(say(entry["arguments"]))
            found = differences(entry["said"], now)
            moved += bool(found)
            printed += any(entry["said"].get(key) != now.get(key) for key in ("printed", "refused"))
            if found:
                print(entry["arguments"], *found, sep="\n  ")
        print(f"{name}: {len(entries)} settings, {printed} print differently, {moved} differ in some digit.")


if __name__ == "__main__":
    main()
