import pytest

import hush
from tests.nn.holding.layers import batches, network, sgd, take_step


def test_the_first_pattern_that_matches_counts():
    hold = hush.hold(network(), {"1": 0.7, "*": 0.9})
    assert {g.name: g.goal for g in hold.gauges} == {"1": 0.7, "3": 0.9}


def test_layers_that_no_pattern_names_are_left_alone():
    model = network()
    hush.hold(model, {"3": 0.9})
    take_step(model, sgd(model), *batches(1))
    assert model[1].threshold == 1.0
    assert model[3].threshold != 1.0


def test_each_layer_reaches_its_own_goal():
    model = network()
    hold = hush.hold(model, {"1": 0.7, "3": 0.9}, window=50)
    optimizer = sgd(model, lr=1e-3)
    for x in batches(200, 64):
        take_step(model, optimizer, x)
    assert [row.zeros_of_window for row in hold.report().layers] == pytest.approx([0.7, 0.9], abs=0.01)


@pytest.mark.parametrize("sparsity", [0.0, 1.0, -0.1, float("nan"), True, "0.9", {"1": 1.5}])
def test_shares_lie_between_0_and_1(sparsity):
    with pytest.raises(ValueError, match="between 0 and 1"):
        hush.hold(network(), sparsity)


def test_a_pattern_must_match():
    with pytest.raises(ValueError, match=r"'blocks.\*' matches no activation of the model; it has '1', '3'"):
        hush.hold(network(), {"blocks.*": 0.9, "*": 0.5})
    with pytest.raises(ValueError, match="no sparsity to hold"):
        hush.hold(network(), {})


def test_a_ramp_is_a_straight_line():
    ramp = hush.ramp(0.5, steps=100)
    assert [ramp.at(step, 0.9) for step in (0, 25, 50, 100, 1000)] == pytest.approx([0.5, 0.6, 0.7, 0.9, 0.9])
    for start, steps in ((0.0, 10), (0.5, 0), (0.5, 1.5)):
        with pytest.raises(ValueError, match="ramp"):
            hush.ramp(start, steps=steps)
    with pytest.raises(ValueError, match="schedule must be a ramp"):
        hush.hold(network(), schedule=0.5)


@pytest.mark.parametrize("every", [1, 4])
def test_a_schedule_counts_optimizer_steps(every):
    model = network()
    hold = hush.hold(model, 0.9, schedule=hush.ramp(0.6, steps=200), every=every, gain=0.2, window=20)
    optimizer = sgd(model, lr=1e-3)
    for i, x in enumerate(batches(300, 64)):
        take_step(model, optimizer, x)
        if i == 99:
            half = hold.report()
    assert [row.target for row in half.layers] == pytest.approx([0.75, 0.75])
    # It follows a rising target at a distance, and stands on a resting one.
    assert half.worst < 0.05
    assert hold.report().worst < 0.01
