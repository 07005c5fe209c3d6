"""Whole models, accelerated and plain."""

import copy
import io
import threading

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.sparse import accelerate, decelerate, report
from hush.sparse.cpu import CpuProgram

from .conftest import assert_near


def mlp(depth=6, width=40, make=lambda: hn.CReLU(0.4, 0.9)):
    layers = [nn.Linear(12, width)]
    for _ in range(depth):
        layers += [make(), nn.Linear(width, width)]
    return nn.Sequential(*layers, make(), nn.Linear(width, 5))


class Block(nn.Module):
    """A residual block: data flow that only tracing sees."""

    def __init__(self):
        super().__init__()
        self.act1, self.fc1 = hn.ShiftedReLU(0.3), nn.Linear(12, 12)
        self.act2, self.fc2 = nn.ReLU(), nn.Linear(12, 12)
        self.out = nn.Linear(12, 5)

    def forward(self, x):
        return self.out(x + self.fc2(self.act2(self.fc1(self.act1(x)))))


class Branching(Block):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else self.out(x)


@pytest.mark.parametrize("model", [mlp(), Block(), Branching(), mlp(make=nn.ReLU), mlp(make=lambda: hn.CST(0.3, 1.0))])
def test_same_outputs_and_gradients(model):
    plain, fast = copy.deepcopy(model), accelerate(copy.deepcopy(model))
    x = torch.randn(9, 12)
    for net in (plain, fast):
        net(x).square().sum().backward()
    assert_near(fast(x), plain(x))
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad, 2e-5)
    with torch.no_grad():
        assert_near(fast(x), plain(x))


def test_the_ready_made_network_and_its_design():
    design = hush.design("crelu", sparsity=0.85, width=50, depth=8)
    plain = hush.nn.mlp(12, 5, design)
    hush.init_(plain, design)
    fast, x = accelerate(copy.deepcopy(plain)), torch.randn(30, 12)
    assert report(fast).taken == ((*(f"layer{k}" for k in range(2, 9)), "head"),)
    for net in (plain, fast):
        net(x).square().sum().backward()
    assert_near(fast(x), plain(x))
    for a, e in zip(fast.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad, 2e-5)


def test_report_says_what_and_why():
    told = report(accelerate(mlp(3)))
    assert told.taken == (("2", "4", "6", "8"),)
    assert told.alone == ("0",)
    assert report(accelerate(Branching())).alone == ("fc1", "fc2", "out")
    left = report(
        accelerate(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Bilinear(3, 3, 2), nn.LazyLinear(4)))
    ).left
    assert left == (("3", "LazyLinear is not a plain nn.Linear"),)
    patched = nn.Linear(3, 3)
    patched.forward = lambda x: x
    assert report(accelerate(patched)).left == (("(model)", "its forward has been replaced"),)
    with pytest.raises(ValueError, match="not accelerated"):
        report(mlp())


def test_layout_state_dict_and_undo():
    model = mlp()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    ids = [id(p) for p in model.parameters()]
    accelerate(model)
    assert model[2].weight.is_contiguous()
    accelerate(model, layout="input_major")
    assert model[2].weight.stride() == (1, 40)
    assert model[2].weight.shape == (40, 40)
    assert [id(p) for p in model.parameters()] == ids
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[k], before[k]) for k in before)
    decelerate(model)
    assert model[2].weight.is_contiguous()
    assert type(model) is nn.Sequential
    assert type(model[2]) is nn.Linear
    assert not any("hush" in key for m in model.modules() for key in m.__dict__)


def test_deepcopy_pickle_load_and_dtype():
    model, x = accelerate(mlp()), torch.randn(4, 12)
    expected = model(x).detach()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    assert_near(model(x).detach(), expected)  # the copy has its own weights
    assert twin(x).abs().max() == 0
    twin.load_state_dict(model.state_dict())
    assert_near(twin(x).detach(), expected)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert_near(torch.load(buffer, weights_only=False)(x).detach(), expected)
    assert_near(twin.double()(x.double()).detach().float(), expected)
    assert_near(twin.float()(x).detach(), expected)


def test_replaced_and_moved_parameters_are_seen():
    model, x = accelerate(mlp()), torch.randn(4, 12)
    model(x)
    model[4].weight = nn.Parameter(torch.randn(40, 40))
    model[6].weight.data = torch.randn(40, 40)
    model[1].threshold = 0.1
    plain = decelerate(copy.deepcopy(model))
    assert_near(model(x), plain(x))


