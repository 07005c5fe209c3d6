"""Accelerated models of residual blocks are never different: hush's own, plain torch's, and those that only look so."""

import copy
import re

import pytest
import torch
from torch import nn

import hush
import hush.nn as hn
from hush.sparse import accelerate, report, step
from hush.sparse.acceleration_report import make_report

from .alike import assert_alike, assert_same_parameters, engine_runs, twins

GLOBAL = 1.0


class Block(nn.Module):
    """As a user of plain torch writes it."""

    def __init__(self, width=16, make=nn.ReLU, norm=nn.LayerNorm):
        super().__init__()
        self.norm, self.act, self.fc = norm(width), make(), nn.Linear(width, width)

    def forward(self, x):
        h = self.act(self.norm(x))
        return self.fc(h) + x


class Wrapped(Block):
    """With a Sequential inside, a dropout, and β in the code."""

    def __init__(self, p=0.0):
        super().__init__()
        self.branch = nn.Sequential(self.norm, self.act, nn.Dropout(p), self.fc)

    def forward(self, x):
        return x + 0.5 * self.branch(x)


class Branching(Block):
    def forward(self, x):
        if self.training:
            return x + self.fc(self.act(self.norm(x)))
        return x


class Reading(Block):
    def forward(self, x):
        return x + GLOBAL * self.fc(self.act(self.norm(x)))


class InPlace(Block):
    def forward(self, x):
        x += self.fc(self.act(self.norm(x)))
        return x


class PostNorm(Block):
    def forward(self, x):
        return self.norm(x + self.fc(self.act(x)))


class Twice(Block):
    def forward(self, x):
        y = self.fc(self.act(self.norm(x)))
        return x + y + y


def model(*blocks):
    return nn.Sequential(nn.Linear(12, 16), *blocks, nn.Linear(16, 5))


def taken(fast):
    return [len(names) for names in report(fast).taken]


@pytest.mark.parametrize("norm", ["rms", "layer", None])
@pytest.mark.parametrize("scale", ["1/sqrt(depth)", "learned"])
def test_hush_residual_mlp(norm, scale):
    make = lambda: hn.CReLU(0.4, 1.0)  # noqa: E731
    plain, fast = twins(hn.residual_mlp(12, 5, make, blocks=4, width=24, norm=norm, branch_scale=scale))
    assert taken(fast) == [4]
    with engine_runs():
        assert_alike(plain, fast, torch.randn(7, 12))
    with torch.no_grad():
        torch.testing.assert_close(fast(torch.ones(1, 12)), plain(torch.ones(1, 12)))


@pytest.mark.parametrize("norm", ["rms", "layer", None])
@pytest.mark.parametrize("layout", ["torch", "input_major"])
def test_blocks_of_two_matrices_are_fused(norm, layout):
    torch.set_num_threads(1)
    model = hn.residual_mlp(12, 5, lambda: hn.CST(0.9, 0.8), blocks=4, width=24, hidden=40, norm=norm)
    plain, fast = twins(model, layout=layout)
    assert taken(fast) == [8]
    # The first matrix is read row by row, whatever the others' layout.
    assert all(block.up.weight.is_contiguous() for block in fast.blocks)
    assert all(block.down.weight.is_contiguous() == (layout == "torch") for block in fast.blocks)
    with engine_runs():
        assert_alike(plain, fast, torch.randn(7, 12))
    with torch.no_grad():
        torch.testing.assert_close(fast(torch.ones(1, 12)), plain(torch.ones(1, 12)))


def test_a_held_network_of_two_matrices_is_laid_out_for_the_steps_between():
    """The hooks that count zeros are there when it is accelerated, and gone at the next step."""
    torch.set_num_threads(1)
    model = hn.residual_mlp(12, 5, lambda: hn.CReLU(0.9, 0.8), blocks=3, width=24, hidden=40)
    optimizer = torch.optim.AdamW(model.parameters())
    hush.hold(model, 0.8, every=4)
    accelerate(model, optimizer=optimizer, adaptive=False)
    assert all(block.up.weight.is_contiguous() and not block.down.weight.is_contiguous() for block in model.blocks)
    fused = []
    for _ in range(8):
        with torch.no_grad():
            model(torch.randn(6, 12))
        fused.append(sum(map(len, make_report(model).taken)))
        step(model, model(torch.randn(6, 12)).square().mean())
    assert fused.count(6) >= 5


