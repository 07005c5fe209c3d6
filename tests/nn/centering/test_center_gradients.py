"""Centred gradients against sums over samples in float64, written out."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

import hush


def network(*, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3, bias=bias)).double()


def batch(rows: int = 7, seed: int = 1) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mul(torch.arange(1.0, 4.0)).sum()


def centered_by_hand(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Σ_b δ_b ⊗ (a_b − ā) of each Linear, from inputs and gradients of outputs."""
    inputs, outputs, handles = [], [], []
    for m in model:
        if isinstance(m, nn.Linear):

            def note(_: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
                inputs.append(args[0].detach())
                outputs.append(out)

            handles.append(m.register_forward_hook(note))
    loss = loss_of(model, x)
    for h in handles:
        h.remove()
    deltas = torch.autograd.grad(loss, outputs)
    return [
        torch.einsum("bo,bi->oi", d, a - sum(a) / len(a))
        for d, a in zip(deltas, inputs, strict=True)  # type: ignore[operator]
    ]


@pytest.mark.parametrize("bias", [True, False])
def test_the_weights_gradient_has_lost_the_mean_input_and_nothing_else_has_changed(bias: bool) -> None:
    plain, model, x = network(bias=bias), network(bias=bias), batch().requires_grad_()
    expected = centered_by_hand(plain, x.detach())
    loss_of(plain, x).backward()
    plain_x, x.grad = x.grad, None
    centering = hush.center_gradients(model)
    assert torch.equal(model(x), plain(x))
    loss_of(model, x).backward()
    for layer, weight in zip((0, 2), expected, strict=True):
        torch.testing.assert_close(model[layer].weight.grad, weight, rtol=1e-12, atol=1e-12)
        assert not torch.allclose(model[layer].weight.grad, plain[layer].weight.grad)
        if bias:
            torch.testing.assert_close(model[layer].bias.grad, plain[layer].bias.grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(x.grad, plain_x, rtol=1e-12, atol=1e-12)
    centering.remove()
    model.zero_grad()
    loss_of(model, x).backward()
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad)


def test_it_does_not_depend_on_a_constant_added_to_every_input() -> None:
    """Shifting the inputs by c and the biases by −Wc is another network for torch's gradient and the same for ours."""
    x, shift = batch(), torch.full((6,), 50.0, dtype=torch.float64)
    gradients = []
    for offset in (torch.zeros_like(shift), shift):
        model = network()
        with torch.no_grad():
            model[0].bias -= model[0].weight @ offset
        hush.center_gradients(model)
        loss_of(model, x + offset).backward()
        gradients.append(model[0].weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
def test_a_convolution_is_centred_by_its_channels_over_batch_and_positions(groups: int, padding_mode: str) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3, padding=1, groups=groups, padding_mode=padding_mode).double()
    plain = copy.deepcopy(conv)
    x = torch.randn(5, 4, 6, 7, dtype=torch.float64) + 1.0
    hush.center_gradients(conv)
    for m in (conv, plain):
        m(x).pow(3).sum().backward()
    mean = x.mean((0, 2, 3)).reshape(groups, -1).repeat_interleave(6 // groups, 0)  # by output
    expected = plain.weight.grad - plain.bias.grad[:, None, None, None] * mean[:, :, None, None]
    torch.testing.assert_close(conv.weight.grad, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(conv.bias.grad, plain.bias.grad)


def test_accumulated_batches_are_each_centred_by_their_own_mean() -> None:
    model = network()
    expected = [a + b for a, b in zip(*(centered_by_hand(model, batch(seed=s)) for s in (1, 2)), strict=True)]
    hush.center_gradients(model)
    for seed in (1, 2):
        loss_of(model, batch(seed=seed)).backward()
    for layer, weight in zip((0, 2), expected, strict=True):
        torch.testing.assert_close(model[layer].weight.grad, weight, rtol=1e-12, atol=1e-12)


def test_a_layer_used_twice_is_centred_at_each_of_its_uses() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    first = layer(x)
    second = layer(first)
    second.sum().backward(retain_graph=True)
    (delta,) = torch.autograd.grad(second.sum(), first)
    ones = torch.ones_like(second)
    center = lambda a: a - a.mean(0)  # noqa: E731
    expected = ones.T @ center(first.detach()) + delta.T @ center(x)
    layer.zero_grad()
    hush.center_gradients(layer)
    layer(layer(x)).sum().backward()
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-10, atol=1e-10)


def test_eval_mode_is_torchs_own() -> None:
    plain, model, x = network(), network(), batch()
    hush.center_gradients(model)
    model.eval()
    for m in (plain, model):
        loss_of(m, x).backward()
    assert torch.equal(model[0].weight.grad, plain[0].weight.grad)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw"])
def test_a_step_is_one_in_the_coordinates_of_the_centred_input(kind: str) -> None:
    """The oracle trains y = W(a − ā) + b′ itself, with ā of this batch, by torch's own gradients."""

    class Oracle(nn.Module):
        def __init__(self, model: nn.Sequential) -> None:
            super().__init__()
            self.weights = nn.ParameterList([model[i].weight.detach().clone() for i in (0, 2)])
            self.biases = nn.ParameterList([model[i].bias.detach().clone() for i in (0, 2)])

        def forward(self, x: Tensor) -> Tensor:
            self.means = []
            for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
                x = x.relu() if i else x
                mean = x.detach().mean(0)
                self.means.append(mean)
                # b′ takes the value that gives this output, and is what learns.
                shifted = (b + w @ mean).detach() + b - b.detach()
                x = (x - mean) @ w.T + shifted
            return x

    make = {
        "sgd": lambda p: torch.optim.SGD(p, 1e-2),
        "momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
        "adamw": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
    }[kind]
    model = network()
    oracle = Oracle(model)
    hush.center_gradients(model)
    optimizers = [make(m.parameters()) for m in (model, oracle)]
    for step in range(4):
        x = batch(seed=step)
        for m, optimizer in zip((model, oracle), optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(m, x).backward()
            before = [w.detach().clone() for w in oracle.weights]
            optimizer.step()
        with torch.no_grad():
            for w, old, b, mean in zip(oracle.weights, before, oracle.biases, oracle.means, strict=True):
                b -= (w - old) @ mean
        for i, layer in enumerate((0, 2)):
            torch.testing.assert_close(model[layer].weight, oracle.weights[i], rtol=1e-9, atol=1e-10)
            torch.testing.assert_close(model[layer].bias, oracle.biases[i], rtol=1e-9, atol=1e-10)


def test_the_mean_input_gives_what_the_bias_alone_says() -> None:
    """Without its own step of the bias nothing of the mean pre-activation moves, however far the weights go."""
    model = network()[0]
    hush.center_gradients(model)
    optimizer = torch.optim.SGD([{"params": [model.weight], "lr": 1.0}, {"params": [model.bias], "lr": 0.0}])
    x = batch()
    before, weight = model(x).mean(0).detach(), model.weight.detach().clone()
    model(x).pow(3).sum().backward()
    optimizer.step()
    assert (model.weight - weight).abs().max() > 0.1
    torch.testing.assert_close(model(x).mean(0), before, rtol=1e-9, atol=1e-9)


def test_a_step_with_a_closure_takes_the_same_steps() -> None:
    """Lightning runs forward and backward inside optimizer.step."""
    model, other = network(), network()
    for m in (model, other):
        hush.center_gradients(m)
    ours, theirs = (torch.optim.AdamW(m.parameters(), 1e-2) for m in (model, other))
    for step in range(4):
        x = batch(seed=step)
        ours.zero_grad()
        loss_of(model, x).backward()
        ours.step()

        def closure(x: Tensor = x) -> Tensor:
            theirs.zero_grad()
            loss = loss_of(other, x)
            loss.backward()
            return loss

        theirs.step(closure)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_weights_that_are_loaded_are_not_taken_back() -> None:
    model, kept = network(), copy.deepcopy(network().state_dict())
    hush.center_gradients(model)
    loss_of(model, batch()).backward()
    with torch.no_grad():
        for p in model.parameters():
            p += 1.0
    model.load_state_dict(kept)
    model.zero_grad()
    torch.optim.SGD(model.parameters(), 0.1).step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, kept[name])


def test_without_keep_mean_only_the_gradient_is_touched() -> None:
    model, plain = network(), network()
    hush.center_gradients(model, keep_mean=False)
    for m in (model, plain):
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        loss_of(m, batch()).backward()
        optimizer.step()
    torch.testing.assert_close(model[2].bias, plain[2].bias)


def test_a_copy_is_centred_and_keeps_its_mean() -> None:
    model = network()
    hush.center_gradients(model)
    loss_of(model, batch()).backward()
    other = copy.deepcopy(model)
    for m in (model, other):
        m.zero_grad()
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for layer in (0, 2):
            m[layer]._forward_hooks[next(iter(m[layer]._forward_hooks))].forget()
        loss_of(m, batch()).backward()
        optimizer.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_centring_anew_centres_once() -> None:
    model, x = network(), batch()
    expected = centered_by_hand(model, x)
    first = hush.center_gradients(model)
    hush.center_gradients(model)
    first.remove()
    loss_of(model, x).backward()
    torch.testing.assert_close(model[0].weight.grad, expected[0], rtol=1e-12, atol=1e-12)


def test_a_single_row_is_told_of_once() -> None:
    model = network()
    hush.center_gradients(model)
    with pytest.warns(UserWarning, match="'0' was given a single row"):
        loss_of(model, batch(1)).backward()
    assert torch.count_nonzero(model[0].weight.grad.abs() > 1e-12) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss_of(model, batch(1))


def test_autocast_centres_to_its_own_precision() -> None:
    plain, x = network().float()[0], batch(64).float() + 3.0
    layer = copy.deepcopy(plain)
    hush.center_gradients(layer)
    for m in (plain, layer):
        with torch.autocast("cpu", torch.bfloat16):
            loss = m(x).float().pow(3).sum()
        loss.backward()
    expected = plain.weight.grad - torch.outer(plain.bias.grad, x.mean(0))
    scale = plain.weight.grad.abs().max()
    assert (layer.weight.grad - expected).abs().max() < 0.02 * scale
    assert (plain.weight.grad - expected).abs().max() > 0.3 * scale


def test_what_is_left_is_named_and_a_model_without_layers_refused() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(3, 4), "mixer": nn.MultiheadAttention(4, 2), "head": nn.Linear(4, 2)})
    centering = hush.center_gradients(model)
    assert centering.layers == ("head",)
    assert set(centering.left) == {"table", "mixer", "mixer.out_proj"}
    assert repr(centering) == "Centering of 1 layer; left as they are: 'table', 'mixer', 'mixer.out_proj'"
    with pytest.raises(ValueError, match="ReLU has no Linear or convolution whose gradient could be centred"):
        hush.center_gradients(nn.ReLU())
