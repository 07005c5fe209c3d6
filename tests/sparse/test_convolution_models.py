"""Convolutions of whole models: an accelerated model is its plain twin, whatever is done to it."""

import copy
import itertools
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import hush
import hush.nn as hn
from hush.sparse import accelerate, convolution_crossover, decelerate, engine_calls, report
from hush.sparse.convolution_form import ConvolutionForm
from hush.sparse.convolution_gradients import Limits
from hush.sparse.crossover_file import CrossoverTable

from .alike import assert_alike, assert_same_gradients, engine_runs, twins

CL = torch.channels_last


def images(count: int = 3, channels: int = 6, size: int = 8) -> Tensor:
    return torch.randn(count, channels, size, size).contiguous(memory_format=CL)


def stack(padding: str = "zeros") -> nn.Sequential:
    """Two fused pairs behind a stem, and a head."""
    return nn.Sequential(
        nn.Conv2d(6, 12, 3, padding=1),
        hn.CReLU(0.3, 0.9),
        nn.Conv2d(12, 20, 3, padding=1, padding_mode=padding),
        nn.Identity(),
        hn.SoftThreshold(0.3),
        nn.Dropout(0.0),
        nn.Conv2d(20, 10, 3, 2, padding=1, padding_mode=padding, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(10, 4),
    ).to(memory_format=CL)


class Parent(nn.Module):
    """A convolution behind a function: nobody can see the pair."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(6, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.conv = nn.Conv2d(16, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.relu(self.norm(self.stem(x)) - 0.5))


@pytest.mark.parametrize("padding", ["zeros", "circular"])
def test_a_stack_is_its_plain_twin_and_comes_back(padding):
    plain, fast = twins(stack(padding))
    told = report(fast)
    assert told.taken == (("2",), ("6",))
    assert told.alone == ("0", "10")
    assert "fused  2" in str(told)
    x = images()
    with engine_runs():
        assert_alike(plain, fast, x)
    assert torch.equal(decelerate(fast)(x), plain(x))
    assert all("forward" not in m.__dict__ for m in fast.modules())


def test_a_convolution_behind_a_function():
    plain, fast = twins(Parent().to(memory_format=CL))
    assert report(fast).alone == ("stem", "conv")
    with engine_runs():
        assert_alike(plain, fast, images())
    out, right = fast(images()), plain(images())
    assert out.stride() == right.stride()


@pytest.mark.parametrize("norm", ["batch", "layer", None])
def test_a_residual_network(norm):
    design = hush.design("crelu", sparsity=0.7, width=8, depth=3)
    plain, fast = twins(hn.resnet(6, 5, design, blocks=3, channels=8, norm=norm).to(memory_format=CL))
    with engine_runs():
        assert_alike(plain, fast, images(4))


@pytest.mark.parametrize("products", list(itertools.product([0.0, 1.0], repeat=3)), ids=str)
def test_each_product_may_be_dense(products, monkeypatch):
    output, both, weight = products
    padding = "zeros" if sum(products) % 2 else "circular"
    monkeypatch.setattr(convolution_crossover, "limits", lambda *_: Limits(output, both, both, weight))
    for model in (stack(padding)[:7], Parent().to(memory_format=CL)):  # without the Linear, which has its own crossover
        plain, fast = twins(model)
        before = engine_calls()
        assert_alike(plain, fast, images())
        assert (engine_calls() > before) == any(products)


def test_images_in_torchs_own_order_run_on_torch():
    plain, fast = twins(nn.Sequential(nn.ReLU(), nn.Conv2d(6, 8, 3)))
    before = engine_calls()
    x = images().contiguous()
    assert_alike(plain, fast, x)
    assert engine_calls() == before
    assert fast(x).is_contiguous()


def test_circular_padding_with_weights_in_torchs_order_gives_what_torch_gives():
    plain, fast = twins(nn.Sequential(nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular")))
    assert fast(images()).stride() == plain(images()).stride()


@pytest.mark.parametrize("how", ["retain_grad", "hook", "autograd.grad", "kept", "node hook"])
def test_whoever_looks_at_the_gradient_sees_all_of_it(how):
    """∂L/∂x at the zeros of x, too, which nobody else needs."""
    conv = nn.Conv2d(6, 8, 3, padding=1)
    h = images().requires_grad_()
    found = []
    for module in (conv, accelerate(copy.deepcopy(conv))):
        x = F.relu(h - 0.5)
        seen: list[Tensor] = []
        if how == "retain_grad":
            x.retain_grad()
        elif how == "hook":
            x.register_hook(seen.append)
        elif how == "node hook":
            x.grad_fn.register_prehook(lambda grads, to=seen: to.append(grads[0]))
        with engine_runs() if module is not conv else torch.enable_grad():
            loss = module(x).sin().sum()
        if how == "autograd.grad":
            seen += torch.autograd.grad(loss, x)
        elif how == "kept":
            kept = x
            del x
            loss.backward(inputs=[kept])
            seen.append(kept.grad)
        else:
            loss.backward()
        found.append(seen[0] if seen else x.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    assert int((found[0] == 0).sum()) == 0


def edit_stride(m):
    m[2].stride = 2


def edit_dilation(m):
    m[2].dilation, m[2].padding = (2, 2), (2, 2)


def edit_padding(m):
    m[2].padding = "same"


def edit_mode(m):
    m[6].padding_mode = "reflect"


def edit_weight(m):
    m[2].weight = nn.Parameter(torch.linspace(-1, 1, m[2].weight.numel()).view_as(m[2].weight))


def edit_data(m):
    m[2].weight.data.mul_(0.5)


def edit_threshold(m):
    m[1].threshold = 0.05


def edit_frozen(m):
    m[2].requires_grad_(False)


def edit_replaced(m):
    torch.manual_seed(3)
    m[1], m[2] = nn.GELU(), nn.Conv2d(12, 20, 1)


def edit_deleted(m):
    del m[3], m[3]


def edit_hook(m):
    m[1].register_forward_hook(lambda module, args, out: out * 2.0)


def edit_conv_hook(m):
    m[2].register_forward_pre_hook(lambda module, args: (args[0] + 1.0,))


def edit_layout(m):
    m.to(memory_format=torch.contiguous_format)


def edit_double(m):
    m.double().float()


def edit_bias(m):
    m[2].bias = None


def edit_patch(m):
    m[2]._conv_forward = lambda x, w, b: F.conv2d(x, 2 * w, b, 1, 1)


def edit_forward(m):
    m[2].forward = lambda x: F.conv2d(x, m[2].weight, None, 1, 1)


def edit_spectral(m):
    torch.manual_seed(3)
    nn.utils.parametrizations.spectral_norm(m[2])


def edit_dropout(m):
    m[5].p = 0.0
    m[5].eval()


EDITS = [value for name, value in list(globals().items()) if name.startswith("edit_")]


@pytest.mark.parametrize("edit", EDITS)
def test_edits_take_effect_at_the_next_call(edit):
    plain, fast = twins(stack())
    fast(images())
    for model in (plain, fast):
        edit(model)
    assert_alike(plain, fast, images())


def test_a_held_threshold_moves_and_the_kernels_follow():
    design = hush.design("crelu", sparsity=0.8, width=8, depth=3)
    torch.manual_seed(1)
    plain = hn.cnn(6, 5, design, channels=8, depth=3, padding="zeros").to(memory_format=CL)
    hush.init_(plain, design)
    fast = accelerate(copy.deepcopy(plain))
    x = images(8)
    with hush.hold(plain, 0.6), hush.hold(fast, 0.6):
        for _ in range(5):
            for model in (plain, fast):
                model.zero_grad()
                with engine_runs() if model is fast else torch.enable_grad():
                    model(x).square().sum().backward()
            assert_same_gradients(plain, fast)
    levels = [[m.threshold for m in model.modules() if isinstance(m, hn.CReLU)] for model in (plain, fast)]
    assert levels[0] == pytest.approx(levels[1], rel=1e-4)


def test_a_relative_threshold_in_front():
    design = hush.design("relative_relu", sparsity=0.8)
    model = nn.Sequential(nn.Conv2d(6, 12, 3, padding=1), hn.from_design(design, dim=1), nn.Conv2d(12, 8, 3))
    plain, fast = twins(model.to(memory_format=CL))
    with engine_runs():
        assert_alike(plain, fast, images())


def test_observers_get_torch():
    plain, fast = twins(stack())
    x = images()
    before = engine_calls()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(plain(x), fast(x))
    torch.testing.assert_close(torch.func.vmap(fast)(x[:, None])[:, 0], plain(x), rtol=1e-4, atol=1e-5)
    read = images(2, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        scripted = torch.jit.script(fast[2])
    assert torch.equal(scripted(read), plain[2](read))
    assert engine_calls() == before


def test_a_compiled_model_runs_convolutions_on_torch():
    plain, fast = twins(nn.Sequential(nn.ReLU(), nn.Conv2d(6, 8, 3)))
    before, x = engine_calls(), images()
    assert torch.equal(torch.compile(fast, backend="eager", fullgraph=True)(x), plain(x))
    assert engine_calls() == before


def test_checkpointing_meets_the_same_decision():
    plain, fast = twins(stack())
    run = lambda model, x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)  # noqa: E731
    with engine_runs():
        assert_alike(plain, fast, images(), run)


def test_second_derivatives_of_a_model():
    found = []
    for model in twins(Parent().to(memory_format=CL)):
        torch.manual_seed(5)
        x = images().requires_grad_()
        (first,) = torch.autograd.grad(model(x).sin().sum(), x, create_graph=True)
        first.square().sum().backward()
        found.append((x.grad, model.conv.weight.grad))
    for right, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-4 * float(right.abs().max()))


def test_copies_and_files():
    plain, fast = twins(stack())
    again = copy.deepcopy(fast)
    with engine_runs():
        assert_alike(plain, again, images())
    loaded = pickle.loads(pickle.dumps(fast))
    before = engine_calls()
    assert_alike(plain, loaded, images())
    assert engine_calls() == before


def test_a_fused_step_updates_convolutions_as_the_optimizer_does():
    plain = stack()
    fast = copy.deepcopy(plain)
    ours, theirs = torch.optim.SGD(fast.parameters(), lr=0.05), torch.optim.SGD(plain.parameters(), lr=0.05)
    accelerate(fast, optimizer=ours)
    for _ in range(3):
        x = images()
        theirs.zero_grad()
        plain(x).square().sum().backward()
        theirs.step()
        hush.sparse.step(fast, fast(x).square().sum())
    for right, mine in zip(plain.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)


def test_centred_gradients():
    plain, fast = twins(stack())
    for model in (plain, fast):
        hush.center_gradients(model)
    with engine_runs():
        assert_alike(plain, fast, images())


def test_what_is_left_is_told():
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, dilation=2), nn.Conv2d(4, 4, 3, padding_mode="reflect"),
        nn.Conv1d(4, 4, 3), nn.Conv2d(4, 4, 3),
    )  # fmt: skip
    told = report(accelerate(model))
    assert told.alone == ("4",)
    assert told.left == (
        ("0", "Conv2d: has 2 groups"),
        ("1", "Conv2d: has dilation (2, 2)"),
        ("2", "Conv2d: pads by 'reflect'"),
        ("3", "Conv1d: of convolutions, plain nn.Conv2d alone runs on the engine"),
    )


def test_a_real_crossover_is_a_density(monkeypatch, tmp_path):
    monkeypatch.setattr(convolution_crossover, "_table", CrossoverTable(", of this test"))
    monkeypatch.setenv("HUSH_CACHE", str(tmp_path))
    monkeypatch.delenv("HUSH_CROSSOVER")
    form, weight = ConvolutionForm((1, 1), (1, 1, 1, 1)), torch.randn(16, 16, 3, 3)
    assert convolution_crossover.limits(form, images(), weight) == Limits(0.0, 0.0, 0.0, 0.0)
    convolution_crossover.ensure_measured([(form, weight)])
    found = convolution_crossover.limits(form, images(), weight)
    assert all(0.0 <= limit <= 1.0 for limit in (found.output, found.both, found.input, found.weight))
    assert "  16 channels  kernel 3  stride 1    64 pixels  threads  2" in convolution_crossover.describe()
    torch.set_num_threads(1)
    assert convolution_crossover.limits(form, images(), weight) == found


def test_a_dense_input_is_looked_at_now_and_then(monkeypatch):
    monkeypatch.setattr(convolution_crossover, "limits", lambda *_: Limits(0.3, 0.3, 0.3, 0.3))
    fast = accelerate(nn.Sequential(nn.Conv2d(6, 8, 3)))
    full, empty = images().abs() + 1.0, torch.zeros_like(images())
    with torch.no_grad():
        fast(full)
        before = engine_calls()
        for _ in range(10):
            fast(full)
            fast(empty)
        assert engine_calls() == before
        for _ in range(32):
            fast(empty)
        assert engine_calls() > before