class TwoMatrices(Block):
    """A Linear more, as a user of plain torch writes it."""

    def __init__(self):
        super().__init__()
        self.up, self.fc = nn.Linear(16, 20), nn.Linear(20, 16)

    def forward(self, x):
        return x + self.fc(self.act(self.up(self.norm(x))))


class Mlp(nn.Module):
    """The branch as a module of its own, as timm has it."""

    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.drop, self.fc2 = nn.Linear(16, 20), nn.ReLU(), nn.Dropout(0.0), nn.Linear(20, 16)
        self.factor = 0.5

    def forward(self, x):
        x = self.fc1(x)
        x = self.drop(self.act(x))
        return self.drop(self.fc2(x))


class Nested(nn.Module):
    def __init__(self, make=Mlp):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(16), make()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class HalvedMlp(Mlp):
    def forward(self, x):
        return self.factor * self.fc2(self.act(self.fc1(x)))


def test_a_branch_may_be_a_module_of_its_own(monkeypatch):
    torch.set_num_threads(1)
    plain, fast = twins(model(Nested(), Nested()))
    assert taken(fast) == [4]
    x = torch.randn(7, 12)
    with engine_runs():
        assert_alike(plain, fast, x)
    for m in (plain, fast):
        m[1].mlp.fc1 = copy.deepcopy(m[2].mlp.fc1)
    assert_alike(plain, fast, x)
    for m in (plain, fast):
        m[2].mlp.act.register_forward_hook(lambda *_: None)
    assert_alike(plain, fast, x)
    for m in (plain, fast):
        m[2].mlp.act._forward_hooks.clear()
    monkeypatch.setattr(Mlp, "forward", lambda self, h: 3 * self.fc2(self.fc1(h)))
    assert_alike(plain, fast, x)


class ThreeMatrices(TwoMatrices):
    def __init__(self):
        super().__init__()
        self.more = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.fc(self.act(self.up(self.more(self.norm(x)))))


def test_edits_of_a_block_of_two_matrices_take_effect():
    torch.set_num_threads(1)
    plain, fast = twins(model(TwoMatrices(), TwoMatrices()))
    assert taken(fast) == [4]
    x = torch.randn(7, 12)
    assert_alike(plain, fast, x)

    def resize(m):
        m[2].up, m[2].fc = nn.Linear(16, 8), nn.Linear(8, 16)
        for p in (*m[2].up.parameters(), *m[2].fc.parameters()):
            nn.init.constant_(p, 0.1)

    for edit in (lambda m: m[1].up.weight.data.mul_(2.0), lambda m: setattr(m[1].up, "bias", None), resize):
        for m in (plain, fast):
            edit(m)
        assert_alike(plain, fast, x)


@pytest.mark.parametrize("make", [Block, Wrapped, lambda: Block(norm=nn.RMSNorm)])
def test_plain_torch_blocks_are_fused(make):
    plain, fast = twins(model(make(), make(), make()))
    assert taken(fast) == [3]
    assert_alike(plain, fast, torch.randn(7, 12))
    assert_alike(plain, fast, torch.randn(2, 3, 12))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Branching, "has a branch"),
        (Reading, "reads something outside"),
        (InPlace, "changes a tensor in place"),
        (PostNorm, "the normalised|behind"),
        (Twice, "adds"),
        (ThreeMatrices, "has a Linear behind a Linear"),
        (lambda: Nested(HalvedMlp), "has a HalvedMlp that reads a number, factor"),
        (lambda: Block(make=nn.GELU), ""),
        (lambda: Wrapped(0.5), "has a Dropout"),
    ],
)
def test_what_is_not_understood_runs_as_it_is(make, reason):
    fast = accelerate(model(make(), make()))
    assert 2 not in taken(fast)
    assert all(re.search(reason, found) for _, found in report(fast).apart)
    plain = hush.sparse.decelerate(copy.deepcopy(fast)).eval()
    with torch.no_grad():  # what changes its input in place has no gradient in plain torch either
        torch.testing.assert_close(fast.eval()(torch.ones(7, 12)), plain(torch.ones(7, 12)))


