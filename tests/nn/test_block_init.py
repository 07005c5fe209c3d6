"""init_ on everything that is no plain chain: what each layer is taken for, and what comes of it in a run."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hush
from hush.nn.block_rules import Rules
from hush.nn.graph import Graph, trace_graph
from hush.nn.graph.paths import Paths
from hush.nn.graph.patterns import graph_of
from hush.nn.graph.recorder import record
from hush.nn.graph.roles import read_roles
from tests.helpers import ResNet, Transformer, assert_left_as_it_was, snapshot
from tests.nn.architectures import NO_CHAINS, Layers, Recurrent, UsedTwice, example

DESIGN = hush.design("crelu", 0.8, v_prime=0.7, width=256, depth=12)
PHI = DESIGN.phi()
WIDTH = 128


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=seeded(5))


class Block(nn.Module):
    """Feed-forward or gated, with a norm in front or none, with a scale of its own or none."""

    def __init__(self, norm: nn.Module | None, *, gated: bool = False, scaled: bool = False) -> None:
        super().__init__()
        self.norm, self.phi = norm or nn.Identity(), DESIGN.module()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH) if gated else None
        self.scale = nn.Parameter(torch.full((WIDTH,), 1e-6)) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm(x)
        h = self.phi(self.up(n)) if self.gate is None else self.phi(self.gate(n)) * self.up(n)
        y = self.down(h)
        return x + (y if self.scale is None else self.scale * y)


class OneMatrix(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.phi, self.linear = norm, DESIGN.module(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.phi(self.norm(x)))


def network(make: Callable[[], nn.Module], blocks: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, WIDTH), *(make() for _ in range(blocks)), nn.Linear(WIDTH, 10))


class Basic(nn.Module):
    """The block of the first ResNets: it ends in an activation; the first of a stage halves the image."""

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        inputs = channels // stride
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.phi1, self.phi2 = DESIGN.module(), DESIGN.module()
        self.shortcut = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.phi1(self.bn1(self.conv1(x)))))
        y += self.shortcut(x)
        return self.phi2(y)


def first_resnet() -> nn.Sequential:
    stem = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), DESIGN.module()]
    blocks = [Basic(64), Basic(64), Basic(128, 2), Basic(128)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def encoder(norm_first: bool) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        64, 4, 256, activation=DESIGN.module(), batch_first=True, norm_first=norm_first, dropout=0.1
    )
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(64 + 32 * i), DESIGN.module(), nn.Conv2d(64 + 32 * i, 32, 3, padding=1))
            for i in range(4)
        )
        self.head = nn.Linear(192, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(x.mean((2, 3)))


MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "no norm": (lambda: network(lambda: Block(None)), noise(64, 32)),
    "layer norm": (lambda: network(lambda: Block(nn.LayerNorm(WIDTH))), noise(64, 32)),
    "rms norm": (lambda: network(lambda: Block(nn.RMSNorm(WIDTH))), noise(64, 32)),
    "gated": (lambda: network(lambda: Block(nn.RMSNorm(WIDTH), gated=True)), noise(64, 32)),
    "layer scale": (lambda: network(lambda: Block(nn.LayerNorm(WIDTH), scaled=True)), noise(64, 32)),
    "pre-activation": (lambda: ResNet(DESIGN.module(), 64), noise(8, 3, 8, 8)),
    "post-activation": (first_resnet, noise(8, 3, 12, 12)),
    "encoder, pre-norm": (lambda: encoder(True), noise(8, 10, 64)),
    "encoder, post-norm": (lambda: encoder(False), noise(8, 10, 64)),
    "dense": (Dense, noise(8, 3, 8, 8)),
}


def run(model: nn.Module, x: Tensor) -> tuple[Graph, list[Tensor]]:
    """A run as in training, with the gradient of a random probe at every tensor."""
    seen = record(model, x, with_tensors=True)
    output = seen.tensors[seen.outputs[0]]
    (output * torch.randn(output.shape, generator=seeded(9))).sum().backward()
    return graph_of(seen), seen.tensors


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_starts_at_its_design(name: str) -> None:
    """Sparsity within 0.03 or its noise, q within the noise of its width, the gradient within a decade."""
    build, x = MODELS[name]
    model = build()
    # Whatever was there before plays no part.
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.3)
    hush.init_(model, DESIGN, x, generator=seeded())
    graph, tensors = run(model, x)
    active = [node for node in graph.of_kind("activation") if node.phi == PHI]
    assert active
    for node in active:
        # Few channels that hardly differ between inputs are few samples of a Gaussian.
        assert abs(float((tensors[node.index] == 0).double().mean()) - 0.8) < max(0.03, 0.5 / math.sqrt(node.features))
        q = graph[node.inputs[0]].second_moment / DESIGN.q_star
        assert abs(q - 1.0) < 4.0 * math.sqrt(2.0 / node.features)
    joins = [join.add for join in Paths(graph).joins.values() if join.stream is not None]
    norms = [float(tensors[index].grad.norm()) for index in joins or [node.inputs[0] for node in active]]
    assert math.log10(max(norms) / min(norms)) < 1.0


def test_the_same_as_a_chain_would_explode() -> None:
    """What the above guards against."""
    build, x = MODELS["no norm"]
    model = build()
    hush.init_(model, DESIGN, x, structure="chain", generator=seeded())
    graph, tensors = run(model, x)
    norms = [float(tensors[join.add].grad.norm()) for join in Paths(graph).joins.values()]
    assert math.log10(max(norms) / min(norms)) > 1.5


def test_roles_of_a_transformer() -> None:
    graph = trace_graph(Transformer(DESIGN.module()), torch.randint(0, 50, (2, 7)))
    found = [(role.role, role.rows, role.reads, role.block) for role in read_roles(graph, PHI)]
    assert sorted(found[:3]) == [
        ("key", (32, 64), "normalised", "attention"),
        ("query", (0, 32), "normalised", "attention"),
        ("value", (64, 96), "normalised", "attention"),
    ]
    assert found[3:] == [
        ("writes to the stream", None, "attention", "attention, pre-norm"),
        ("feeds φ", None, "normalised", "feed-forward, pre-norm"),
        ("writes to the stream", None, "φ", "feed-forward, pre-norm"),
        ("output", None, "the stream", "outside the blocks"),
    ]


def test_roles_of_a_resnet() -> None:
    graph = trace_graph(first_resnet(), noise(4, 3, 16, 16))
    roles = read_roles(graph, PHI)
    assert [role.role for role in roles] == [
        "feeds φ",
        *["feeds φ", "writes to the stream"] * 3,
        "shortcut",
        *["feeds φ", "writes to the stream"],
        "output",
    ]
    assert all(role.post_activation for role in roles if role.role in ("writes to the stream", "shortcut"))
    assert roles[2].block == "feed-forward, norm inside"


def test_the_report_names_block_role_and_what_is_read() -> None:
    model = network(lambda: Block(nn.LayerNorm(WIDTH), scaled=True), 4)
    report = hush.init_(model, DESIGN, noise(8, 32))
    by_name = {entry.name: entry for entry in report.drawn}
    assert by_name["1.up.weight"].role == "feeds φ"
    assert by_name["1.up.weight"].block == "feed-forward, pre-norm"
    assert by_name["1.up.weight"].reads == "normalised (second moment 1, known)"
    assert by_name["1.down.weight"].role == "writes to the stream"
    assert by_name["1.scale"].kind == "set to 0.5"
    assert torch.equal(model[1].scale, torch.full((WIDTH,), 0.5))
    text = str(report)
    assert "4 residual branches, seen by data flow: 4 × feed-forward, pre-norm" in text
    assert "feed-forward, pre-norm: writes to the stream, reads φ (second moment" in text
    names = {name for name, _ in model.named_parameters()}
    assert names == {*by_name} | {entry.name for entry in report.left_alone}


@pytest.mark.parametrize(("scale", "beta"), [("1/sqrt(depth)", 0.5), ("1/depth", 0.25), ("learned", 0.5), (0.1, 0.1)])
def test_branch_scale(scale: float | str, beta: float) -> None:
    model = network(lambda: Block(nn.LayerNorm(WIDTH)), 4)
    report = hush.init_(model, DESIGN, noise(32, 32), branch_scale=scale, weights="orthogonal")
    entry = next(each for each in report.drawn if each.name == "1.down.weight")
    # σ² = β² p₀/(q* E[φ′²]) with p₀ = p = 1 at the first block.
    slope = float(PHI.slope_moment(1, DESIGN.q_star))
    assert math.isclose(entry.std**2 * 2 * WIDTH, beta**2 / (DESIGN.q_star * slope), rel_tol=0.1)
    assert f"β = {beta:.3g}" in str(report)


def test_calibrate_brings_the_zeros_of_that_batch_to_the_design() -> None:
    model = network(lambda: Block(None), 4)
    x = noise(64, 32)
    report = hush.init_(model, DESIGN, calibrate=x, generator=seeded())
    shares = hush.sparsity(model, x).layers
    assert list(shares.values()) == pytest.approx([DESIGN.sparsity] * 4, abs=1e-3)
    assert len(report.scales) == 4
    assert "Calibrated: 4 layers" in str(report)


def test_calibrate_scales_the_norm_that_is_read() -> None:
    model = network(lambda: OneMatrix(nn.GroupNorm(4, WIDTH)), 4)
    x = noise(64, 32)
    hush.init_(model, DESIGN, calibrate=x, generator=seeded())
    assert list(hush.sparsity(model, x).layers.values()) == pytest.approx([DESIGN.sparsity] * 4, abs=5e-3)


def test_a_norm_without_a_weight_cannot_give_another_q() -> None:
    design = hush.design("crelu", 0.8, block="residual", norm="rms", width=WIDTH, depth=4, q_star=4.0)

    def bare() -> nn.Sequential:
        return nn.Sequential(nn.Linear(32, WIDTH), *(Bare(design) for _ in range(4)))

    model = bare()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"has no weight and gives q = 1, but the design is for q\* = 4"):
        hush.init_(model, design, noise(64, 32))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    for block in model[1:]:
        block.norm = nn.RMSNorm(WIDTH)
    hush.init_(model, design, noise(64, 32), generator=seeded())
    assert hush.sparsity(model, noise(64, 32)).layers["1.phi"] == pytest.approx(0.8, abs=0.02)
    assert float(model[1].norm.weight.detach().max()) == pytest.approx(2.0)


def test_calibrate_brings_q_to_its_value_where_there_is_no_threshold() -> None:
    design = hush.design("gelu", width=64, depth=3, block="feedforward")
    model = hush.nn.residual_mlp(32, 4, design, hidden=96, norm=None)
    x = noise(64, 32)
    read: list[float] = []
    for block in model.blocks:
        block.phi.register_forward_hook(lambda _m, h, _o: read.append(float(h[0].detach().square().mean())))
    hush.init_(model, design, calibrate=x, generator=seeded())
    read.clear()
    model(x)
    assert read == pytest.approx([design.q_star] * 3, rel=1e-4)


class Bare(nn.Module):
    """One matrix behind a norm without parameters."""

    def __init__(self, design: hush.Design) -> None:
        super().__init__()
        self.norm, self.phi = nn.RMSNorm(WIDTH, elementwise_affine=False), design.module()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.phi(self.norm(x)))


class Scaled(Block):
    """A number of its own stands before the sum, and another between the first layer and φ."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.25 * self.down(self.phi(self.up(self.norm(x)) / 3.0))


