import math

import pytest
import torch
from torch import Tensor, nn

import hush
from hush.nn import draw_by_role_, gpt, mlp, residual_mlp, resnet
from tests.helpers import assert_variance

DESIGN = hush.design("crelu", 0.95, clip=1.0)
ACTIVATIONS = [DESIGN, nn.ReLU, nn.GELU]


def seeded(model: nn.Module) -> nn.Module:
    draw_by_role_(model, generator=torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("scale", [0.3, "learned"])
def test_a_block_is_its_formula(scale) -> None:
    one = residual_mlp(8, 3, nn.Tanh, blocks=4, width=6, branch_scale=scale)
    two = residual_mlp(8, 3, nn.Tanh, blocks=4, width=6, hidden=5, norm=None, branch_scale=scale)
    x = torch.randn(7, 6)
    beta = 0.5 if scale == "learned" else 0.3
    rms = x / x.square().mean(1, keepdim=True).sqrt()
    block = one.blocks[0]
    torch.testing.assert_close(block(x), x + beta * (rms.tanh() @ block.linear.weight.T + block.linear.bias))
    block = two.blocks[0]
    inner = (x @ block.up.weight.T + block.up.bias).tanh()
    torch.testing.assert_close(block(x), x + beta * (inner @ block.down.weight.T + block.down.bias))
    assert len([p for p in one.parameters() if p.dim() == 0]) == (4 if scale == "learned" else 0)


@pytest.mark.parametrize(("rule", "beta"), [("1/sqrt(depth)", 1 / math.sqrt(8)), ("1/depth", 1 / 8), (2, 2.0)])
def test_the_scale_counts_every_branch(rule, beta: float) -> None:
    assert residual_mlp(8, 3, nn.ReLU, blocks=8, width=6, branch_scale=rule).blocks[3].scale == beta
    # Two branches in each layer.
    layer = gpt(nn.ReLU, layers=4, width=8, branch_scale=rule).layers[0]
    assert layer.attention_scale == layer.feed_forward_scale == beta


def test_a_sparse_network_and_its_dense_twin_are_made_alike() -> None:
    for make in (
        lambda phi: residual_mlp(8, 3, phi, blocks=2, width=6),
        lambda phi: resnet(1, 3, phi, blocks=3, channels=4),
        lambda phi: gpt(phi, layers=2, width=8),
        lambda phi: mlp(8, 3, phi, width=6, depth=2),
    ):
        sparse, dense = make(DESIGN), make(nn.GELU)
        assert {k: v.shape for k, v in sparse.state_dict().items()} == {
            k: v.shape for k, v in dense.state_dict().items()
        }
        assert any(isinstance(module, hush.nn.CReLU) for module in sparse.modules())
        assert any(isinstance(module, nn.GELU) for module in dense.modules())
        assert not any(isinstance(module, hush.nn.CReLU) for module in dense.modules())


def test_sizes_come_from_the_design() -> None:
    design = hush.design("crelu", 0.8, width=12, depth=3, clip=1.0)
    assert len(residual_mlp(8, 2, design).blocks) == 3
    assert residual_mlp(8, 2, design).stem.out_features == 12
    assert len(resnet(1, 2, design).blocks) == 3
    assert gpt(design).head.in_features == 12


def test_a_resnet_has_three_stages_and_6n_plus_2_layers() -> None:
    model = resnet(3, 10, nn.ReLU, blocks=9, channels=8)
    layers = [
        m for m in model.modules() if isinstance(m, nn.Linear) or (isinstance(m, nn.Conv2d) and m.kernel_size[0] == 3)
    ]
    assert len(layers) == 6 * 3 + 2
    x = model.stem(torch.randn(2, 3, 16, 16))
    shapes = [tuple((x := block(x)).shape[1:]) for block in model.blocks]
    assert shapes == [(8, 16, 16)] * 3 + [(16, 8, 8)] * 3 + [(32, 4, 4)] * 3


def test_circular_padding_commutes_with_shifts() -> None:
    model = seeded(resnet(1, 4, nn.GELU, blocks=3, channels=4, padding="circular")).eval()
    x = torch.randn(2, 1, 16, 16)
    # Two strides of 2: a shift by 4 pixels is a shift of the last feature map by one.
    torch.testing.assert_close(model(x.roll(4, -1)), model(x))
    zeros = seeded(resnet(1, 4, nn.GELU, blocks=3, channels=4)).eval()
    assert not torch.allclose(zeros(x.roll(4, -1)), zeros(x))


@pytest.mark.parametrize("gated", [False, True])
def test_a_gpt_reads_only_what_came_before(gated: bool) -> None:
    model = seeded(gpt(DESIGN, layers=2, width=16, heads=4, context=20, gated=gated))
    tokens = torch.randint(0, 256, (2, 20))
    other = tokens.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 256
    assert torch.equal(model(tokens)[:, :12], model(other)[:, :12])
    assert not torch.allclose(model(tokens)[:, 12:], model(other)[:, 12:])
    assert model(tokens[:, :5]).shape == (2, 5, 256)
    with pytest.raises(ValueError, match="at most 20 bytes at once, got 21"):
        model(torch.zeros(1, 21, dtype=torch.long))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [None, 400])
