"""init_ on the paper's networks, on models nobody here wrote, and on everything it must refuse."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import hush
from tests.helpers import ResNet, Transformer, assert_on_edge_of_chaos, assert_variance

DESIGN = hush.design("crelu", 0.85, v_prime=0.7, width=100, depth=5)


def small() -> nn.Sequential:
    return hush.nn.mlp(64, 10, DESIGN)


def drawn(report: hush.nn.InitReport) -> dict[str, hush.nn.Drawn]:
    return {entry.name: entry for entry in report.drawn}


def reasons(report: hush.nn.InitReport) -> dict[str, str]:
    return {entry.name: entry.reason for entry in report.left_alone}


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_mlp(weights: str, generator: torch.Generator) -> None:
    model = small()
    report = hush.init_(model, DESIGN, weights=weights, generator=generator)
    assert_variance(model.layer1.weight, 1 / 64)
    assert not model.layer1.bias.any()
    for layer in (model.layer2, model.layer5, model.head):
        assert_on_edge_of_chaos(layer, DESIGN)
    assert report.first == ("layer1.weight",)
    assert len(report.drawn) == 12
    assert not report.left_alone
    assert math.isclose(drawn(report)["layer2.weight"].std, DESIGN.sigma_w / 10)
    assert math.isclose(drawn(report)["layer2.bias"].std, DESIGN.sigma_b)


def test_first_layer_preserves_the_variance(generator: torch.Generator) -> None:
    model = hush.nn.mlp(64, 10, DESIGN, width=2000, depth=2)
    hush.init_(model, DESIGN, generator=generator)
    x = torch.randn(8, 64) * torch.logspace(-1, 1, 8)[:, None]
    ratio = model.layer1(x).square().mean(1) / x.square().mean(1)
    torch.testing.assert_close(ratio, torch.ones(8), atol=0.2, rtol=0.0)


@pytest.mark.parametrize(
    ("output", "weight", "bias"), [("edge", None, None), ("preserve", 1 / 100, 0.0), ("zero", 0.0, 0.0)]
)
def test_output_rule(output: str, weight: float | None, bias: float | None, generator: torch.Generator) -> None:
    model = small()
    report = drawn(hush.init_(model, DESIGN, output=output, generator=generator))
    weight = DESIGN.sigma_w2 / 100 if weight is None else weight
    bias = DESIGN.sigma_b2 if bias is None else bias
    assert math.isclose(report["head.weight"].std ** 2, weight, abs_tol=1e-15)
    assert math.isclose(report["head.bias"].std ** 2, bias, abs_tol=1e-15)
    if weight:
        assert_variance(model.head.weight, weight)
    else:
        assert not model.head.weight.any()


def test_output_kept() -> None:
    model = small()
    before = model.head.weight.clone()
    report = hush.init_(model, DESIGN, output="keep")
    assert torch.equal(model.head.weight, before)
    assert reasons(report)["head.weight"] == "an output layer, and output='keep'"


def test_same_generator_same_model() -> None:
    models = [small(), small(), small()]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        hush.init_(model, DESIGN, torch.randn(2, 64), generator=torch.Generator().manual_seed(seed))
    a, b, c = (model.state_dict() for model in models)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["layer2.weight"], c["layer2.weight"])


class Backwards(nn.Module):
    """Registered from the last layer to the first, with a branch that is never run."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(30, 5)
        self.unused = nn.Linear(3, 3)
        self.b = nn.Linear(30, 30)
        self.a = nn.Linear(20, 30)
        self.phi = DESIGN.module()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.phi(self.b(self.phi(self.a(x)))))


def test_data_flow_decides_when_it_is_known() -> None:
    model = Backwards()
    known = hush.init_(model, DESIGN, torch.randn(2, 20))
    assert known.order == "data flow"
    assert known.first == ("a.weight",)
    assert drawn(known)["head.weight"].role == "output"
    assert "Did not run on the example, drawn as hidden layers: unused." in str(known)
    with pytest.raises(ValueError, match=r"have a forward of their own: Backwards\. Pass example=x"):
        hush.init_(model, DESIGN)
    told = hush.init_(model, DESIGN, structure="chain")
    assert told.order == "registration"
    assert told.first == ("head.weight",)
    assert "in order of registration, because structure='chain' says so; no example was run" in str(told)