def test_edits_take_effect_at_the_next_call():
    plain, fast = twins(model(Block(), Block(), Block()))
    x = torch.randn(7, 12)

    def both(edit):
        for m in (plain, fast):
            edit(m)
        assert_alike(plain, fast, x)

    assert_alike(plain, fast, x)
    both(lambda m: setattr(m[1], "act", hn.CReLU(0.5, 1.0)))
    both(lambda m: setattr(m[1].act, "threshold", 0.9))
    both(lambda m: setattr(m[2].norm, "eps", 0.5))
    both(lambda m: setattr(m[2], "norm", nn.Identity()))
    both(
        lambda m: (
            setattr(m[3], "fc", nn.Linear(16, 16, bias=False).requires_grad_(False)) or m[3].fc.weight.data.fill_(0.1)
        )
    )
    both(lambda m: m[1].norm.weight.data.mul_(2.0))
    both(lambda m: m[1].act.register_forward_hook(lambda *_: None))
    both(lambda m: m[1].act._forward_hooks.clear())
    both(lambda m: m.append(nn.ReLU()))
    both(lambda m: setattr(m[1], "forward", lambda h: h))


def test_the_class_forward_and_the_norms_may_be_replaced(monkeypatch):
    plain, fast = twins(model(Block(), Block()))
    x = torch.randn(7, 12)
    assert_alike(plain, fast, x)
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda self, h: h * 2)
    assert_alike(plain, fast, x)
    monkeypatch.undo()
    monkeypatch.setattr(Block, "forward", lambda self, h: h - self.fc(h))
    assert_alike(plain, fast, x)


def test_hooks_inside_are_called():
    _, fast = twins(model(Block(), Block()))
    seen = []
    fast[1].norm.register_forward_hook(lambda *_: seen.append(1))
    fast(torch.randn(3, 12))
    assert seen == [1]


@pytest.mark.parametrize("hidden", [None, 31])
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw"])
def test_fused_steps(kind, hidden):
    torch.set_num_threads(2)

    def optimizer(m):
        if kind == "sgd":
            return torch.optim.SGD(m.parameters(), lr=1e-2)
        if kind == "adamw":
            return torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1)
        return torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9)

    plain = hn.residual_mlp(
        12, 5, lambda: hn.CReLU(0.4, 1.0), blocks=9, width=24, hidden=hidden, norm="layer", branch_scale="learned"
    )
    fast = copy.deepcopy(plain)
    slow_optimizer, fast_optimizer = optimizer(plain), optimizer(fast)
    accelerate(fast, optimizer=fast_optimizer)
    for turn in range(8):
        x = torch.randn(6, 12, generator=torch.Generator().manual_seed(turn))
        step(fast, fast(x).square().mean())
        slow_optimizer.zero_grad()
        plain(x).square().mean().backward()
        slow_optimizer.step()
    assert_same_parameters(plain, fast)
    assert all(p.grad is None for p in fast.parameters())


@pytest.mark.parametrize("make", [Block, TwoMatrices])
def test_frozen_copies_follow_the_parameters(make):
    plain, fast = twins(model(make(), make()), frozen=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(torch.ones(3, 12)), plain(torch.ones(3, 12)))
            for m in (plain, fast):
                m[1].norm.bias.add_(0.3)
                m[2].fc.weight.mul_(1.5)


def test_moved_thresholds_of_hold_are_read():
    make = lambda: hn.CReLU(0.4, 1.0)  # noqa: E731
    plain, fast = twins(hn.residual_mlp(12, 5, make, blocks=2, width=24))
    for threshold in (0.2, 0.6):
        for m in (plain, fast):
            for block in m.blocks:
                block.phi.threshold = threshold
        with engine_runs():
            assert_alike(plain, fast, torch.randn(7, 12))