def test_a_drawn_network_starts_right_at_every_depth(activation, hidden: int | None) -> None:
    model = seeded(residual_mlp(64, 10, activation, blocks=30, width=300, hidden=hidden))
    x = torch.randn(128, 64, generator=torch.Generator().manual_seed(1))
    gradients: list[float] = []
    for block in model.blocks:
        block.register_full_backward_hook(lambda _m, _i, out: gradients.append(float(out[0].square().sum())))
    read: list[float] = []
    for block in model.blocks:
        block.phi.register_forward_hook(lambda _m, inputs, _o: read.append(float(inputs[0].detach().square().mean())))
    model(x).square().sum().backward()
    # q* = 1 before every activation, and a gradient that neither grows nor shrinks tenfold over thirty blocks.
    assert all(0.85 < q < 1.15 for q in read)
    assert abs(math.log10(gradients[0] / gradients[-1])) < 1.0
    wanted = {nn.ReLU: 0.5, nn.GELU: 0.0}.get(activation, 0.95)
    shares = hush.sparsity(model, x).layers
    assert len(shares) == 30
    assert all(abs(share - wanted) < 0.02 for share in shares.values())


def test_each_layer_is_drawn_for_its_role() -> None:
    phi = hush.nn.phi_of(hush.nn.CReLU(DESIGN.threshold, 1.0))
    assert phi is not None
    out = 1.0 / phi.slope_moment(1, 1.0)
    model = seeded(gpt(DESIGN, layers=1, width=64))
    layer = model.layers[0]
    assert_variance(model.token.weight, 0.5)
    assert_variance(layer.attention.value.weight, 1 / 64)
    assert_variance(layer.feed_forward.up.weight, 1 / 64)
    assert_variance(layer.feed_forward.down.weight, out / 256)
    assert not layer.feed_forward.up.bias.any()
    gated = seeded(gpt(DESIGN, layers=1, width=64, gated=True)).layers[0].feed_forward
    assert_variance(gated.down.weight, 1 / (phi.slope_moment(1, 1.0) + phi.second_moment(1.0)) / 256)
    # Without a norm the second activation of a block reads what the first convolution gives.
    bare = seeded(resnet(1, 10, DESIGN, blocks=3, channels=16, norm=None)).blocks[1]
    assert_variance(bare.conv1.weight, 1 / phi.second_moment(1.0) / bare.conv1.weight[0].numel())
    assert_variance(bare.conv2.weight, out / bare.conv2.weight[0].numel())
    # A chain of ReLU: He's draw.
    chain = seeded(mlp(64, 10, nn.ReLU, width=80, depth=3))
    assert_variance(chain.layer1.weight, 1 / 64)
    assert_variance(chain.layer2.weight, 2 / 80)
    assert not chain.layer2.bias.any()


def inputs_of(kind: str) -> Tensor:
    return {
        "residual_mlp": torch.randn(4, 64),
        "resnet": torch.randn(4, 1, 8, 8),
        "gpt": torch.randint(0, 256, (4, 9)),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("residual_mlp", lambda phi: residual_mlp(64, 10, phi, blocks=3, width=8)),
        ("residual_mlp", lambda phi: residual_mlp(64, 10, phi, blocks=2, width=8, hidden=5, norm="layer")),
        ("residual_mlp", lambda phi: residual_mlp(64, 10, phi, blocks=2, width=8, norm=None, branch_scale="learned")),
        ("resnet", lambda phi: resnet(1, 10, phi, blocks=3, channels=4, padding="circular")),
        ("resnet", lambda phi: resnet(1, 10, phi, blocks=6, channels=4, norm="layer", branch_scale=0.5)),
        ("gpt", lambda phi: gpt(phi, layers=2, width=8, heads=2, hidden=12, context=9)),
        ("gpt", lambda phi: gpt(phi, layers=1, width=8, gated=True, norm="layer", branch_scale="learned")),
    ],
)
@pytest.mark.parametrize("design", [DESIGN, hush.design("gelu", None)], ids=["crelu", "gelu"])
def test_checkpoint_round_trip(kind: str, make, design: hush.Design, tmp_path) -> None:
    model = seeded(make(design)).eval()
    hush.nn.checkpoint.save(model, design, tmp_path / "checkpoint")
    loaded, kept = hush.nn.checkpoint.load(tmp_path)
    x = inputs_of(kind)
    assert kept == design
    assert torch.equal(loaded.eval()(x), model(x))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: residual_mlp(8, 3, nn.ReLU, width=4), "blocks is missing"),
        (lambda: residual_mlp(8, 3, nn.ReLU, width=4, blocks=0), "blocks must be at least 1, got 0"),
        (lambda: residual_mlp(8, 3, nn.ReLU, width=4, blocks=1, norm="batch"), "norm must be 'rms', 'layer' or None"),
        (lambda: residual_mlp(8, 3, nn.ReLU, width=4, blocks=1, branch_scale="1/L"), "branch_scale must be a number"),
        (lambda: residual_mlp(8, 3, nn.ReLU, width=4, blocks=1, branch_scale=0.0), "must be positive and finite"),
        (lambda: residual_mlp(8, 3, nn.ReLU(), width=4, blocks=1), "must be a design, or make a module"),
        (lambda: residual_mlp(8, 3, dict, width=4, blocks=1), "must make a torch module when it is called"),
        (lambda: resnet(1, 3, nn.ReLU, blocks=4, channels=4), "blocks must be a multiple of 3"),
        (lambda: resnet(1, 3, nn.ReLU, blocks=3, channels=4, norm="rms"), "norm must be 'batch', 'layer' or None"),
        (lambda: resnet(1, 3, nn.ReLU, blocks=3, channels=4, padding="same"), "padding must be"),
        (lambda: gpt(nn.ReLU, layers=1, width=9, heads=2), "does not fall into 2 heads"),
        (lambda: gpt(nn.ReLU, layers=1, width=8, norm=None), "norm must be 'rms' or 'layer'"),
        (lambda: draw_by_role_(nn.Linear(2, 2)), "got Linear; hush.init_ looks at any model"),
        (
            lambda: draw_by_role_(residual_mlp(8, 3, lambda: nn.PReLU(), blocks=1, width=4)),
            "one activation of the registry throughout, but it has PReLU",
        ),
    ],
)
def test_bad_values(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()