def test_numbers_in_the_models_own_forward_are_its_scales() -> None:
    model = network(lambda: Scaled(nn.LayerNorm(WIDTH)), 4)
    report = hush.init_(model, DESIGN, noise(32, 32), generator=seeded())
    std = {each.name: each.std for each in report.drawn}
    slope = float(PHI.slope_moment(1, DESIGN.q_star))
    # The branch has its β already; what is divided by 3 is drawn three times as large.
    assert math.isclose(std["1.down.weight"] ** 2 * 2 * WIDTH, 1.0 / (DESIGN.q_star * slope), rel_tol=0.1)
    assert math.isclose(std["1.up.weight"] ** 2 * WIDTH, 9.0 * DESIGN.q_star, rel_tol=0.01)
    assert "the model scales its branches itself, by 0.25" in str(report)
    assert all(abs(share - 0.8) < 0.02 for share in hush.sparsity(model, noise(256, 32)).layers.values())


def test_a_branch_passes_a_squared_gradient_with_gain_beta_squared() -> None:
    """The gain that σ_out was chosen for, measured by backpropagation through one branch."""
    gains = []
    for seed in range(12):
        torch.manual_seed(seed)
        model = nn.Sequential(Block(nn.RMSNorm(WIDTH), gated=seed % 2 == 1))
        x = torch.randn(32, WIDTH, requires_grad=True)
        hush.init_(model, DESIGN, x.detach(), branch_scale=0.5, generator=seeded(seed))
        (y,) = (model(x) - x,)
        probe = torch.randn_like(y)
        (grad,) = torch.autograd.grad(y, x, probe)
        gains.append(float(grad.square().sum() / probe.square().sum()))
    for kind in (gains[::2], gains[1::2]):
        assert math.isclose(sum(kind) / len(kind), 0.25, rel_tol=0.12)