def test_resnet_as_a_chain(generator: torch.Generator) -> None:
    model = ResNet(DESIGN.module()).train()
    report = hush.init_(model, DESIGN, torch.randn(2, 3, 8, 8), structure="chain", generator=generator)
    assert "Taken for a chain because structure='chain' says so, but it is none: an add in 'blocks.0'" in str(report)
    assert drawn(report)["blocks.1.conv1.weight"].layer == "Conv2d 3×3, 4 groups"
    assert drawn(report)["blocks.1.conv1.weight"].reads == "blocks.0.conv2 + stem"
    assert report.first == ("stem.weight",)
    assert drawn(report)["head.weight"].role == "output"
    assert_variance(model.stem.weight, 1 / 27)
    for block in model.blocks:
        assert_on_edge_of_chaos(block.conv1, DESIGN)
        assert_on_edge_of_chaos(block.conv2, DESIGN)
    # 32 channels in 4 groups of 8: fan-in 8·9
    assert math.isclose(drawn(report)["blocks.1.conv1.weight"].std ** 2, DESIGN.sigma_w2 / 72)
    assert reasons(report)["blocks.0.norm.weight"] == "BatchNorm2d: a normalisation keeps its own scale"
    assert "Without a bias" in str(report)
    # Tracing ran the model, and left BatchNorm's statistics and every mode alone.
    assert int(model.blocks[0].norm.num_batches_tracked) == 0
    assert all(module.training for module in model.modules())


def test_transformer_as_a_chain(generator: torch.Generator) -> None:
    model = Transformer(DESIGN.module())
    embedding = model.embedding.weight.clone()
    report = hush.init_(model, DESIGN, torch.randint(0, 50, (2, 7)), structure="chain", generator=generator)
    assert set(drawn(report)) == {
        "attention.out_proj.weight",
        "attention.out_proj.bias",
        "mlp.0.weight",
        "mlp.0.bias",
        "mlp.3.weight",
        "mlp.3.bias",
    }
    why = reasons(report)
    assert why["unembed.weight"] == "tied to embedding.weight of Embedding"
    assert why["embedding.weight"] == "Embedding: a table, not a sum over inputs"
    assert why["norm1.weight"].startswith("LayerNorm")
    assert why["attention.in_proj_weight"] == "MultiheadAttention: neither Linear nor a convolution"
    assert torch.equal(model.embedding.weight, embedding)
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert names == set(drawn(report)) | set(why)


def test_tied_layers_are_drawn_once() -> None:
    model = nn.Sequential(nn.Linear(30, 30), DESIGN.module(), nn.Linear(30, 30), DESIGN.module(), nn.Linear(30, 30))
    model[4].weight = model[2].weight
    report = hush.init_(model, DESIGN, torch.randn(2, 30))
    assert "2.weight" in drawn(report)
    assert reasons(report) == {"4.weight": "tied to 2.weight, drawn there"}


def test_a_module_under_two_names() -> None:
    layer = nn.Linear(30, 30)
    model = nn.Sequential(nn.Linear(30, 30), DESIGN.module(), layer, DESIGN.module(), layer)
    assert "4.weight" in reasons(hush.init_(model, DESIGN))


def test_frozen_and_parametrised_weights_are_left_alone() -> None:
    model = small()
    model.layer2.weight.requires_grad_(False)
    parametrizations.weight_norm(model.layer3)
    why = reasons(hush.init_(model, DESIGN))
    assert why["layer2.weight"] == "frozen: requires_grad is False"
    assert "layer3 is parametrised" in why["layer3.parametrizations.weight.original0"]


def test_meta_then_to_empty() -> None:
    with torch.device("meta"):
        model = small()
    with pytest.raises(ValueError, match=r"meta device and holds no values; call model\.to_empty"):
        hush.init_(model, DESIGN)
    model.to_empty(device="cpu")
    expected = small()
    for each in (model, expected):
        hush.init_(each, DESIGN, generator=torch.Generator().manual_seed(3))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_only_the_values_of_parameters_change() -> None:
    """The same parameters as objects, nothing hung on them or on a module, modes and random state as they were."""
    model = small().train()
    model.phi2.eval()
    parameters, state = list(model.parameters()), torch.random.get_rng_state()
    before = {module: dict(vars(module)) for module in model.modules()}
    batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(1))
    hush.init_(model, DESIGN, batch[:4], calibrate=batch, generator=torch.Generator().manual_seed(0))
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(not vars(parameter) and parameter.grad is None for parameter in parameters)
    assert all(vars(module) == before[module] for module in model.modules())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
