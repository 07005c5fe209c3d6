"""Dead units that come back: which bias moves, by how much, and when none does."""

import copy
import pickle

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from tests.nn.holding.layers import batches, network, take_step, thresholds


def _still(model):
    """An optimizer that changes nothing: what moves a bias then is the hold alone."""
    return torch.optim.SGD(model.parameters(), lr=0.0)


def _train(model, data, optimizer=None):
    optimizer = optimizer or _still(model)
    for x in data:
        take_step(model, optimizer, x)


def _with_dead_unit(act=lambda: hn.CReLU(1.0, 1.0), bias=-40.0):
    model = network(act)
    with torch.no_grad():
        model[0].bias[7] = bias
    return model


def test_a_bias_moves_by_what_the_nearest_input_lacked():
    model = _with_dead_unit()
    before = model[0].bias.detach().clone()
    hold = hush.hold(model, 0.8, window=10, revive="bias")
    data = batches(20)
    _train(model, data[:10])
    (row, _) = hold.report().layers
    assert row.dead == pytest.approx(1 / 48)
    assert row.revived == 0
    # The same, from the layer itself: the largest input of the window now passes by a tenth of the last step's rms.
    with torch.no_grad():
        inputs = torch.cat([nn.functional.linear(x, model[0].weight, before) for x in data[:10]])
    expected = model[1].threshold + 0.1 * inputs[-32:].square().mean().sqrt() - inputs[:, 7].max()
    moved = model[0].bias.detach() - before
    assert float(moved[7]) == pytest.approx(float(expected), rel=1e-4)
    assert torch.equal(moved != 0, torch.arange(48) == 7)
    _train(model, data)  # that input comes again, in two windows
    (row, _) = hold.report().layers
    assert row.dead == 0.0
    assert row.revived == 1
    assert "revived" in str(hold.report())


def test_odd_activations_take_the_nearer_side():
    model = network(lambda: hn.CST(1.0, 1.0))
    with torch.no_grad():
        model[0].weight[5:7].mul_(0.01)
        model[0].bias[5], model[0].bias[6] = -0.3, 0.3
    hush.hold(model, 0.7, window=6, gain=0.01, revive="bias")
    _train(model, batches(6))
    reach = model[1].threshold
    assert -1.5 * reach < model[0].bias[5] < -reach
    assert reach < model[0].bias[6] < 1.5 * reach


def test_zeros_stay_held_and_dead_units_go():
    def train(revive):
        model = network()
        with torch.no_grad():
            model[0].bias[:16] = -6.0
        hold = hush.hold(model, 0.9, window=25, revive=revive)
        _train(model, batches(200, 64), torch.optim.AdamW(model.parameters(), lr=1e-3))
        return hold.report()

    left, revived = train(None), train("bias")
    assert left.layers[0].dead >= 16 / 48
    assert left.layers[0].revived is None
    assert revived.layers[0].dead <= 5 / 48  # the loss of this test wants silence
    assert revived.layers[0].revived >= 16
    assert revived.worst < 0.01


def test_channels_behind_a_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 6, 3, bias=False), nn.BatchNorm2d(6), hn.CReLU(0.5, 1.0), nn.Flatten())
    with torch.no_grad():
        model[1].bias[2] = -9.0
    hold = hush.hold(model, 0.8, window=4, revive="bias")
    _train(model, [x.reshape(-1, 1, 6, 6) for x in batches(8, features=36)])
    assert hold.report().layers[0].revived >= 1
    assert model[1].bias[2] > -9.0


class _Twice(nn.Module):
    """Something changes what the layer gives out before the activation reads it."""

    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(12, 8), hn.CReLU(1.0, 1.0)

    def forward(self, x):
        return self.act(2.0 * self.linear(x))


class _Shared(nn.Module):
    """Two activations read the same output."""

    def __init__(self):
        super().__init__()
        self.linear, self.one, self.other = nn.Linear(12, 8), hn.CReLU(1.0, 1.0), hn.CReLU(1.0, 1.0)

    def forward(self, x):
        x = self.linear(x)
        return self.one(x) + self.other(x)