def test_batch_norm_in_a_chain_passes_the_gain_that_its_rule_says() -> None:
    """γ²E[φ′²]/f with f = E[φ²] − c(b/q*): against a sample of features with fixed shifts."""
    rules = Rules(DESIGN)
    affine = rules.batch_norm_in_chain(10)
    assert math.isclose(affine.gamma2 + affine.variance, DESIGN.q_star)
    shift = torch.randn(2000, 1, generator=seeded(1), dtype=torch.float64) * math.sqrt(affine.variance)
    z = torch.randn(2000, 500, generator=seeded(2), dtype=torch.float64)
    h = (math.sqrt(affine.gamma2) * z + shift).requires_grad_()
    y = DESIGN.module()(h)
    (slopes,) = torch.autograd.grad(y.sum(), h)
    gain = affine.gamma2 * float(slopes.square().mean()) / float(y.detach().var(1, correction=0).mean())
    assert math.isclose(gain, 10.0 ** (1 / 10), rel_tol=0.03)


def test_keep_frozen_and_tied() -> None:
    model = Transformer(DESIGN.module())
    model.mlp[0].weight.requires_grad_(False)
    before = snapshot(model)
    report = hush.init_(model, DESIGN, torch.randint(0, 50, (4, 7)), keep=("mlp.3", "norm1.weight"))
    why = {entry.name: entry.reason for entry in report.left_alone}
    assert why["mlp.3.weight"] == why["mlp.3.bias"] == why["norm1.weight"] == "to be kept, as keep= says"
    assert why["mlp.0.weight"] == "frozen: requires_grad is False"
    assert why["mlp.0.bias"] == "belongs to a weight that is left alone"
    assert why["unembed.weight"].startswith("tied to embedding.weight: an embedding keeps its own scale")
    for name in why:
        assert torch.equal(model.state_dict()[name], before[name])
    assert not torch.equal(model.attention.in_proj_weight, before["attention.in_proj_weight"])
    with pytest.raises(ValueError, match="keep names 'nothing', and the model has no layer or parameter of that name"):
        hush.init_(model, DESIGN, torch.randint(0, 50, (4, 7)), keep=("nothing",))


