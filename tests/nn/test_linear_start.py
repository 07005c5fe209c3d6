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


@pytest.mark.parametrize("activation", ["crelu", "cst"])
def test_an_even_start_has_the_designs_zeros_in_every_layer(activation: str) -> None:
    """Drawn, the number of active units is a matter of chance; the layer with fewest bounds what comes through."""
    model, design, x = drawn(activation)
    uneven = linear_start_(copy.deepcopy(model), design, x, generator=generator())
    report = linear_start_(model, design, x, even=True, generator=generator())
    assert max(uneven.active) - min(uneven.active) > 10
    assert max(report.active) - min(report.active) <= 3
    layers = hidden(model, x)
    for h in layers[:-1]:
        assert float((design.module()(h) == 0).float().mean()) == pytest.approx(0.85, abs=0.012)
        assert float(h.square().mean()) == pytest.approx(1.0, abs=0.05)
        assert float(h.mean()) == pytest.approx(0.0, abs=0.01)
    torch.testing.assert_close(layers[-1].mean(0), torch.zeros(10), atol=1e-5, rtol=0)


def test_an_even_start_moves_biases_only_and_keeps_the_order_of_the_units() -> None:
    """Where the active units stay the same, so do the weights: those of the first layer, and between the others."""
    model, design, x = drawn()
    plain, even = copy.deepcopy(model), model
    linear_start_(plain, design, x, generator=generator())
    linear_start_(even, design, x, even=True, generator=generator())
    torch.testing.assert_close(even.layer1.weight, plain.layer1.weight)
    assert torch.equal(hidden(even, x)[0].mean(0).argsort(), hidden(plain, x)[0].mean(0).argsort())
    assert not torch.equal(even.layer1.bias, plain.layer1.bias)


def test_an_even_start_of_convolutions_whose_head_reads_all_positions() -> None:
    design = hush.design("crelu", 0.85, v_prime=0.7, width=48, depth=20, positions=64)
    model = hush.nn.cnn(3, 10, design, pool="none", positions=64)
    hush.init_(model, design, generator=torch.Generator().manual_seed(0))
    x = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    uneven = linear_start_(copy.deepcopy(model), design, x, generator=generator())
    report = linear_start_(model, design, x, even=True, generator=generator())
    assert min(uneven.active) <= 3
    assert min(report.active) >= 5
    with torch.no_grad():
        torch.testing.assert_close(model(x).mean(0), torch.zeros(10), atol=1e-4, rtol=0)


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


def drawn_cnn(activation: str = "crelu", dims: int = 2) -> tuple[nn.Sequential, hush.Design, Tensor]:
    design = hush.design(activation, 0.7, v_prime=0.7, width=60, depth=12, positions=16)
    model = hush.nn.cnn(5, 10, design, dims=dims)  # type: ignore[arg-type]
    shape = (5, 4, 4) if dims == 2 else (5, 16)
    hush.init_(model, design, torch.randn(2, *shape), generator=torch.Generator().manual_seed(0))
    return model, design, torch.randn(200, *shape, generator=torch.Generator().manual_seed(1)) + 0.5