def _without_bias():
    return nn.Sequential(nn.Linear(12, 8, bias=False), hn.CReLU(1.0, 1.0))


def _frozen():
    model = nn.Sequential(nn.Linear(12, 8), hn.CReLU(1.0, 1.0))
    model[0].bias.requires_grad_(False)
    return model


@pytest.mark.parametrize("make", [_Twice, _Shared, _without_bias, _frozen])
def test_where_no_bias_can_be_moved_the_report_says_so(make):
    model = make()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(-5.0)
    before = copy.deepcopy(dict(model.named_parameters()))
    hold = hush.hold(model, 0.5, window=3, revive="bias")
    _train(model, [x.abs() for x in batches(6)])
    row = hold.report().layers[0]
    assert row.dead == 1.0
    assert row.has_bias is False
    assert "no bias in front" in row.note or row.off_target
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_hooks_of_the_search_are_gone_after_the_first_step():
    model = network()
    hush.hold(model, 0.9, revive="bias")
    assert model[0]._forward_hooks
    _train(model, batches(1))
    assert not model[0]._forward_hooks
    assert not model[1]._forward_pre_hooks
    released = network()
    hush.hold(released, 0.9, revive="bias").remove()
    assert not released[0]._forward_hooks


def test_copies_and_pickles_revive_their_own():
    for before_a_forward in (True, False):
        model = _with_dead_unit()
        hush.hold(model, 0.9, window=4, revive="bias")
        if not before_a_forward:
            _train(model, batches(1))
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            _train(twin, batches(4))
            assert twin[0].bias[7] > -40.0
            assert model[0].bias[7] == -40.0


def test_weights_that_are_assigned_are_the_ones_that_move():
    model = _with_dead_unit()
    hush.hold(model, 0.9, window=4, revive="bias")
    _train(model, batches(2))
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    _train(model, batches(4))
    assert model[0].bias[7] > -40.0


def test_a_state_with_watched_inputs_goes_where_none_are_watched_and_back():
    model, plain = _with_dead_unit(), _with_dead_unit()
    hush.hold(model, 0.9, window=8, revive="bias")
    hold = hush.hold(plain, 0.9, window=8)
    _train(model, batches(5))
    plain.load_state_dict(model.state_dict())
    assert hold.gauges[0].moves == 5
    model.load_state_dict(plain.state_dict())
    _train(model, batches(8))
    assert model[0].bias[7] > -40.0


def test_not_a_number_is_no_input():
    model = _with_dead_unit()
    hold = hush.hold(model, 0.9, window=4, revive="bias")
    data, optimizer = batches(5), _still(model)
    _train(model, data[:2], optimizer)
    data[2][3] = float("nan")
    model(data[2])
    hold.step()
    assert [gauge.moves for gauge in hold.gauges] == [2, 2]
    _train(model, data[3:], optimizer)
    assert -40.0 < model[0].bias[7] < 40.0
    assert model[0].bias.isfinite().all()


def test_mixed_precision_finds_the_bias_too():
    model = _with_dead_unit()
    hush.hold(model, 0.9, window=4, revive="bias")
    optimizer = _still(model)
    for x in batches(4):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
    assert model[0].bias[7] > -40.0


def test_an_accelerated_model_as_the_plain_one():
    plain, fast = _with_dead_unit(), hush.sparse.accelerate(_with_dead_unit(), adaptive=False)
    for model in (plain, fast):
        hush.hold(model, 0.9, window=8, every=2, revive="bias")
        _train(model, batches(20), torch.optim.SGD(model.parameters(), lr=0.01))
    assert plain[0].bias[7] > -40.0
    torch.testing.assert_close(fast[0].bias, plain[0].bias, rtol=1e-4, atol=1e-5)
    assert thresholds(fast) == pytest.approx(thresholds(plain), rel=1e-4)


def test_only_these_words():
    with pytest.raises(ValueError, match='revive must be "bias" or None'):
        hush.hold(network(), 0.9, revive="redraw")