def test_the_same_seed_the_same_model_also_the_second_time() -> None:
    build, x = MODELS["pre-activation"]
    first, second = build(), build()
    hush.init_(first, DESIGN, x, generator=seeded(3))
    drawn = snapshot(first)
    hush.init_(first, DESIGN, x, generator=seeded(3))
    hush.init_(second, DESIGN, x, generator=seeded(3))
    for model in (first, second):
        assert all(torch.allclose(value, drawn[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    build, x = MODELS["layer norm"]
    model = build().to(dtype)
    hush.init_(model, DESIGN, x.to(dtype), generator=seeded())
    graph = trace_graph(model, x.to(dtype))
    for node in graph.of_kind("activation"):
        assert abs(graph[node.inputs[0]].second_moment - 1.0) < 0.15


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile, when it is first used
def test_wrapped_models() -> None:
    def build() -> nn.Module:
        return network(lambda: Block(nn.LayerNorm(WIDTH)), 2)

    x = noise(8, 32)
    plain, wrapped = build(), nn.DataParallel(build())
    hush.init_(plain, DESIGN, x, generator=seeded())
    hush.init_(wrapped, DESIGN, x, generator=seeded())
    accelerated = build()
    hush.sparse.accelerate(accelerated)
    hush.init_(accelerated, DESIGN, x, generator=seeded())
    compiled = torch.compile(build())
    hush.init_(compiled, DESIGN, x, generator=seeded())
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[f"_orig_mod.{name}"], value)
        torch.testing.assert_close(wrapped.state_dict()[f"module.{name}"], value)
        torch.testing.assert_close(accelerated.state_dict()[name], value)


def test_shared_layers_are_drawn_once_and_said() -> None:
    class Twice(UsedTwice):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            h = h + self.b(self.phi(h))
            return self.c(h + self.b(self.phi(h)))

    model = Twice(DESIGN.module())
    text = str(hush.init_(model, DESIGN, noise(8, 16)))
    assert "Called more than once, and drawn for the first call: 'b'." in text
    assert "φ reads the stream itself, with no norm or layer between, at 'phi'" in text


@pytest.mark.parametrize(
    ("build", "seen"),
    [each for each in NO_CHAINS if each[0] is not Recurrent],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_no_chain_is_drawn_as_what_it_is(build: Callable[[nn.Module], nn.Module], seen: str) -> None:
    model = build(DESIGN.module())
    report = hush.init_(model, DESIGN, example(model, 8), generator=seeded())
    assert report.drawn
    assert "seen by data flow" in report.structure
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_what_is_not_recognised_is_refused_and_left_as_it_was() -> None:
    class OtherFunction(Layers):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.c(h + self.b(torch.relu(h)))

    for model, sentence in (
        (Recurrent(DESIGN.module()), "LSTM at 'lstm' is recurrent"),
        (OtherFunction(DESIGN.module()), r"CReLU.* is nowhere applied \(activations that were seen: relu in"),
    ):
        before = snapshot(model)
        with pytest.raises(ValueError, match=sentence) as refusal:
            hush.init_(model, DESIGN, example(model))
        assert "structure='chain'" in str(refusal.value)
        assert "keep=" in str(refusal.value)
        assert_left_as_it_was(model, before)


def test_a_refusal_in_the_middle_leaves_nothing_drawn() -> None:
    class Silent(Layers):
        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.c(0.0 * (h + self.b(self.phi(h))))

    model = Silent(DESIGN.module())
    before = snapshot(model)
    with pytest.raises(ValueError, match="what 'c' reads has the second moment 0 on this example"):
        hush.init_(model, DESIGN, example(model))
    assert_left_as_it_was(model, before)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"branch_scale": -1.0},
            "branch_scale must be a positive number, '1/sqrt.depth.', '1/depth' or 'learned', got -1",
        ),
        ({"branch_scale": "deep"}, "branch_scale must be"),
        ({"keep": "up"}, "keep must be a tuple of names, such as .'up',.,"),
    ],
)
def test_bad_arguments(arguments: dict, sentence: str) -> None:
    model = network(lambda: Block(None), 2)
    before = snapshot(model)
    with pytest.raises(ValueError, match=sentence):
        hush.init_(model, DESIGN, noise(4, 32), **arguments)
    assert_left_as_it_was(model, before)


def test_batch_norm_needs_more_than_one_value() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), DESIGN.module(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="BatchNorm, which in training needs more than one value per channel"):
        hush.init_(model, DESIGN, noise(1, 4))
