"""Random models, edited and called at random: the accelerated twin is never different from the plain one.

`python benchmarks/never_different.py` does the same with thousands; its `--seed` replays any of them, also these.
"""

import pytest
import torch

from .random_models import KINDS
from .twins import Different, run_twins, sensitive

SEEDS_OF_A_KIND = 24


@pytest.fixture(autouse=True)
def _one_thread(_two_threads):
    """Models of this size gain nothing from a second thread, and two that wait for one another take seconds."""
    torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_never_different(kind):
    first = 10_000 * list(KINDS).index(kind)
    engine, raised, calls, at_a_kink = 0, 0, 0, 0
    for seed in range(first, first + SEEDS_OF_A_KIND):
        try:
            outcome = run_twins(seed, [kind])
        except Different as different:
            if not sensitive(different, kinds=[kind]):
                raise
            at_a_kink += 1
            continue
        engine += outcome.engine > 0
        raised += outcome.raised
        calls += len(outcome.calls) + len(outcome.edits)
    # Two plain models are never different either: kernels must have run, and most calls must have given results.
    assert engine >= SEEDS_OF_A_KIND // 4
    assert raised < calls // 3
    assert at_a_kink <= 1


def test_a_wrong_engine_is_found_out():
    """The comparison itself: Linears that are wrong in the third digit do not pass."""
    found = 0
    for seed in range(20):
        try:
            run_twins(seed, noise=3e-3)
        except Different:
            found += 1
    assert found >= 12
