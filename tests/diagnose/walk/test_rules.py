"""Every rule against networks drawn at random: the second moments of what really comes out, averaged over draws."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.diagnose.walk.along_the_run import walk_model
from hush.diagnose.walk.picking import measured_moments
from hush.diagnose.walk.population import Draws, second_moments, triangular_root
from hush.diagnose.walk.sites import Sites, sites_of_layer, sites_of_measured

DRAWS = 12
IMAGES = torch.randn(6, 8, 8, 8, generator=torch.Generator().manual_seed(0)).add(0.5)
SMOOTH = F.interpolate(IMAGES[:, :, ::2, ::2], scale_factor=2) + 0.3 * IMAGES
TOKENS = torch.randn(48, 7, 24, generator=torch.Generator().manual_seed(1)) + 0.5 * torch.randn(
    48, 1, 24, generator=torch.Generator().manual_seed(2)
)
ROWS = torch.randn(6, 24, generator=torch.Generator().manual_seed(3)) + 0.4


class Named(nn.Module):
    """Layers that are drawn anew, what is done with them, and an activation at which the walk is read."""

    def __init__(self, layers: list[nn.Module], forward: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layers, self.body = nn.ModuleList(layers), forward

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.body(x, *self.layers))


def conv(n: int, m: int = 256, kernel: int = 3, **options: object) -> nn.Conv2d:
    return nn.Conv2d(n, m, kernel, **options)


def attend(x: Tensor, q: nn.Module, k: nn.Module, v: nn.Module, causal: bool = False) -> Tensor:
    heads = [layer(x).unflatten(-1, (8, 32)).transpose(1, 2) for layer in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, is_causal=causal).transpose(1, 2).flatten(2)


def attend_by_hand(x: Tensor, q: nn.Module, k: nn.Module, v: nn.Module) -> Tensor:
    q, k, v = (layer(x).unflatten(-1, (8, 32)).transpose(1, 2) for layer in (q, k, v))
    weights = (q @ k.transpose(-2, -1) / 32**0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def gated(x: Tensor, both: nn.Module) -> Tensor:
    # Behind a norm, as gates are: tokens of different norms would make both factors large together.
    gate, up = both(F.rms_norm(x, (24,))).chunk(2, -1)
    return F.silu(gate) * up


def by_hand(x: Tensor, layer: nn.Module) -> Tensor:
    x = layer(x)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def linears(*sizes: tuple[int, int]) -> list[nn.Module]:
    return [nn.Linear(n, m) for n, m in sizes]


# name, input, layers, forward, axis of the units
RULES = [
    ("linear", ROWS, lambda: linears((24, 512)), lambda x, a: a(x), -1),
    ("linear on tokens", TOKENS, lambda: linears((24, 512)), lambda x, a: a(x), -1),
    ("relu", ROWS, lambda: linears((24, 512), (512, 512)), lambda x, a, b: b(F.relu(a(x))), -1),
    ("gelu", ROWS, lambda: linears((24, 512), (512, 512)), lambda x, a, b: b(F.gelu(a(x))), -1),
    ("residual", ROWS, lambda: linears((24, 512), (512, 512)), lambda x, a, b: (y := a(x)) + b(F.relu(y)), -1),
    ("post-activation", ROWS, lambda: linears((24, 512), (512, 512)), lambda x, a, b: b(y := F.relu(a(x))) + y, -1),
    ("gate", TOKENS, lambda: linears((24, 1024)), gated, -1),
    ("scale", TOKENS, lambda: linears((24, 512)), lambda x, a: 0.3 * a(x) * torch.linspace(0, 2, 512), -1),
    ("layer norm", TOKENS, lambda: [*linears((24, 512)), nn.LayerNorm(512)], lambda x, a, n: n(F.relu(a(x))), -1),
    ("rms norm", TOKENS, lambda: [*linears((24, 512)), nn.RMSNorm(512)], lambda x, a, n: n(F.relu(a(x))), -1),
    ("rms norm by hand", TOKENS, lambda: linears((24, 512)), by_hand, -1),
    ("batch norm", IMAGES, lambda: [conv(8), nn.BatchNorm2d(256)], lambda x, a, n: n(F.relu(a(x))), 1),
    ("group norm", IMAGES, lambda: [conv(8), nn.GroupNorm(4, 256)], lambda x, a, n: n(a(x)), 1),
    ("instance norm", IMAGES, lambda: [conv(8), nn.GroupNorm(256, 256)], lambda x, a, n: n(a(x)), 1),
    ("padding", IMAGES, lambda: [conv(8, padding=1)], lambda x, a: a(x), 1),
    ("circular", IMAGES, lambda: [conv(8, padding=1, padding_mode="circular")], lambda x, a: a(x), 1),
    ("stride", SMOOTH, lambda: [conv(8, stride=2, padding=1)], lambda x, a: a(x), 1),
    ("depthwise", IMAGES, lambda: [conv(8, 8), conv(8, 256)], lambda x, a, b: b(a(x)), 1),
    ("transposed", IMAGES, lambda: [nn.ConvTranspose2d(8, 256, 2, stride=2)], lambda x, a: a(x), 1),
    ("average pool", SMOOTH, lambda: [conv(8)], lambda x, a: F.avg_pool2d(F.relu(a(x)), 2), 1),
    ("max pool", IMAGES, lambda: [conv(8)], lambda x, a: F.max_pool2d(a(x), 2), 1),
    ("nearest", IMAGES, lambda: [conv(8)], lambda x, a: F.interpolate(a(x), scale_factor=2), 1),
    ("mean", IMAGES, lambda: [conv(8)], lambda x, a: F.relu(a(x)).mean((2, 3)), -1),
    ("flatten", IMAGES, lambda: [*linears((512, 512))], lambda x, a: a(x.flatten(1)), -1),
    ("concat", IMAGES, lambda: [conv(8), conv(8)], lambda x, a, b: torch.cat([F.relu(a(x)), b(x)], 1), 1),
    ("token mixing", TOKENS, lambda: linears((7, 512)), lambda x, a: a(x.transpose(1, 2)), -1),
    ("attention", TOKENS, lambda: linears((24, 256), (24, 256), (24, 256)), attend, -1),
    ("attention by hand", TOKENS, lambda: linears((24, 256), (24, 256), (24, 256)), attend_by_hand, -1),
    ("causal", TOKENS, lambda: linears((24, 256), (24, 256), (24, 256)), lambda *a: attend(*a, causal=True), -1),
    ("matmul", ROWS, lambda: linears((24, 512)), lambda x, a: x @ a.weight.T, -1),
    ("addmm", ROWS, lambda: linears((24, 512)), lambda x, a: torch.addmm(a.bias, x, a.weight.T), -1),
    ("select", TOKENS, lambda: linears((24, 512)), lambda x, a: a(x)[:, 2], -1),
]


@pytest.mark.parametrize(("x", "build", "forward", "axis"), [rule[1:] for rule in RULES], ids=[r[0] for r in RULES])
def test_second_moments_are_those_of_networks_drawn_at_random(x: Tensor, build, forward, axis: int) -> None:
    model = Named(build(), forward)
    torch.manual_seed(0)
    real = torch.stack([_moments(model, x, axis) for _ in range(DRAWS)])
    walk = walk_model(model, (x,), {}, len(x), ((x,), {}))
    assert not walk.restarts
    expected = second_moments(walk.activations[-1].before.values)
    mean, error = real.mean(0), real.std(0) / math.sqrt(DRAWS)
    own = float(mean[0, 0])
    for place in range(4):
        # Same place, other position, other input, both; the last two per cent are what the theory neglects.
        tolerance = 4.0 * float(error[0, place]) + 0.02 * own + (0.03 * own if place else 0.0)
        assert abs(float(expected[0, place] - mean[0, place])) < tolerance, (place, expected[0], mean[0])


def _moments(model: Named, x: Tensor, axis: int) -> Tensor:
    for layer in model.layers:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    with torch.no_grad():
        return measured_moments(model.body(x, *model.layers).double(), axis)


def test_draws_have_exactly_the_covariance_that_is_asked_for() -> None:
    root = torch.tril(torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    drawn = Draws().gaussian(root @ root.T)
    assert torch.allclose(second_moments(drawn), root @ root.T, atol=1e-9)
    assert abs(float((drawn[0] < 0).double().mean()) - 0.5) < 1e-3


def test_a_singular_covariance_has_a_root() -> None:
    ones = torch.ones(5, 5, dtype=torch.float64)
    assert torch.allclose(triangular_root(ones) @ triangular_root(ones).T, ones)


def test_sites_follow_a_tensor_through_views() -> None:
    value = torch.empty(2, 7, 24)
    sites = sites_of_measured(value, -1)
    assert (len(sites.units), len(sites.positions)) == (24, 7)
    heads = Sites(sites.codes.view(2, 7, 4, 6).transpose(1, 2), sites.base)
    assert heads.varies(2) == (False, True)
    assert heads.varies(-1) == (True, False)
    flat = Sites(sites.codes.flatten(1), sites.base)
    assert flat.varies(1) == (True, True)
    read = sites_of_layer(flat, -1, torch.empty(2, 5))
    assert (len(read.units), len(read.positions)) == (5, 1)
    mixed = sites_of_layer(Sites(sites.codes.transpose(1, 2), sites.base), -1, torch.empty(2, 24, 9))
    assert (len(mixed.units), len(mixed.positions)) == (9, 24)