@torch.no_grad()
def channels(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Every convolution's output as (batch and positions, channels)."""
    found = []
    for module in model:
        x = module(x)
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            found.append(x.movedim(1, -1).reshape(-1, x.shape[1]))
    return found


@pytest.mark.parametrize(("activation", "dims"), [("crelu", 2), ("cst", 2), ("crelu", 1)])
def test_a_chain_of_convolutions_keeps_q_and_sparsity(activation: str, dims: int) -> None:
    model, design, x = drawn_cnn(activation, dims)
    report = linear_start_(model, design, x, generator=generator())
    layers = channels(model, x)
    zeros = torch.stack([(design.module()(h) == 0).float().mean() for h in layers]).mean()
    q = torch.stack([h.square().mean() for h in layers]).mean()
    assert abs(float(zeros) - 0.7) < 0.08  # 60 channels, which all inputs share
    assert abs(float(q) - 1.0) < 0.2
    assert len(report.active) == len(layers) == 12
    assert report.spread[0] == pytest.approx(1e-3, rel=0.5)
    for h, spread in zip(layers, report.spread, strict=True):
        assert float(h.var(0, correction=0).sum() / h.square().mean(0).sum()) == pytest.approx(spread, rel=1e-3)
    with torch.no_grad():
        torch.testing.assert_close(model(x).mean(0), torch.zeros(10), atol=1e-5, rtol=0)


def test_active_blocks_of_a_kernel_are_an_orthogonal_centre_tap() -> None:
    model, design, x = drawn_cnn()
    old = copy.deepcopy(model)
    linear_start_(model, design, x, generator=generator())
    phi, layers = design.module(), channels(model, x)
    for i in (3, 10):
        active = [((phi(h) > 0) & (phi(h) < design.clip)).float().mean(0) > 0.5 for h in layers[i - 1 : i + 1]]
        now, was = (m.get_submodule(f"layer{i + 1}").weight.detach() for m in (model, old))
        assert torch.equal(now[~active[1]], was[~active[1]])
        assert torch.equal(now[:, ~active[0]], was[:, ~active[0]])
        block, before = (w[active[1]][:, active[0]] for w in (now, was))
        values = torch.linalg.svdvals(block[:, :, 1, 1])
        assert values.max() / values.min() < 1.01
        assert block[:, :, 1, 1].norm() == pytest.approx(float(before.norm()), rel=1e-4)
        assert int((block != 0).sum()) == block[:, :, 1, 1].numel()


def test_a_chain_of_convolutions_passes_differences_on_position_by_position() -> None:
    """An input that differs at one position differs there most, twelve layers on; as drawn it has spread to all."""
    model, design, x = drawn_cnn()
    other = x.clone()
    other[:, :, 1, 2] += torch.randn(len(x), 5, generator=generator())

    def share_at_its_place() -> float:
        with torch.no_grad():
            difference = (model[:-3](x) - model[:-3](other)).square().sum((0, 1))
        return float(difference[0:3, 1:4].sum() / difference.sum())

    before = share_at_its_place()
    linear_start_(model, design, x, generator=generator())
    assert before < 0.75
    assert share_at_its_place() > 0.9


def uneven_inputs(count: int = 2000, rank: int = 30) -> Tensor:
    """Inputs whose variance lies in a few directions, as that of images does."""
    numbers = torch.Generator().manual_seed(5)
    x = torch.randn(count, 30, generator=numbers) * 2.0 ** -torch.arange(30.0).clamp(max=8)
    x[:, rank:] = 0.0
    return x @ torch.linalg.qr(torch.randn(30, 30, generator=numbers))[0] + 0.5


def sloped(design: hush.Design, h: Tensor) -> Tensor:
    """Which units are neither zero nor at the clip for most inputs."""
    size = design.module()(h).abs()
    return ((size > 0) & (size < design.clip)).float().mean(0) > 0.5


def test_active_units_of_a_white_start_read_equal_and_uncorrelated_parts_of_the_inputs() -> None:
    model, design, _ = drawn()
    x = uneven_inputs()
    correlated = copy.deepcopy(model)
    linear_start_(correlated, design, x, even=True, generator=generator())
    report = linear_start_(model, design, x, white=True, generator=generator())

    first, before = hidden(model, x)[0], hidden(correlated, x)[0]
    active = sloped(design, first)
    assert report.active[0] == int(active.sum()) == 30
    torch.testing.assert_close(torch.cov(first[:, active].T), 1e-3 * torch.eye(30), atol=2e-5, rtol=0)
    values = torch.linalg.eigvalsh(torch.cov(before[:, sloped(design, before)].T))
    assert values[-5] < 0.1 * values[-1]
    assert torch.equal(model.layer1.weight[~active], correlated.layer1.weight[~active])


@pytest.mark.parametrize("activation", ["crelu", "cst"])
def test_no_unit_of_a_white_start_begins_at_the_clip(activation: str) -> None:
    """All units that are not zero pass differences on; the zeros are the design's."""
    design = hush.design(activation, 0.85, v_prime=0.5, width=WIDTH, depth=DEPTH)
    model = hush.nn.mlp(30, 10, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(0))
    x = torch.randn(300, 30, generator=torch.Generator().manual_seed(1))
    even = linear_start_(copy.deepcopy(model), design, x, even=True, generator=generator())
    report = linear_start_(model, design, x, white=True, generator=generator())
    assert max(even.active) < 29
    assert (min(report.active), max(report.active)) == (30, 30)
    layers = hidden(model, x)
    for h in layers[:-1]:
        assert float((design.module()(h).abs() >= design.clip).float().mean()) < 1e-3
        assert float((design.module()(h) == 0).float().mean()) == pytest.approx(0.85, abs=0.012)
    torch.testing.assert_close(layers[-1].mean(0), torch.zeros(10), atol=1e-5, rtol=0)


def test_the_differences_of_a_white_start_fall_evenly_along_the_chain() -> None:
    model, design, x = drawn()
    linear_start_(model, design, x, white=True, generator=generator())
    varied = [float(h.var(0, correction=0)[sloped(design, h)].mean()) for h in hidden(model, x)[:-1]]
    assert varied[0] == pytest.approx(1e-3, rel=0.1)
    assert varied[DEPTH // 2] == pytest.approx(1.2e-4, rel=0.3)
    assert varied[-1] == pytest.approx(1.5e-5, rel=0.1)


def test_a_white_start_of_inputs_that_have_fewer_components_than_there_are_active_units() -> None:
    model, design, _ = drawn("cst")
    x = uneven_inputs(rank=4)
    report = linear_start_(model, design, x, white=True, generator=generator())
    assert report.active[0] == 30
    h = hidden(model, x)[0]
    values = torch.linalg.eigvalsh(torch.cov(h[:, sloped(design, h)].T))
    # Four directions carry the whole: 30 units of a thousandth each.
    torch.testing.assert_close(values[-4:], torch.full((4,), 30e-3 / 4), rtol=0.05, atol=0)
    assert abs(float(values[-5])) < 1e-6


def test_a_white_start_of_convolutions_reads_the_channels_at_each_position() -> None:
    model, design, x = drawn_cnn()
    with torch.no_grad():
        x = torch.einsum("bchw,dc->bdhw", x, torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5])))
    report = linear_start_(model, design, x, white=True, generator=generator())
    assert (min(report.active), max(report.active)) == (18, 18)
    first = channels(model, x)[0]
    active = sloped(design, first)
    kernels = model.layer1.weight[active].detach()
    assert int(active.sum()) == 18
    assert int((kernels != 0).sum()) == kernels[:, :, 1, 1].numel()
    # Five channels are all there is: each has an equal share of what the 18 tell apart.
    values = torch.linalg.eigvalsh(torch.cov(first[:, active].T))[-5:]
    torch.testing.assert_close(values, torch.full((5,), 18e-3 / 5), rtol=0.05, atol=0)