def test_calibration_brings_q_to_its_target(weights: str, generator: torch.Generator) -> None:
    model = small()
    batch = torch.randn(32, 64, generator=generator)
    report = hush.init_(model, DESIGN, weights=weights, calibrate=batch, generator=generator)
    h = batch
    for name, module in model.named_children():
        h = module(h)
        if name.startswith("layer"):
            assert math.isclose(float(h.detach().square().mean()), DESIGN.q_star, rel_tol=1e-4)
    assert set(report.scales) == {f"layer{i}" for i in range(1, 6)}
    assert math.isclose(drawn(report)["layer2.weight"].std, DESIGN.sigma_w / 10 * report.scales["layer2"])
    assert "Calibrated: 5 layers" in str(report)


def test_report_advises_the_input_scale() -> None:
    unclipped = hush.design("shifted_relu", 0.7)
    model = hush.nn.mlp(64, 10, unclipped, width=30, depth=3)
    x = torch.randn(100, 64)
    report = hush.init_(model, unclipped, x)
    assert report.input_variance == 0.75
    assert "inputs of variance 0.75: below q* = 1" in str(report)
    assert f"the example has {float(x.square().mean()):.3g}" in str(report)


def test_functional_activations_are_pointed_out() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(hush.nn.functional.crelu(self.a(x), 1.0, 1.0))

    text = str(hush.init_(Functional(), DESIGN, torch.randn(2, 5)))
    assert "The function crelu is called in Functional.forward. The design is for CReLU" in text
    bare = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    assert "No activation modules were found" in str(hush.init_(bare, DESIGN, torch.randn(2, 5)))


def test_report_says_what_each_parameter_was_taken_for() -> None:
    model = hush.nn.cnn(3, 10, DESIGN, channels=8, depth=2)
    text = str(hush.init_(model, DESIGN, torch.randn(2, 3, 6, 6)))
    assert "A plain chain, seen by data flow." in text
    assert "layer1.weight  8×3×3×3  Conv2d 3×3  first, reads the input  gaussian, std 0.1925" in text
    assert "layer2.weight  8×8×3×3  Conv2d 3×3  hidden, reads layer1" in text
    assert "head.weight    10×8     Linear      output, reads layer2" in text
    assert "in order of registration" in str(hush.init_(model, DESIGN))


def with_activation(phi: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 30), phi, nn.Linear(30, 10))


OTHER = hush.design("crelu", 0.7, v_prime=0.7)


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        (nn.Sequential(nn.ReLU()), {}, "has no Linear or Conv layer"),
        (nn.Sequential(nn.LazyLinear(5)), {}, "0.weight is lazy and has no shape yet; run the model once"),
        (
            with_activation(nn.GELU()),
            {},
            r"the model uses GELU.* at '1', but the design is for CReLU.*replace it by .* or pass allow=\(GELU,\)",
        ),
        (with_activation(nn.ReLU()), {}, "the model uses ReLU.*but the design is for CReLU"),
        (with_activation(OTHER.module()), {}, "the model uses CReLU.threshold=0.5244.*but the design is for CReLU.thr"),
        (small(), {"weights": "uniform"}, "weights must be one of gaussian, orthogonal, delta_orthogonal"),
        (small(), {"structure": "tree"}, "structure must be 'auto' or 'chain', got 'tree'"),
        (small(), {"output": "same"}, "output must be one of edge, preserve, zero, keep"),
        (small(), {"example": torch.randn(2, 64).double()}, "inputs are torch.float64 and the model computes in"),
        (small(), {"example": torch.zeros(2, 64, dtype=torch.long)}, "inputs are torch.int64 and the model"),
        (small(), {"example": torch.randn(0, 64)}, "the batch is empty: its shape is .0, 64."),
        (small(), {"calibrate": torch.full((2, 64), math.nan)}, "the inputs hold 128 values that are NaN or infinite"),
        (small(), {"calibrate": torch.ones(2, 64)}, "the inputs are constant: every value is 1, their variance is 0"),
        (small(), {"example": [1, 2]}, "inputs must be a tensor or a tuple of tensors"),
    ],
)
def test_bad_input(model: nn.Module, arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        hush.init_(model, DESIGN, **arguments)


def test_other_activations_can_be_allowed() -> None:
    model = nn.Sequential(nn.Linear(64, 30), DESIGN.module(), nn.Linear(30, 10), nn.Tanh())
    assert hush.init_(model, DESIGN, allow=(nn.Tanh,)).first == ("0.weight",)
