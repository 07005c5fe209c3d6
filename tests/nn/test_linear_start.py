"""A linear start: what it changes, what it leaves, and that a deep chain still tells its inputs apart."""

import copy
import functools

import pytest
import torch
from torch import Tensor, nn

import hush
from hush.nn import linear_start_

DEPTH, WIDTH = 40, 200


@functools.cache
def designed(activation: str) -> hush.Design:
    return hush.design(activation, 0.85, v_prime=0.7, width=WIDTH, depth=DEPTH)


def drawn(activation: str = "crelu") -> tuple[nn.Sequential, hush.Design, Tensor]:
    design = designed(activation)
    model = hush.nn.mlp(30, 10, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(0))
    return model, design, torch.randn(300, 30, generator=torch.Generator().manual_seed(1)) + 0.5


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(2)


@torch.no_grad()
def hidden(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Every layer's pre-activations, then the output."""
    found = []
    for module in model:
        x = module(x)
        if isinstance(module, nn.Linear):
            found.append(x)
    return found


def readable(h: Tensor, target: Tensor) -> float:
    """The share of the target's variance that a linear reader of h gets right on inputs it was not fitted to."""
    h = (h - h.mean(0)).double()
    h, target = h / h.std(), (target - target.mean(0)).double()
    half = len(h) // 2
    ridge = h[:half].T @ h[:half] + 1e-6 * half * torch.eye(h.shape[1], dtype=h.dtype)
    weights = torch.linalg.solve(ridge, h[:half].T @ target[:half])
    return 1.0 - float((h[half:] @ weights - target[half:]).square().sum() / target[half:].square().sum())


@pytest.mark.parametrize("activation", ["crelu", "cst"])
def test_q_and_sparsity_stay_those_of_the_design(activation: str) -> None:
    model, design, x = drawn(activation)
    report = linear_start_(model, design, x, generator=generator())
    layers = hidden(model, x)
    zeros = torch.stack([(design.module()(h) == 0).float().mean() for h in layers[:-1]]).mean()
    q = torch.stack([h.square().mean() for h in layers[:-1]]).mean()
    assert abs(float(zeros) - 0.85) < 0.02
    assert abs(float(q) - 1.0) < 0.1
    assert len(report.active) == DEPTH
    assert sum(report.active) / DEPTH == pytest.approx(0.15 * WIDTH, rel=0.35)
    assert report.spread[0] == pytest.approx(1e-3, rel=0.2)
    torch.testing.assert_close(layers[-1].mean(0), torch.zeros(10), atol=1e-5, rtol=0)


def test_a_deep_chain_still_tells_what_its_inputs_were() -> None:
    """As drawn hardly anything of the inputs can be read off the last layer; a fifth of their variance can after."""
    model, design, _ = drawn()
    x = torch.randn(3000, 30, generator=torch.Generator().manual_seed(3))
    before = readable(hidden(model, x)[-2], x)
    linear_start_(model, design, x[:300], generator=generator())
    after = readable(hidden(model, x)[-2], x)
    assert before < 0.06
    assert after > 0.15


def test_active_blocks_are_orthogonal_and_all_other_weights_as_drawn() -> None:
    model, design, x = drawn()
    old = copy.deepcopy(model)
    linear_start_(model, design, x, generator=generator())
    layers = hidden(model, x)
    phi = design.module()
    for i in (10, 30):
        active = [((phi(h) > 0) & (phi(h) < design.clip)).float().mean(0) > 0.5 for h in layers[i - 1 : i + 1]]
        now, was = (m.get_submodule(f"layer{i + 1}").weight.detach() for m in (model, old))
        changed = now != was
        assert not changed[~active[1]].any()
        assert not changed[:, ~active[0]].any()
        block = now[active[1]][:, active[0]]
        values = torch.linalg.svdvals(block)
        assert values.max() / values.min() < 1.01
        assert block.norm() == pytest.approx(float(was[active[1]][:, active[0]].norm()), rel=1e-4)


def test_what_is_no_chain_is_refused_in_a_sentence() -> None:
    model, design, x = drawn()
    with pytest.raises(ValueError, match="share of the variance between 0 and 1, got 0"):
        linear_start_(model, design, x, share=0)
    with pytest.raises(ValueError, match="at least 16, got 3"):
        linear_start_(model, design, x[:3])
    with pytest.raises(ValueError, match="they must differ"):
        linear_start_(model, design, x[:1].expand(20, -1))
    with pytest.raises(ValueError, match="got Linear"):
        linear_start_(nn.Linear(30, 10), design, x)  # type: ignore[arg-type]
    chain = nn.Sequential(nn.Linear(30, 8), design.module(), nn.LayerNorm(8), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="2 is a LayerNorm in a place where none belongs"):
        linear_start_(chain, design, x)
    with pytest.raises(ValueError, match="0 has no bias"):
        linear_start_(nn.Sequential(nn.Linear(30, 8, bias=False), design.module(), nn.Linear(8, 2)), design, x)