def test_a_white_start_of_an_activation_without_a_clip_has_the_designs_q() -> None:
    design = hush.design("shifted_relu", 0.6, width=WIDTH, depth=8)
    model = hush.nn.mlp(30, 10, design)
    hush.init_(model, design, generator=torch.Generator().manual_seed(0))
    x = torch.randn(300, 30, generator=torch.Generator().manual_seed(1))
    linear_start_(model, design, x, white=True, generator=generator())
    for h in hidden(model, x)[:-1]:
        assert float(h.square().mean()) == pytest.approx(1.0, abs=0.05)


def test_what_is_no_chain_of_convolutions_is_refused_in_a_sentence() -> None:
    _, design, x = drawn_cnn()
    phi, pool = design.module, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    first = nn.Conv2d(5, 8, 3, padding=1)
    grouped = nn.Conv2d(8, 8, 1, groups=2)
    with pytest.raises(ValueError, match="2 has 2 groups"):
        linear_start_(nn.Sequential(first, phi(), grouped, phi(), *pool, nn.Linear(8, 2)), design, x)
    second = nn.Conv2d(8, 8, 1)
    with pytest.raises(ValueError, match="3 is a Conv2d behind AdaptiveAvgPool2d"):
        linear_start_(nn.Sequential(first, phi(), pool[0], second, phi(), pool[1], nn.Linear(8, 2)), design, x)
    with pytest.raises(ValueError, match="6 follows a Linear behind convolutions"):
        linear_start_(nn.Sequential(first, phi(), *pool, nn.Linear(8, 8), phi(), nn.Linear(8, 2)), design, x)
    with pytest.raises(ValueError, match="2 is a Conv2d behind Linears"):
        linear_start_(nn.Sequential(nn.Linear(4, 8), phi(), second, phi(), *pool, nn.Linear(8, 2)), design, x)
    with pytest.raises(ValueError, match="ending in a Linear, got 'Conv2d'"):
        linear_start_(nn.Sequential(first, phi(), second), design, x)


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
