"""The controller by itself: how it answers an error, noise, a bound, and inputs that are no numbers."""

import math
import statistics

import pytest
import torch

import hush
import hush.nn as hn
from tests.nn.holding.layers import ACTIVATIONS, WIDTH, Gaussian, batches, sgd, take_step


def _held(act, sparsity, **options):
    model = Gaussian(act)
    return model, hush.hold(model, sparsity, **options), sgd(model)


@pytest.mark.parametrize("name", ["crelu", "cst"])
def test_a_small_error_shrinks_by_the_gain_at_each_step(name):
    # P(φ = 0) is Φ(τ) or 2Φ(τ) − 1; the threshold is a little too low for 0.9, and the inputs are a fixed large sample.
    quantile = statistics.NormalDist().inv_cdf(0.9 if name == "crelu" else 0.95)
    act = ACTIVATIONS[name]()
    act.threshold = quantile - 0.05
    model, hold, optimizer = _held(act, 0.9, gain=0.1)
    (x,) = batches(1, 4096, features=WIDTH)
    errors = []
    for _ in range(12):
        take_step(model, optimizer, x)
        errors.append(0.9 - hold.gauges[0].share)
    # The sample's own quantile is off by about 1e-4 of a share; the error begins at 0.0085.
    for k in (4, 8, 11):
        assert errors[k] / errors[0] == pytest.approx(0.9**k, abs=0.06)


@pytest.mark.parametrize(("gain", "settled"), [(0.05, 40), (0.2, 10)])
def test_step_response_from_half_to_95_percent(gain, settled):
    # The loop by itself, on exact Gaussian shares: no overshoot, and within 0.01 after so many steps.
    normal = statistics.NormalDist()
    slope, exact = normal.pdf(normal.inv_cdf(0.95)), [0.0]
    for _ in range(2 * settled):
        exact.append(exact[-1] + gain * (0.95 - normal.cdf(exact[-1])) / slope)
    assert next(k for k, t in enumerate(exact) if normal.cdf(t) > 0.94) <= settled
    model, hold, optimizer = _held(hn.CReLU(0.0, 1.0), 0.95, gain=gain)
    found = [0.0]
    for x in batches(2 * settled, 32, features=WIDTH):
        take_step(model, optimizer, x)
        found.append(model.act.threshold)
    # A batch tells the quantile to 0.023, of which the loop keeps √(gain/2) and less.
    noise = 0.023 * math.sqrt(gain / 2)
    assert max(abs(a - b) for a, b in zip(found, exact, strict=True)) < 5 * noise
    assert normal.cdf(max(found)) < 0.96
    assert abs(hold.gauges[0].share - 0.95) < 0.01


def test_a_sudden_change_of_scale_is_followed():
    model, hold, optimizer = _held(hn.CReLU(1.6, 1.0), 0.95)
    data = batches(200, 32, features=WIDTH)
    for x in data[:20]:
        take_step(model, optimizer, x)
    shares = []
    for x in data[20:]:
        take_step(model, optimizer, 2.0 * x)
        shares.append(hold.gauges[0].share)
    assert shares[0] < 0.85
    assert statistics.mean(shares[80:]) == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize(("scale", "goal"), [(1.0, 0.6), (50.0, 0.95), (1e-3, 0.98)])
def test_any_scale_of_inputs_reaches_the_goal(scale, goal):
    model, hold, optimizer = _held(hn.ShiftedReLU(1.0), goal)
    for x in batches(300, 32, features=WIDTH):
        take_step(model, optimizer, scale * x)
    assert hold.report().layers[0].zeros == pytest.approx(goal, abs=0.01)
    assert model.act.threshold / scale == pytest.approx(statistics.NormalDist().inv_cdf(goal), abs=0.05)


def test_noise_of_small_batches_is_averaged_out():
    act = hn.CReLU(statistics.NormalDist().inv_cdf(0.95), 1.0)
    model, _, optimizer = _held(act, 0.95)
    seen = []
    for x in batches(300, 16, features=64):
        take_step(model, optimizer, x)
        seen.append(act.threshold)
    # One batch of 1,024 numbers tells the quantile to 0.066; a loop of gain g keeps √(g/2) of that.
    assert statistics.stdev(seen[50:]) < 0.066 * 2 * math.sqrt(0.05 / 2)
    assert statistics.mean(seen[50:]) == pytest.approx(1.645, abs=0.02)
    # In shares, what an endless batch would have had at each of these thresholds.
    shares = [statistics.NormalDist().cdf(threshold) for threshold in seen[50:]]
    assert statistics.mean(shares) == pytest.approx(0.95, abs=0.002)
    assert statistics.stdev(shares) < 0.0022