@pytest.mark.parametrize("make", [mlp, Block])
def test_other_devices_dtypes_and_autocast_run_the_plain_modules(make, monkeypatch):
    plain = make()
    model = accelerate(copy.deepcopy(plain))
    for name in ("infer", "forward"):
        monkeypatch.setattr(CpuProgram, name, None)  # whoever reaches the kernels fails
    assert model.to("meta")(torch.randn(4, 12, device="meta")).shape == (4, 5)
    model = accelerate(copy.deepcopy(plain)).double()
    x = torch.randn(4, 12, dtype=torch.float64)
    assert torch.equal(model(x), copy.deepcopy(plain).double()(x))
    model = accelerate(copy.deepcopy(plain))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_near(model(x.float()), plain(x.float()), 1e-2)


def test_hooks_in_a_run_found_by_data_flow():
    plain = Block()
    model, x, seen = accelerate(copy.deepcopy(plain)), torch.randn(4, 12), []
    model.fc1.register_forward_hook(lambda m, i, o: seen.append(o))
    assert_near(model(x), plain(x))
    assert_near(seen[0], plain.fc1(plain.act1(x)))


def test_hooks_on_the_inside_see_what_they_would():
    model, seen = accelerate(mlp()), []
    model[3].register_forward_hook(lambda m, i, o: seen.append(o))
    out = model(torch.randn(4, 12))
    assert out.shape == (4, 5)
    assert seen[0].min() == 0
    assert (seen[0] == 0).any()


@pytest.mark.parametrize("make", [mlp, Block])
def test_compiles_whole_without_a_warning(make):
    plain = make()
    model, x = accelerate(copy.deepcopy(plain)), torch.randn(4, 12)
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert_near(fast(x), plain(x))
    for net in (fast, plain):
        net(x).square().sum().backward()
    for a, e in zip(model.parameters(), plain.parameters(), strict=True):
        assert_near(a.grad, e.grad, 2e-5)


def test_300_steps_end_at_the_same_loss():
    plain = mlp(4, 60)
    fast = accelerate(copy.deepcopy(plain))
    x, y = torch.randn(64, 12), torch.randint(0, 5, (64,))
    losses = []
    for net in (plain, fast):
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(300):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-3


def test_saved_memory_is_a_third_of_dense():
    width, batch = 300, 128
    model = accelerate(nn.Sequential(*[m for _ in range(5) for m in (hn.CReLU(1.0364, 1.2), nn.Linear(width, width))]))
    with torch.no_grad():
        for k in range(1, 10, 2):
            model[k].weight.normal_(0, (7.9 / width) ** 0.5)
            model[k].bias.normal_(0, 0.5)
    sizes = []
    parameters = {p.data_ptr() for p in model.parameters()}

    def pack(t):
        if t.data_ptr() not in parameters:
            sizes.append(t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(torch.randn(batch, width))
    assert sum(sizes) <= 0.35 * 5 * batch * width * 4


def test_two_threads_two_models():
    models = [accelerate(mlp(8, 70)) for _ in range(2)]
    x = torch.randn(32, 12)
    expected = [m(x).detach() for m in models]
    wrong = []

    def work(k):
        for _ in range(30):
            out = models[k](x)
            out.sum().backward()
            if not torch.allclose(out, expected[k], atol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_frozen_is_for_inference():
    plain = mlp()
    model, x = accelerate(copy.deepcopy(plain), frozen=True), torch.randn(4, 12)
    with torch.no_grad():
        assert_near(model(x), plain(x))
    with pytest.raises(ValueError, match="inference only"):
        model(x)


def test_arguments_that_contradict_are_sentences():
    for arguments, sentence in (
        ({"layout": "rows"}, "layout is 'rows'"),
        ({"frozen_dtype": torch.float16, "frozen": True}, "torch.float16"),
        ({"frozen_dtype": torch.bfloat16}, "goes with frozen=True"),
        ({"watch": False}, "goes with frozen=True"),
    ):
        with pytest.raises(ValueError, match=sentence):
            accelerate(mlp(), **arguments)
    model = mlp()
    with pytest.raises(ValueError, match="inference only"):
        accelerate(model, frozen=True, optimizer=torch.optim.SGD(model.parameters()))


def test_a_frozen_model_in_bfloat16_and_one_that_is_not_watched():
    plain, x = mlp(), torch.randn(4, 12)
    rounded = copy.deepcopy(plain)
    with torch.no_grad():
        for linear in rounded:
            if isinstance(linear, nn.Linear):
                linear.weight.copy_(linear.weight.bfloat16())
        half = accelerate(copy.deepcopy(plain), frozen=True, frozen_dtype=torch.bfloat16, watch=False)
        assert_near(half(x), rounded(x))
        half[2].weight.zero_()
        assert_near(half(x), rounded(x))  # as promised
        half.load_state_dict(plain.state_dict())
        watched = accelerate(half, frozen=True)
        watched(x)
        watched[2].weight.zero_()
        plain[2].weight.zero_()
        assert_near(watched(x), plain(x))
