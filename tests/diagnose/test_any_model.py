"""Architectures that are no chain, built by hand and drawn at random: what is predicted beside what they do."""

import json
import math
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

import hush
from hush.diagnose import Diagnosis
from tests.helpers import assert_left_as_it_was, snapshot


class Block(nn.Module):
    """x + β W φ(n(x)), or x + β W₂ φ(W₁ n(x)), or with a gate."""

    def __init__(self, width: int, phi: nn.Module, norm: str | None, matrices: int, beta: float) -> None:
        super().__init__()
        self.norm = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}[norm](width) if norm else nn.Identity()
        self.inner = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(matrices - 1))
        self.out = nn.Linear(2 * width if matrices > 1 else width, width)
        self.phi, self.beta = phi, beta

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        h = self.phi(self.inner[0](y) if self.inner else y)
        if len(self.inner) > 1:
            h = h * self.inner[1](y)
        return x + self.beta * self.out(h)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(32 + 16 * i), nn.ReLU(), nn.Conv2d(32 + 16 * i, 16, 3, padding=1))
            for i in range(4)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(96), nn.ReLU(), nn.Conv2d(96, 64, 1), nn.AvgPool2d(2))
        self.last, self.head = nn.Conv2d(64, 64, 3, padding=1), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(F.relu(self.last(self.transition(x))).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, n: int = 48) -> None:
        super().__init__()
        self.down, self.bottom = nn.Conv2d(3, n, 3, padding=1), nn.Conv2d(n, 2 * n, 3, padding=1)
        self.up, self.joined = nn.ConvTranspose2d(2 * n, n, 2, stride=2), nn.Conv2d(2 * n, n, 3, padding=1)
        self.head = nn.Conv2d(n, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.gelu(self.down(x))
        deep = F.gelu(self.bottom(F.max_pool2d(skip, 2)))
        return self.head(F.gelu(self.joined(torch.cat([self.up(deep), skip], 1))))


class PostActivation(nn.Module):
    """ResNet blocks: relu(x + norm(conv(relu(norm(conv(x))))))."""

    def __init__(self, n: int = 48, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, n, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1, bias=False) for _ in range(2 * depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for _ in range(2 * depth))
        self.head = nn.Linear(n, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for i in range(0, len(self.convs), 2):
            h = F.relu(self.norms[i](self.convs[i](x)))
            x = F.relu(x + self.norms[i + 1](self.convs[i + 1](h)))
        return self.head(x.mean((2, 3)))


def residual(norm: str | None, matrices: int, phi: nn.Module, width: int = 80, depth: int = 8) -> nn.Sequential:
    blocks = (Block(width, phi, norm, matrices, depth**-0.5) for _ in range(depth))
    return nn.Sequential(nn.Linear(40, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 5))


def encoder(norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


CRELU = hush.nn.CReLU(0.8, 1.0)
ROWS, TOKENS, IMAGES = (40,), (10, 64), (3, 12, 12)
# name, how it is built, the shape of an input, how far the gain may lie off
MODELS = {
    "one matrix, no norm": (lambda: residual(None, 1, nn.ReLU()), ROWS, 0.3),
    "two matrices, no norm": (lambda: residual(None, 2, nn.ReLU()), ROWS, 0.3),
    "one matrix, rms": (lambda: residual("rms", 1, CRELU), ROWS, 0.3),
    "two matrices, layer": (lambda: residual("layer", 2, CRELU), ROWS, 0.3),
    "gated, rms": (lambda: residual("rms", 3, nn.SiLU()), ROWS, 0.3),
    "encoder, pre-norm": (lambda: encoder(True), TOKENS, 0.5),
    "encoder, post-norm": (lambda: encoder(False), TOKENS, 0.5),
    "resnet": (PostActivation, IMAGES, 1.0),
    "dense": (Dense, IMAGES, 1.0),
    "u-net": (UNet, IMAGES, 1.0),
}


def drawn(build, seed: int) -> nn.Module:
    """Every weight anew: copies of a layer, as nn.TransformerEncoder makes them, would all have the same."""
    torch.manual_seed(seed)
    model = build()
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            module._reset_parameters()
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model


def inputs(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(16, *shape, generator=torch.Generator().manual_seed(seed))


@cache
def diagnosed(name: str, seed: int = 0) -> Diagnosis:
    build, shape, _ = MODELS[name]
    return hush.diagnose(drawn(build, seed), inputs(shape))


@pytest.mark.parametrize("name", MODELS)
def test_prediction_against_networks_drawn_at_random(name: str) -> None:
    layers = [layer for seed in range(2) for layer in diagnosed(name, seed).layers]
    points = [point for seed in range(2) for point in diagnosed(name, seed).stream]
    assert not diagnosed(name).restarts
    inside = [_within(layer.q, layer.q_predicted, layer.q_band) for layer in layers]
    assert sum(inside) >= 0.9 * len(inside)
    for layer in layers:
        assert abs(layer.sparsity - layer.sparsity_predicted) < 0.08
        assert abs(layer.gain_log10 - layer.gain_log10_predicted) < MODELS[name][2]
    # One network's correlations go their own way where the width is 64; on average they are as expected.
    assert abs(sum(layer.correlation - layer.correlation_predicted for layer in layers)) / len(layers) < 0.15
    inside = [_within(point.p, point.p_predicted, point.p_band) for point in points]
    assert sum(inside) >= 0.9 * len(inside)


def _within(value: float, middle: float, band: tuple[float, float]) -> bool:
    """Inside the band that holds 90 %, which is 1.645/2.576 as wide as the one that holds 99 %."""
    return abs(math.log(value / middle)) <= 1.645 / 2.576 * math.log(band[1] / middle)


def test_bands_are_not_so_wide_that_they_say_nothing() -> None:
    """With a norm in front q is known up to the draw of its 160 units: 2.6 √(2/160 + …) < 0.5."""
    for layer in diagnosed("two matrices, layer").layers:
        assert math.log(layer.q_band[1] / layer.q_band[0]) < 1.0


@pytest.mark.parametrize("name", ["two matrices, layer", "gated, rms", "encoder, pre-norm", "resnet"])
def test_networks_that_are_fine_are_said_to_train(name: str) -> None:
    assert diagnosed(name).trains is True
    assert "It should train." in diagnosed(name).verdict


def test_weights_twice_as_large_are_said_to_be_wrong() -> None:
    """Without a norm the gradient explodes; with one the sparsity is lost, which the design tells."""
    model = drawn(lambda: residual(None, 2, nn.ReLU(), depth=30), 0)
    with torch.no_grad():
        for block in model[1:-2]:
            for layer in (*block.inner, block.out):
                layer.weight.mul_(2.0)
    diagnosis = hush.diagnose(model, inputs(ROWS))
    assert diagnosis.trains is False
    assert "it explodes" in diagnosis.verdict


def test_a_lost_sparsity_is_said_to_be_lost() -> None:
    design = hush.design("crelu", 0.85, clip=1.0)
    model = drawn(lambda: residual("rms", 2, design.module()), 0)
    with torch.no_grad():
        for block in model[1:-2]:
            block.inner[0].weight.mul_(2.0)
    verdict = hush.diagnose(model, inputs(ROWS), design=design).block_verdict
    assert verdict.sparsity_lost
    assert verdict.trains


def test_a_missing_norm_is_said_to_be_wrong() -> None:
    model = drawn(lambda: residual("layer", 2, nn.ReLU(), depth=24), 0)
    for block in model[1:-2]:
        block.beta = 1.0
    assert hush.diagnose(model, inputs(ROWS)).trains is True
    for block in model[1:-2]:
        block.norm = nn.Identity()
    diagnosis = hush.diagnose(model, inputs(ROWS))
    assert diagnosis.trains is False
    assert all(layer.leaves_band is False for layer in diagnosis.layers[:3])


def test_functions_are_read_as_modules_are() -> None:
    class Functions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(40, 64), nn.Linear(64, 64), nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = hush.nn.functional.crelu(self.a(x), 0.2, 1.0)
            return self.c(x + F.relu(self.b(x)))

    class Modules(Functions):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = hush.nn.CReLU(0.2, 1.0), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(self.a(x))
            return self.c(x + self.second(self.b(x)))

    functions, modules = drawn(Functions, 0), drawn(Modules, 0)
    a, b = (hush.diagnose(model, inputs(ROWS)) for model in (functions, modules))
    assert [layer.name for layer in a.layers] == ["crelu()", "relu()"]
    for one, other in zip(a.layers, b.layers, strict=True):
        assert (one.q, one.sparsity, one.saturated, one.dead) == (other.q, other.sparsity, other.saturated, other.dead)
        assert (one.gradient, one.gain_log10) == (other.gradient, other.gain_log10)
        assert (one.q_predicted, one.sparsity_predicted) == (other.q_predicted, other.sparsity_predicted)
        assert one.saturated_predicted == other.saturated_predicted
    assert a.layers[0].saturated > 0.0
    assert abs(a.layers[0].saturated - a.layers[0].saturated_predicted) < 0.05


def test_the_stream_against_plain_torch() -> None:
    build, shape, _ = MODELS["encoder, pre-norm"]
    model, x = drawn(build, 0).eval(), inputs(shape)
    sums = []
    for layer in model.layers:
        layer.norm2.register_forward_pre_hook(lambda _, args: sums.append(args[0]))
        layer.register_forward_hook(lambda *args: sums.append(args[-1]))
    model(x)
    points = diagnosed("encoder, pre-norm").stream
    assert [point.name for point in points] == [f"layers.{n}{k}" for n in range(4) for k in ("", "#2")]
    for point, total in zip(points, sums, strict=True):
        total = total.detach().double()
        assert math.isclose(point.p, float(total.square().mean((1, 2)).quantile(0.5)), rel_tol=1e-4)
        rows = F.normalize(total, dim=-1)
        cosines = rows @ rows.mT
        tokens = (cosines.sum((1, 2)) - 10.0).mean() / 90.0
        assert math.isclose(point.token_correlation, float(tokens), abs_tol=1e-4)
        assert abs(point.token_correlation - point.token_correlation_predicted) < 0.05


def test_named_arguments_and_outputs_by_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.position = nn.Embedding(50, 32), nn.Parameter(torch.randn(1, 6, 32))
            self.block, self.head = Block(32, nn.GELU(), "layer", 2, 0.5), nn.Linear(32, 50)

        def forward(self, *, tokens: Tensor, mask: Tensor | None = None, flag: bool = False) -> dict[str, Tensor]:
            x = self.block(self.table(tokens) + self.position)
            return {"logits": self.head(x if mask is None else x * mask[..., None])}

    torch.manual_seed(0)
    tokens = torch.randint(0, 50, (8, 6))
    diagnosis = hush.diagnose(Named(), {"tokens": tokens, "mask": torch.ones(8, 6).bool(), "flag": True})
    assert diagnosis.inputs == 8
    assert diagnosis.layers[0].positions == 6
    assert not diagnosis.restarts
    assert len(diagnosis.stream) == 1
    assert diagnosis.layers[0].leaves_band is False


def test_batch_norm_takes_the_statistics_of_the_batch_and_leaves_its_own() -> None:
    model = drawn(PostActivation, 0)
    for norm in model.norms:
        norm.running_mean.fill_(3.0)
        norm.running_var.fill_(7.0)
    before, x = snapshot(model), inputs(IMAGES)
    diagnosis = hush.diagnose(model, x, chunk=5)  # 16 = 5 + 5 + 6: no input is left alone
    assert_left_as_it_was(model, before)
    assert diagnosis.batch_statistics
    assert abs(diagnosis.layers[1].q - 1.0) < 0.1
    alone = hush.diagnose(model, x[:1])
    assert not alone.batch_statistics
    assert alone.layers[1].q > 1.2 or alone.layers[1].q < 0.8


def test_it_prints_serialises_and_draws(tmp_path) -> None:
    diagnosis = diagnosed("encoder, pre-norm")
    text = str(diagnosis)
    assert "the stream, behind every sum" in text
    assert "layers.3#2" in text
    assert len(diagnosis.stream_table(every=4).splitlines()) == 4  # header, 1, 5 and the last
    fields = json.loads(diagnosis.to_json(), parse_constant=pytest.fail)
    assert fields["trains"] is True
    assert fields["stream"][0]["name"] == "layers.0"
    assert fields["block_verdict"]["explodes"] is False
    assert diagnosis.to_dataframe()["q_predicted"].notna().all()
    diagnosis.plot(tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_network_with_batch_norm_is_not_called_indistinguishable() -> None:
    """It divides by what tells inputs apart, however little that is; without it the same figures are a verdict."""

    class Ends(nn.Module):
        def __init__(self, norm: bool) -> None:
            super().__init__()
            self.linear, self.act = nn.Linear(64, 64), nn.ReLU()
            self.norm = nn.BatchNorm1d(64) if norm else nn.Identity()
            nn.init.constant_(self.linear.bias, 30.0)
            nn.init.normal_(self.linear.weight, 0.0, 0.1)

        def forward(self, x: Tensor) -> Tensor:
            return x + 0.1 * self.norm(self.act(self.linear(x)))

    torch.manual_seed(0)
    for norm in (True, False):
        model = nn.Sequential(nn.Linear(16, 64), *(Ends(norm) for _ in range(10)), nn.Linear(64, 4))
        nn.init.normal_(model[-1].weight, 0.0, 1e-3)
        with torch.no_grad():
            model[0].bias.fill_(30.0)  # nearly all of the stream is common to all inputs
        found = hush.diagnose(model, torch.randn(64, 16))
        assert found.block_verdict is not None
        assert found.block_verdict.indistinguishable is (not norm)
        assert ("is not judged" in found.verdict) is norm
