"""The two rules: the chain's on gains, and the one for residual networks beside the trainings it was chosen on."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks._block_rule import Judged, choose_bounds, majority, misjudged, share_right
from benchmarks._block_settings import draw_settings, read_settings
from benchmarks._block_table import TABLE, read_table
from benchmarks._block_training import measure, train
from hush.theory.training_rule import BlockBounds, BlockFigures, judge_blocks, judge_gains

SAFE = BlockFigures(0.4, 0.3, 0.0, 0.5, sparsity=0.9, target_sparsity=0.9)
TRAINED = read_table()
FIRST = [network for network in TRAINED if network.half != "C"]
SECOND = [network for network in TRAINED if network.half == "C"]


def test_gains_of_a_chain() -> None:
    # Of four inputs one explodes in the middle only, and one vanishes.
    gains = np.array([[0.0, 1.0, -7.0, 2.0], [0.0, 3.5, -2.0, 2.0]])
    outcome = judge_gains(gains)
    assert (outcome.explode, outcome.vanish) == (0.25, 0.25)
    assert outcome.gain_log10[0.5] == 0.5


def test_a_safe_network() -> None:
    verdict = judge_blocks(SAFE)
    assert verdict.trains
    assert verdict.reasons == ()


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"highest_gain_log10": 4.3}, "explodes", "grows to 10^4.3 times"),
        ({"highest_gain_log10": math.inf}, "explodes", "infinitely many"),
        ({"highest_gain_log10": math.nan}, "explodes", "no longer finite"),
        ({"correlation": math.nan}, "explodes", "no longer finite"),
        ({"output_log10": 1.6}, "explodes", "mean square of 10^1.6"),
        ({"first_gain_log10": -6.1}, "vanishes", "10^-6.1 of the squared gradient arrives"),
        ({"first_gain_log10": -math.inf}, "vanishes", "0 of the squared gradient arrives"),
        ({"correlation": 0.999}, "indistinguishable", "10^-3 of what the head reads"),
        ({"correlation": 1.0}, "indistinguishable", "0 of what the head reads"),
        ({"sparsity": 0.79}, "sparsity_lost", "0.790 of the units are zero, and 0.900 were asked for"),
        ({"sparsity": 1.0, "target_sparsity": 0.8}, "sparsity_lost", "1.000 of the units"),
    ],
)
def test_each_failure_has_its_reason(changed: dict[str, float], kind: str, words: str) -> None:
    verdict = judge_blocks(replace(SAFE, **changed))
    kinds = ("explodes", "vanishes", "indistinguishable", "sparsity_lost")
    assert [name for name in kinds if getattr(verdict, name)] == [kind]
    assert len(verdict.reasons) == 1
    assert words in verdict.reasons[0]
    # Lost sparsity says nothing about training.
    assert verdict.trains is (kind == "sparsity_lost")


def test_several_failures_are_all_named() -> None:
    verdict = judge_blocks(BlockFigures(9.0, -9.0, 9.0, 1.0, 0.1, 0.9))
    assert len(verdict.reasons) == 5
    assert verdict.explodes
    assert verdict.vanishes
    assert verdict.indistinguishable
    assert verdict.sparsity_lost


def test_on_the_bound_it_trains() -> None:
    bounds = BlockBounds()
    edge = BlockFigures(bounds.highest_gain_log10, bounds.first_gain_log10, bounds.output_log10, 0.5)
    assert judge_blocks(edge).trains


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"correlation": 1.1}, "correlation must lie between -1 and 1, got 1.1"),
        ({"sparsity": -0.1}, "sparsity must lie between 0 and 1, got -0.1"),
        ({"target_sparsity": 90.0}, "target_sparsity must lie between 0 and 1, got 90.0"),
    ],
)
def test_figures_out_of_range(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SAFE, **changed)


def test_the_committed_runs_are_those_of_the_list() -> None:
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    listed = read_settings()
    assert listed == draw_settings()
    assert [(row["half"], int(row["seed"]), row["norm"], int(row["depth"])) for row in rows] == [
        (half, setting.seed, setting.norm, setting.depth) for half, setting in listed
    ]
    assert min(len(FIRST), len(SECOND)) >= 60


def test_the_bounds_are_those_chosen_on_the_first_half() -> None:
    assert choose_bounds(FIRST) == BlockBounds()


def test_the_rule_is_right_on_nine_in_ten_of_the_half_it_has_not_seen() -> None:
    assert share_right(SECOND, choose_bounds(FIRST)) >= 0.9
    # A rule that says the same of all networks is far from that.
    assert majority(SECOND) < 0.75


def test_choosing_finds_the_bounds_that_made_the_outcomes() -> None:
    rng = np.random.default_rng(0)
    true = BlockBounds(3.5, output_log10=2.0, difference_log10=-3.0)
    networks = []
    for _ in range(2000):
        figures = BlockFigures(rng.uniform(0, 7), 0.0, rng.uniform(0, 4), 1.0 - 10.0 ** rng.uniform(-6, 0))
        trained = judge_blocks(figures, true).trains
        networks.append(Judged("", "A", figures, "", 0.0, trained, trained, None, None))
    assert replace(choose_bounds(networks), sparsity=true.sparsity) == true
    assert misjudged(networks, true) == []
    # A tenth of the outcomes turned round is a tenth misjudged, by the same bounds.
    turned = [replace(n, trained=not n.trained) if i % 10 == 0 else n for i, n in enumerate(networks)]
    assert share_right(turned, choose_bounds(turned)) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("index", range(0, 98, 24))
def test_the_figures_can_be_measured_again(index: int) -> None:
    figures, (_, setting) = measure(read_settings()[index][1]), read_settings()[index]
    assert setting.data == "digits"
    committed = TRAINED[index].figures
    assert figures["highest_gain"] == pytest.approx(committed.highest_gain_log10, abs=0.02)
    assert figures["output"] == pytest.approx(committed.output_log10, abs=0.02)
    assert figures["correlation"] == pytest.approx(committed.correlation, abs=0.02)


def test_the_rule_on_two_networks_that_are_trained_here() -> None:
    """The same network with and without the branch scale: 10 blocks of ReLU without a norm, weights doubled."""
    safe = replace(read_settings()[0][1], data="digits", matrices=2, norm="none", activation="relu", sparsity=0.0)
    safe = replace(safe, slope=0.0, draw="block", times_in=1.0, times_out=2.0, bias=0.0, input_scale=1.0, width=64)
    for scale, trains in (("1/sqrt(depth)", True), ("1", False)):
        setting = replace(safe, branch_scale=scale, depth=10)
        figures = measure(setting)
        said = judge_blocks(
            BlockFigures(figures["highest_gain"], figures["first_gain"], figures["output"], figures["correlation"])
        )
        run = train(setting)
        assert said.trains is trains
        assert run["trained"] is trains
