"""hush.hold in ordinary and less ordinary training loops."""

import copy
import io
import json
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import hush
import hush.nn as hn
from tests.nn.holding.layers import ACTIVATIONS, WIDTH, Gaussian, batches, network, sgd, take_step, thresholds


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_is_held(name):
    model = network(ACTIVATIONS[name])
    hold = hush.hold(model, 0.9, window=100)
    optimizer = sgd(model, lr=1e-2)
    for x in batches(300, 64):
        take_step(model, optimizer, x)
    assert hold.report().worst < 0.01


def test_without_it_the_share_drifts():
    model = network()
    optimizer = sgd(model, lr=1e-2)
    for x in batches(300, 64):
        take_step(model, optimizer, x)
    assert abs(hush.sparsity(model, batches(1, 512)[0]).layers["1"] - 0.9) > 0.03


def test_evaluation_is_a_pure_function():
    model = network()
    hush.hold(model, 0.9)
    optimizer = sgd(model)
    train, (x,) = batches(5), batches(1, seed=7)
    take_step(model, optimizer, train[0])
    model.eval()
    before, out = copy.deepcopy(model.state_dict()), model(x)
    for y in train:
        model(y).sum().backward()  # gradients too
    optimizer.zero_grad()
    assert torch.equal(model(x), out)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@settings(max_examples=10, deadline=None)
@given(
    calls=st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["gradients", "none", "inference"])), max_size=6),
    every=st.sampled_from([1, 3]),
    revive=st.sampled_from([None, "bias"]),
    name=st.sampled_from(sorted(ACTIVATIONS)),
    trained=st.integers(0, 5),
)
def test_in_eval_no_call_of_any_kind_changes_anything(calls, every, revive, name, trained):
    model = network(ACTIVATIONS[name])
    hold = hush.hold(model, 0.9, every=every, window=2, revive=revive)
    optimizer = sgd(model)
    for x in batches(trained):
        take_step(model, optimizer, x)
    model.eval()
    (x,) = batches(1, seed=7)
    before, report = copy.deepcopy(model.state_dict()), hold.report()
    out = model(x).detach()
    modes = {"gradients": torch.enable_grad, "none": torch.no_grad, "inference": torch.inference_mode}
    for rows, mode in calls:
        with modes[mode]():
            part = model(x[:rows])
        # Matrix products may round by the size of the batch; nothing else may depend on who else is in it.
        torch.testing.assert_close(part.detach(), out[:rows], rtol=1e-5, atol=1e-5)
        if every == 1:
            hold.step()  # nothing new was counted, so nothing moves
    assert torch.equal(model(x), out)
    assert hold.report() == report
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    with torch.no_grad():
        inputs = model[0](x)
        small = inputs.abs() <= model[1].threshold
        assert (model[1](inputs)[small] == 0.0).all()  # exactly


def test_forwards_without_gradients_count_nothing():
    model = network()
    hold = hush.hold(model, 0.9)
    with torch.no_grad():
        model(batches(1)[0])
    hold.step()
    assert thresholds(model) == [1.0, 1.0]


def test_layers_in_eval_mode_rest():
    model = network()
    hush.hold(model, 0.9)
    model[1].eval()
    take_step(model, sgd(model), *batches(1))
    assert model[1].threshold == 1.0
    assert model[3].threshold != 1.0


def test_several_forwards_for_one_step_move_once():
    whole, parts = network(), network()
    for model in (whole, parts):
        hush.hold(model, 0.9)
    one, other = sgd(whole), sgd(parts)
    for x in batches(20, 64):
        take_step(whole, one, x)
        take_step(parts, other, *x.chunk(4))
    assert thresholds(parts) == pytest.approx(thresholds(whole), rel=1e-4)


def test_two_optimizers_of_one_model_count_once():
    def train(make):
        model = network()
        hold = hush.hold(model, 0.9, every=3)
        optimizers = make(model)
        for x in batches(31):
            model(x).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return model, hold

    one, hold = train(lambda m: [torch.optim.SGD(m.parameters(), 0.05)])
    two, twice = train(lambda m: [torch.optim.SGD(m[:2].parameters(), 0.05), torch.optim.SGD(m[2:].parameters(), 0.05)])
    assert thresholds(one) == thresholds(two)
    assert [g.moves for g in hold.gauges] == [g.moves for g in twice.gauges] == [11, 11]


def test_a_later_optimizer_takes_over():
    model = network()
    hold = hush.hold(model, 0.9)
    first, second, other = sgd(model), sgd(model), torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    for optimizer in (first, second):
        for x in batches(5):
            take_step(model, optimizer, x)
    assert hold.gauges[0].moves == 9  # the first step of the second one goes with its second
    model(batches(1)[0])
    other.step()  # it has none of the model's parameters
    assert hold.gauges[0].moves == 9


