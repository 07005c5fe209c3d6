"""Thousands of random models, plain and accelerated, compared: python benchmarks/never_different.py [--models 5000].

Each model has a seed that draws it, the edits between the calls and the calls; every output, gradient, parameter and
buffer of the twins is compared. A difference prints its seed and what was done until then; to see it again:

    python benchmarks/never_different.py --seed N

"At a kink" counts the models whose difference a plain model with Linears wrong in the sixth digit shows as well.
Exits with 1 if any model differs.
"""

import argparse
import faulthandler
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # the generator stands among the tests

from tests.sparse.random_models import KINDS
from tests.sparse.twins import Different, Outcome, run_twins, sensitive


@dataclass
class Tally:
    """How many models of one kind, edit or call, and how they ended."""

    models: Counter[str] = field(default_factory=Counter)
    engine: Counter[str] = field(default_factory=Counter)
    kinks: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)

    def add(self, names: Iterable[str], ran: bool, ended: str) -> None:
        for name in set(names):
            self.models[name] += 1
            self.engine[name] += ran
            self.kinks[name] += ended == "kink"
            self.different[name] += ended == "different"

    def lines(self, title: str) -> list[str]:
        head = f"{title:28} {'models':>7} {'engine ran':>11} {'at a kink':>10} {'different':>10}"
        rows = sorted(self.models, key=lambda name: -self.models[name])
        return [head] + [
            f"{name:28} {self.models[name]:7} {self.engine[name]:11} {self.kinks[name]:10} {self.different[name]:10}"
            for name in rows
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this model only, with what is done to it")
    parser.add_argument("--kind", choices=list(KINDS), help="models of this kind only")
    parser.add_argument("--without", action="append", default=[], help="leave out this edit or call")
    arguments = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    given = {"kinds": [arguments.kind] if arguments.kind else None, "without": tuple(arguments.without)}
    if arguments.seed is not None:
        return replay(arguments.seed, given)
    tallies = {"kind of model": Tally(), "accelerated": Tally(), "edit": Tally(), "call": Tally()}
    compared = raised = failed = 0
    began = shown = time.monotonic()
    for count, seed in enumerate(range(arguments.first, arguments.first + arguments.models), 1):
        outcome, ended = one(seed, given)
        failed += ended == "different"
        compared, raised = compared + outcome.compared, raised + outcome.raised
        for tally, names in zip(
            tallies.values(), ([outcome.kind], [outcome.mode], outcome.edits, outcome.calls), strict=True
        ):
            tally.add(names, outcome.engine > 0, ended)
        if time.monotonic() - shown > 5.0:
            shown = time.monotonic()
            # The next seed too, for a crash prints nothing but a stack.
            said = f"{count} models, {failed} different, {shown - began:.0f} s, next is seed {seed + 1}"
            print(said, file=sys.stderr, flush=True)
    for title, tally in tallies.items():
        print("\n".join(tally.lines(title)), end="\n\n")
    total = tallies["kind of model"]
    print(
        f"{sum(total.models.values())} models, {compared} tensors compared, {raised} calls and edits raised alike, "
        f"the engine ran on {sum(total.engine.values())} models; {sum(total.kinks.values())} at a kink, "
        f"{failed} different; {time.monotonic() - began:.0f} s."
    )
    return int(failed > 0)


def one(seed: int, given: dict) -> tuple[Outcome, str]:
    try:
        return run_twins(seed, **given), "alike"
    except Different as different:
        if sensitive(different, **given):
            return different.outcome, "kink"
        log = "\n    ".join(line[:200].replace("\n", " ") for line in different.log)
        again = "".join([f" --kind {given['kinds'][0]!r}" if given["kinds"] else "", *without(given)])
        print(f"DIFFERENT: {different.what}\n    {log}\n    again: --seed {seed}{again}", flush=True)
        return different.outcome, "different"


def without(given: dict) -> list[str]:
    return [f" --without {name!r}" for name in given["without"]]


def replay(seed: int, given: dict) -> int:
    try:
        outcome = run_twins(seed, **given)
    except Different as different:
        print(different)
        print("A plain model that is wrong in the sixth digit differs too." if sensitive(different, **given) else "")
        return 1
    print(f"Alike: {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