@pytest.mark.parametrize(("name", "value"), [("crelu", 0.0), ("crelu", 1.0), ("cst", 1.0), ("shifted_relu", 1e4)])
def test_a_share_that_no_threshold_gives_is_said_and_nothing_runs_away(name, value):
    """All inputs are the same, so zeros are none or all."""
    model, hold, optimizer = _held(ACTIVATIONS[name](), 0.95, window=100)
    x, seen = torch.full((4, 16), value), []
    for _ in range(300):
        take_step(model, optimizer, x)
        seen.append(model.act.threshold)
    # The most that one step can add to a threshold that still lets the inputs pass.
    slope = 2.0 * 0.0584 if name in ("cst", "soft_threshold") else 0.1031
    assert max(seen[100:]) <= max(value, 1e-2) * (1.0 + 0.05 * 0.95 / slope) + 1e-6
    assert min(seen) >= 0.0
    (row,) = hold.report().layers
    assert row.off_target
    assert "off its target" in row.note
    # Ordinary inputs bring it back.
    for y in batches(400, 32, features=16):
        take_step(model, optimizer, y)
    assert not hold.report().layers[0].off_target


def test_a_bound_is_reported_and_winds_nothing_up():
    model, hold, optimizer = _held(hn.ShiftedReLU(0.2), 0.3)
    for x in batches(150, 64, features=WIDTH):
        take_step(model, optimizer, x)
    assert model.act.threshold == 0.0
    (row,) = hold.report().layers
    assert row.at_bound
    assert row.zeros == pytest.approx(0.5, abs=0.02)
    assert "cannot fall further" in str(hold.report())
    # However long it was there, the first step with too few zeros leaves it.
    (x,) = batches(1, 64, features=WIDTH)
    take_step(model, optimizer, x + 2.0)
    assert model.act.threshold > 0.01
    assert not hold.report().layers[0].at_bound


def test_a_layer_whose_scale_collapses_comes_back():
    model, hold, optimizer = _held(hn.CReLU(1.6, 1.0), 0.95)
    for x in batches(300, 32, features=WIDTH):
        take_step(model, optimizer, 1e-3 * x)
    assert hold.report().layers[0].zeros == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_what_is_not_finite_moves_nothing(poison):
    model, hold, optimizer = _held(hn.CReLU(1.0, 1.0), 0.95)
    x, y = batches(2, features=WIDTH)
    take_step(model, optimizer, x)
    before = model.act.threshold
    bad = x.clone()
    bad[3, 5] = poison
    take_step(model, optimizer, bad)
    assert model.act.threshold == before
    assert hold.gauges[0].moves == 1
    take_step(model, optimizer, y)
    assert model.act.threshold != before
    assert math.isfinite(model.act.threshold)


def test_clips_stay_or_follow():
    for clip, expected in (("stay", 1.5), ("follow", None)):
        model, _, optimizer = _held(hn.CReLU(1.0, 1.5), 0.95, clip=clip)
        for x in batches(60, features=WIDTH):
            take_step(model, optimizer, x)
        assert model.act.threshold > 1.3
        assert model.act.clip == pytest.approx(expected or 1.5 * model.act.threshold)


def test_a_following_clip_never_vanishes():
    model, _, optimizer = _held(hn.CReLU(1.0, 1.0), 0.4, clip="follow")
    for x in batches(150, features=WIDTH):
        take_step(model, optimizer, x)
    assert model.act.threshold == 0.0
    assert model.act.clip == 0.25


def test_dead_units_are_those_never_active_in_a_window():
    model, hold, optimizer = _held(hn.CReLU(1.0, 1.0), 0.9, window=20)
    for i, x in enumerate(batches(40, features=WIDTH)):
        x[:, :16] = -5.0
        if i == 3:
            x[0, 0] = 5.0  # once in the first window
        take_step(model, optimizer, x)
        if i == 18:
            assert hold.report().layers[0].dead is None
        if i == 19:
            assert hold.report().layers[0].dead == 15 / WIDTH
    assert hold.report().layers[0].dead == 16 / WIDTH


def test_a_state_is_never_taken_for_that_of_another_activation():
    from hush.nn.activations import HELD_NUMBERS

    _, hold, _ = _held(hn.CReLU(1.0, 1.0), 0.9)
    assert hold.gauges[0].state().numel() == HELD_NUMBERS


def test_units_of_convolutions_are_channels():
    from torch import nn

    model = nn.Sequential(nn.Conv2d(1, 6, 3), hn.CReLU(0.1, 1.0), nn.Flatten(), nn.Linear(96, 5), hn.CReLU(0.1, 1.0))
    model[0].bias.data[2] = -100.0
    hold = hush.hold(model, 0.8, window=2)
    optimizer = sgd(model, lr=1e-6)
    for x in batches(2, features=36):
        take_step(model, optimizer, x.reshape(-1, 1, 6, 6))
    assert [g.units.active.numel() for g in hold.gauges] == [6, 5]
    assert hold.report().layers[0].dead == 1 / 6