def test_steps_that_a_gradient_scaler_leaves_out_move_nothing():
    model = network()
    hold = hush.hold(model, 0.9)
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for x in batches(3):
        optimizer.zero_grad()
        scaler.scale(1e3 * model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update(2.0**127)
    assert hold.gauges[0].moves == 0
    scaler.update(4.0)
    optimizer.zero_grad()
    scaler.scale(model(batches(1)[0]).square().mean()).backward()
    scaler.step(optimizer)
    assert hold.gauges[0].moves == 1


def test_mixed_precision():
    model = network()
    hold = hush.hold(model, 0.9, window=100)
    optimizer = sgd(model, lr=1e-3)
    for x in batches(300, 64):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
    # bfloat16 has 8 bits: a threshold near 1 takes effect in steps of 1/128.
    assert hold.report().worst < 0.01
    assert all(type(t) is float for t in thresholds(model))


def test_other_updates_call_step():
    model = network()
    hold = hush.hold(model, 0.9)
    model(batches(1)[0]).sum().backward()
    hold.step()
    moved = thresholds(model)
    hold.step()
    assert thresholds(model) == moved != [1.0, 1.0]


def test_whoever_never_steps_is_told():
    model = Gaussian(hn.CReLU(1.0, 1.0))
    hush.hold(model, 0.9)
    x = torch.zeros(2, 2)
    for _ in range(999):
        model(x)
    with pytest.warns(UserWarning, match="has not moved in 1000 forwards"):
        model(x)


def test_a_module_used_twice_has_one_threshold_for_both():
    act = hn.CReLU(1.0, 1.0)
    model = nn.Sequential(nn.Linear(12, 48), act, nn.Linear(48, 30), act, nn.Linear(30, 3))
    hold = hush.hold(model, 0.8, window=10)
    optimizer = sgd(model, lr=1e-4)
    for x in batches(400, 64):
        take_step(model, optimizer, x)
    (row,) = hold.report().layers
    assert row.zeros_of_window == pytest.approx(0.8, abs=0.02)
    assert row.dead is None  # at two widths no unit has a number


def test_checkpointed_layers_are_counted_all_the_same():
    plain, again = network(), network()
    for model in (plain, again):
        hush.hold(model, 0.9)
    one, other = sgd(plain), sgd(again)
    for x in batches(10):
        take_step(plain, one, x)
        other.zero_grad()
        checkpoint(again, x, use_reentrant=False).square().mean().backward()
        other.step()
    assert thresholds(again) == pytest.approx(thresholds(plain), rel=1e-6)


def test_transforms_count_nothing():
    model = network()
    hush.hold(model, 0.9)
    (x,) = batches(1)
    parameters = dict(model.named_parameters())
    torch.func.vmap(lambda row: torch.func.functional_call(model, parameters, (row,)))(x)
    torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).square().mean())(parameters)
    assert float(model[1]._gauge.elements) == 0.0


def test_export_leaves_no_counting_in_the_graph():
    model = network()
    hush.hold(model, 0.9)
    (x,) = batches(1)
    program = torch.export.export(model, (x,))
    assert not any("add_" in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(x), model(x))


@pytest.mark.parametrize("revive", [None, "bias"])
@pytest.mark.parametrize(("every", "with_safetensors"), [(1, False), (3, True)])
def test_resumed_bit_for_bit(every, with_safetensors, revive, tmp_path):
    def start():
        model = network()
        with torch.no_grad():
            model[0].bias[4] = -30.0
        options = {"clip": "follow", "window": 8, "every": every, "schedule": hush.ramp(0.6, steps=15)}
        return model, hush.hold(model, 0.9, revive=revive, **options), sgd(model)

    model, hold, optimizer = start()
    data = batches(24)
    for x in data[:10]:
        take_step(model, optimizer, x)
    model(data[10]).square().mean().backward()  # in the middle of an accumulation
    if with_safetensors:
        from safetensors.torch import load_file, save_file

        save_file(model.state_dict(), tmp_path / "model.safetensors")
        saved = load_file(tmp_path / "model.safetensors")
    else:
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        buffer.seek(0)
        saved = torch.load(buffer, weights_only=True)
    twin, held, second = start()
    twin.load_state_dict(saved)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        q.grad = None if p.grad is None else p.grad.clone()
    for one, its, other in ((model, optimizer, hold), (twin, second, held)):
        its.step()
        for x in data[11:]:
            take_step(one, its, x)
        other.report()
    assert held.report() == hold.report()
    assert (model[0].bias[4].item() > -25.0) == (revive is not None)
    assert thresholds(twin) == thresholds(model)
    for key, value in model.state_dict().items():
        assert torch.equal(twin.state_dict()[key], value), key


def test_a_plain_model_takes_the_weights_of_a_held_one_and_the_other_way_round():
    held, plain = network(), network(seed=3)
    hush.hold(held, 0.9)
    optimizer = sgd(held)
    for x in batches(5):
        take_step(held, optimizer, x)
    plain.load_state_dict(held.state_dict())
    assert thresholds(plain) == thresholds(held)
    (x,) = batches(1, seed=9)
    assert torch.equal(plain.eval()(x), held.eval()(x))

    third = network(seed=4)
    hold = hush.hold(third, 0.9)
    take_step(third, sgd(third), x)
    swapped = network(lambda: hn.CReLU(0.5, 1.0, in_state_dict=True))
    third.load_state_dict(swapped.state_dict())
    assert thresholds(third) == [0.5, 0.5]
    assert [g.moves for g in hold.gauges] == [0, 0]  # another history, so it begins anew


def test_a_state_that_no_hold_wrote_is_refused():
    model = network()
    hush.hold(model, 0.9)
    state = model.state_dict()
    state["1._extra_state"] = torch.cat([state["1._extra_state"], torch.zeros(3)])
    with pytest.raises((ValueError, RuntimeError), match="no hold of this version wrote"):
        model.load_state_dict(state)


def test_removing_it_leaves_thresholds_where_they_are():
    model = network()
    with hush.hold(model, 0.9) as hold:
        optimizer = sgd(model)
        take_step(model, optimizer, *batches(1))
    where = thresholds(model)
    take_step(model, optimizer, *batches(1))
    assert thresholds(model) == where
    assert not any(m._forward_hooks for m in model.modules())
    assert model.state_dict()["1._extra_state"].tolist() == [where[0], 1.0]
    hold.remove()  # again does no harm
    hush.hold(model, 0.8)


def test_a_copy_is_held_by_itself():
    model = network()
    hold = hush.hold(model, 0.9)
    optimizer = sgd(model)
    take_step(model, optimizer, *batches(1))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin[1]._gauge is not model[1]._gauge
        before = thresholds(model)
        take_step(twin, sgd(twin), *batches(1, seed=5))
        assert thresholds(model) == before != thresholds(twin)
        twin[1]._gauge.hold.remove()
        assert not twin[1]._forward_hooks
    take_step(model, optimizer, *batches(1, seed=5))
    assert hold.gauges[0].moves == 2


def test_a_model_that_nobody_keeps_goes_away():
    import gc
    import weakref

    model = network()
    hush.hold(model, 0.9)
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None


def test_mistakes_are_sentences():
    with pytest.raises(ValueError, match=r"Sequential has no activation of hush.*swap_activations"):
        hush.hold(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model = network()
    hush.hold(model)
    with pytest.raises(ValueError, match=r"'1', '3' is held already.*remove\(\)"):
        hush.hold(model)
    learnt = network()
    learnt[3].threshold = torch.tensor(1.0)
    with pytest.raises(ValueError, match="threshold of '3' is a tensor"):
        hush.hold(learnt)
    for option in ({"gain": 0.0}, {"gain": 2.0}, {"clip": "go"}, {"window": 0}, {"every": 0}, {"every": 1.5}):
        with pytest.raises(ValueError, match=next(iter(option))):
            hush.hold(network(), **option)


def test_the_report_as_text_and_numbers():
    model = network()
    hold = hush.hold(model, 0.9, window=4)
    assert "no step yet" in str(hold.report())
    optimizer = sgd(model)
    for x in batches(5):
        take_step(model, optimizer, x)
    report = hold.report()
    numbers = json.loads(report.to_json())
    assert numbers["layers"][0]["name"] == "1"
    assert numbers["layers"][0]["moves"] == 5
    assert numbers["worst"] == report.worst > 0.0
    assert f"{model[3].threshold:.4f}" in str(report)


@pytest.mark.parametrize("every", [1, 4])
def test_an_accelerated_model_is_held_as_the_plain_one(every):
    plain, fast = network(), hush.sparse.accelerate(network(), adaptive=False)
    for model in (plain, fast):
        hush.hold(model, 0.9, every=every)
    one, other = sgd(plain, 0.01), sgd(fast, 0.01)
    for x in batches(40):
        take_step(plain, one, x)
        take_step(fast, other, x)
    assert thresholds(fast) == pytest.approx(thresholds(plain), rel=1e-4)
    (x,) = batches(1, seed=3)
    torch.testing.assert_close(fast.eval()(x), plain.eval()(x), rtol=1e-3, atol=1e-4)


def test_between_two_measurements_the_engine_runs_the_chain_as_one():
    model = hush.sparse.accelerate(network(), adaptive=False)
    hush.hold(model, 0.9, every=4)
    optimizer, lengths = sgd(model), []
    for x in batches(8):
        take_step(model, optimizer, x)
        lengths.append([len(s.linears) for s in hush.sparse.modules.stretches_of(model)])
    # After steps 1 and 5 no hook is there until three more have gone by.
    assert lengths == [[2], [2], [2], []] * 2


def test_a_fused_step_moves_thresholds_too():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    hush.sparse.accelerate(model, optimizer=optimizer, adaptive=False)
    hold = hush.hold(model, 0.9)
    for x in batches(3):
        hush.sparse.step(model, model(x).square().mean())
    assert hold.gauges[0].moves == 3


def test_width_of_the_sample_is_what_it_says():
    model = Gaussian(hn.CReLU(1.0, 1.0))
    hold = hush.hold(model, 0.9)
    model(torch.randn(3, 7, WIDTH))
    assert hold.gauges[0].totals()[1] == 3 * 7 * WIDTH
    assert hold.gauges[0].units.active.shape == (WIDTH,)
