"""The paper's story at initialisation, models nobody here wrote, no trace left, and everything that is refused."""

import json
import math
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import hush
from hush.diagnose.arguments import read_inputs
from hush.diagnose.measure import measure_model
from tests.helpers import ResNet, Transformer, assert_left_as_it_was, digits, snapshot
from tests.nn.architectures import NO_CHAINS, UsedTwice, example

DESIGN = hush.design("crelu", 0.85, v_prime=0.7, width=100, depth=12)


def network(design: hush.Design, seed: int = 0) -> tuple[nn.Sequential, Tensor]:
    model = hush.nn.mlp(64, 10, design)
    x = digits(48, design.input_variance)[0]
    hush.init_(model, design, x, generator=torch.Generator().manual_seed(seed))
    return model, x


@cache
def small() -> hush.diagnose.Diagnosis:
    model, x = network(DESIGN)
    return hush.diagnose(model, x, design=DESIGN)


@pytest.mark.parametrize(
    ("name", "sparsity", "seed", "stays"),
    [("crelu", 0.85, 0, True), ("shifted_relu", 0.7, 2, False), ("soft_threshold", 0.5, 0, False)],
)
def test_the_papers_story_at_initialisation(name: str, sparsity: float, seed: int, stays: bool) -> None:
    design = hush.design(name, sparsity, width=300, depth=100)
    model, x = network(design, seed)
    diagnosis = hush.diagnose(model, x, design=design)
    assert (diagnosis.first_outside is None) == stays
    assert diagnosis.trains == stays
    if stays:
        assert "q stays inside its band from the first layer to the last of 100" in diagnosis.verdict
        assert diagnosis.verdict.endswith("it should train.")
        assert abs(diagnosis.sparsity - sparsity) < 0.015
    else:
        assert f"q leaves its band at layer {diagnosis.first_outside.index} of 100" in diagnosis.verdict
        assert diagnosis.verdict.endswith("it will not train.")
        assert f">{diagnosis.first_outside.index}" in str(diagnosis)


def test_figures_against_plain_torch() -> None:
    """Every figure of a layer, computed here from kept activations."""
    model, x = network(DESIGN)
    diagnosis = hush.diagnose(model, x, chunk=17)
    h = x.double()
    reference = hush.nn.mlp(64, 10, DESIGN).double()
    reference.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    layer = 0
    for name, module in reference.named_children():
        before, h = h, module(h).detach()
        if not name.startswith("phi"):
            continue
        row = diagnosis.layers[layer]
        layer += 1
        q = before.square().mean(1)
        assert math.isclose(row.q, float(q.quantile(0.5)), rel_tol=1e-4)
        assert math.isclose(row.sparsity, float((h == 0).double().mean()), abs_tol=1e-3)
        assert math.isclose(row.saturated, float((h == DESIGN.clip).double().mean()), abs_tol=1e-3)
        assert math.isclose(row.dead, float((h == 0).all(0).double().mean()), abs_tol=0.011)
        assert row.units == 100
    assert layer == len(diagnosis.layers) == 12


def test_correlation_and_gradient_against_plain_torch() -> None:
    model, x = network(DESIGN)
    targets = digits(48)[1]
    diagnosis = hush.diagnose(model, x, targets)
    hidden = []
    h = x
    for module in model:
        if isinstance(module, hush.nn.CReLU):
            h.retain_grad()
            hidden.append(h)
        h = module(h)
    nn.functional.cross_entropy(h, targets, reduction="sum").backward()
    for row, h in zip(diagnosis.layers, hidden, strict=True):
        rows = nn.functional.normalize(h.detach().double())
        cosines = rows @ rows.T
        mean = (cosines.sum() - cosines.trace()) / (48 * 47)
        assert math.isclose(row.correlation, float(mean), abs_tol=1e-5)
        squares = h.grad.double().square().sum(1)
        assert math.isclose(row.gradient, float(squares.mean().sqrt()), rel_tol=1e-4)
        gain = (squares / hidden[-1].grad.double().square().sum(1)).log10()
        assert math.isclose(row.gain_log10, float(gain.quantile(0.5)), abs_tol=1e-3)


def test_chunks_do_not_matter() -> None:
    model, x = network(DESIGN)
    whole, parts = hush.diagnose(model, x, chunk=48), hush.diagnose(model, x, chunk=11)
    for a, b in zip(whole.layers, parts.layers, strict=True):
        assert math.isclose(a.q, b.q, rel_tol=1e-5)
        assert a.dead == b.dead


def test_no_activation_is_kept() -> None:
    """What the readings hold grows with inputs and units, not with their product."""
    model, x = network(DESIGN)
    readings = measure_model(model, read_inputs(model, x), None, None, 16).readings
    for reading in readings:
        held = sum(t.numel() for t in [*reading.q, *reading.squared_gradients, *reading.cosines, reading._alive])
        assert held <= 2 * len(x) + 16 * 15 // 2 + reading.units


def test_leaves_no_trace() -> None:
    model = ResNet(nn.ReLU(inplace=True)).train()
    before, state = snapshot(model), torch.random.get_rng_state()
    hush.diagnose(model, torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    assert_left_as_it_was(model, before)
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_hooks_are_removed_when_the_model_fails() -> None:
    model, _ = network(DESIGN)
    before = snapshot(model)
    with pytest.raises(RuntimeError):
        hush.diagnose(model, torch.randn(4, 65))
    assert_left_as_it_was(model, before)


def test_resnet_is_read_layer_by_layer() -> None:
    diagnosis = hush.diagnose(ResNet(nn.ReLU()), torch.randn(8, 3, 8, 8))
    # One module called four times is four layers.
    assert [layer.name for layer in diagnosis.layers] == [f"blocks.0.phi{n}" for n in ("", "#2", "#3", "#4")]
    assert (diagnosis.layers[0].units, diagnosis.layers[0].positions) == (32, 64)
    assert [layer.reads for layer in diagnosis.layers[:3]] == [
        "stem Conv2d",
        "blocks.0.conv1 Conv2d",
        "blocks.0.conv2 Conv2d + 1 more",
    ]
    assert [point.name for point in diagnosis.stream] == ["blocks.0", "blocks.1"]
    assert diagnosis.batch_statistics
    assert "BatchNorm used the statistics of each chunk of inputs, as in training" in diagnosis.verdict


@pytest.mark.parametrize("phi", [DESIGN.module(), nn.GELU()], ids=str)
def test_transformer_on_tokens(phi: nn.Module) -> None:
    diagnosis = hush.diagnose(Transformer(phi), torch.randint(0, 50, (8, 5)))
    assert len(diagnosis.layers) == 1
    assert (diagnosis.layers[0].units, diagnosis.layers[0].positions) == (128, 5)
    assert diagnosis.layers[0].q_band is not None
    assert not diagnosis.no_prediction


@pytest.mark.parametrize(("build", "seen"), NO_CHAINS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_no_chain_has_a_prediction_too(build, seen: str) -> None:
    model = build(nn.ReLU())
    diagnosis = hush.diagnose(model, example(model, 16))
    assert not diagnosis.no_prediction
    assert diagnosis.trains is not None
    assert diagnosis.block_verdict is not None
    for layer in diagnosis.layers:
        assert layer.q_band[0] <= layer.q_predicted <= layer.q_band[1]
        # Sixteen units: a rough figure, which a wrong rule would still miss.
        assert 0.3 < layer.q / layer.q_predicted < 3.0
    known = build.__name__ not in ("Assigned", "Recurrent")
    assert ("There is no rule for" in diagnosis.verdict) == (not known)


def test_what_there_is_no_rule_for_is_named_and_started_from_anew() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(64, 64) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.a(x))
            x = torch.cumsum(x, 1)
            return self.c(torch.relu(self.b(x)))

    torch.manual_seed(0)
    diagnosis = hush.diagnose(Odd(), X)
    assert diagnosis.restarts == ("cumsum in 'Odd'",)
    assert "There is no rule for cumsum in 'Odd': behind it the prediction starts again" in diagnosis.verdict
    assert [layer.leaves_band for layer in diagnosis.layers] == [False, False]


@pytest.mark.parametrize(("scale", "words"), [(4.0, "it explodes"), (0.05, "it vanishes"), (1.0, "It should train")])
def test_gradients_of_a_residual_network_are_judged(scale: float, words: str) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(32, 32, bias=False) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            # The skip goes around one layer of three, so that a wrong scale of the others shows.
            x = self.a(x)
            return torch.relu(self.b(x)) + self.c(x)

    model = nn.Sequential(*(Block() for _ in range(8)), nn.Linear(32, 4))
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, scale * (0.66 / 32) ** 0.5, generator=generator)
    diagnosis = hush.diagnose(model, torch.randn(16, 32, generator=torch.Generator().manual_seed(0)))
    assert words in diagnosis.verdict
    assert diagnosis.trains == (scale == 1.0)
    for layer in diagnosis.layers:
        assert abs(layer.gain_log10 - layer.gain_log10_predicted) < 0.3


@pytest.mark.parametrize(
    "model",
    [
        UsedTwice(nn.ReLU()),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 16), nn.ReLU()),
        nn.Sequential(nn.Linear(16, 16), nn.Mish(), nn.Linear(16, 16), nn.Mish()),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Hardtanh()),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.AvgPool1d(1), nn.Linear(16, 16), nn.ReLU()),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
    ],
    ids=["used twice", "two layers in a row", "Mish", "two activations", "pooled", "one activation"],
)
def test_what_the_theory_of_chains_leaves_out_is_predicted_function_by_function(model: nn.Module) -> None:
    diagnosis = hush.diagnose(model, example(model, 16))
    assert not diagnosis.no_prediction
    assert diagnosis.block_verdict is not None
    assert all(layer.q_band is not None for layer in diagnosis.layers)


def test_a_head_of_zeros_is_no_failure() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
    nn.init.zeros_(model[-1].weight)
    diagnosis = hush.diagnose(model, X)
    assert diagnosis.trains is None
    assert "a gradient at the activations, which a head of zeros gives none" in diagnosis.verdict


def test_several_heads_do_not_hinder_a_prediction() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = hush.nn.mlp(64, 100, DESIGN)
            self.body.append(DESIGN.module())
            self.one, self.two = nn.Linear(100, 3), nn.Linear(100, 5)

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            h = self.body(x)
            return self.one(h), {"two": torch.sigmoid(self.two(h))}

    model, (x, labels) = Heads(), digits(32)
    hush.init_(model, DESIGN, x, generator=torch.Generator().manual_seed(0))
    assert not hush.diagnose(model, x).no_prediction
    by_loss = hush.diagnose(model, x, labels, loss=lambda out, y: out[0].sum() + (out[1]["two"].sum(1) * y).sum())
    assert by_loss.gradient_of == "the loss"


def test_the_map_of_positions_is_part_of_the_prediction() -> None:
    """The same convolutions on larger images: their gradient, a sum over more positions, is steadier."""
    design = hush.design("crelu", 0.8, v_prime=0.6, width=32, depth=8)
    widths = []
    for size in (2, 8):
        model = hush.nn.cnn(1, 10, design)
        x = torch.randn(16, 1, size, size, generator=torch.Generator().manual_seed(0))
        hush.init_(model, design, x, generator=torch.Generator().manual_seed(0))
        first = hush.diagnose(model, x, design=design).layers[0]
        assert first.positions == size**2
        widths.append(first.gain_log10_band[1] - first.gain_log10_band[0])
    assert widths[1] < 0.8 * widths[0]


@pytest.mark.parametrize(
    ("phi", "sparsity", "inside"),
    [
        (nn.ReLU(), 0.5, 5),
        (nn.Softshrink(0.5), 0.38, 1),  # with these weights its signal dies out, and no band is meant for that
        (nn.Hardtanh(), 0.0, 5),
        (nn.LeakyReLU(0.1), 0.0, 5),
        (nn.GELU(), 0.0, 5),
        (nn.SiLU(), 0.0, 5),
        (nn.Tanh(), 0.0, 5),
    ],
)
def test_torch_activations_have_predictions(phi: nn.Module, sparsity: float, inside: int) -> None:
    layers = [module for _ in range(5) for module in (nn.Linear(64, 64), phi)]
    model = nn.Sequential(*layers, nn.Linear(64, 3))
    generator = torch.Generator().manual_seed(1)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 1.0 / 8, generator=generator)
            nn.init.zeros_(module.bias)
    diagnosis = hush.diagnose(model, torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    assert not diagnosis.no_prediction
    assert abs(diagnosis.layers[0].sparsity - sparsity) < 0.05
    assert all(layer.inside > 0.8 for layer in diagnosis.layers[:inside])


def test_wrong_initialisation_leaves_the_band_of_the_design() -> None:
    model, x = network(DESIGN)
    with torch.no_grad():
        model.layer6.weight.mul_(3.0)
    diagnosis = hush.diagnose(model, x, design=DESIGN)
    assert diagnosis.first_outside.index == 6
    assert hush.diagnose(model, 5 * x, design=DESIGN).first_outside.index >= 1


@pytest.mark.parametrize("padding", ["circular", "zeros"])
def test_cnn_has_a_prediction(padding: str) -> None:
    design = hush.design("crelu", 0.8, v_prime=0.6, width=64, depth=8)
    model = hush.nn.cnn(1, 10, design, padding=padding)
    x = digits(16)[0].view(-1, 1, 8, 8)
    hush.init_(model, design, x, weights="delta_orthogonal", generator=torch.Generator().manual_seed(0))
    diagnosis = hush.diagnose(model, x, design=design)
    assert diagnosis.layers[0].units == 64
    assert diagnosis.layers[-1].gain_log10_band is not None
    assert ("Zero padding takes variance away" in diagnosis.verdict) == (padding == "zeros")
    # The odds of a design are for an MLP unless it was told otherwise.
    assert "The odds of the design are for positions=1" in diagnosis.verdict
    told = hush.design("crelu", 0.8, v_prime=0.6, width=64, depth=8, positions=64)
    assert "The odds of the design" not in hush.diagnose(model, x, design=told).verdict


def test_prints_as_a_table() -> None:
    text = str(small())
    assert "layer  name" in text
    assert "12  phi12" in text
    assert len(small().table(every=4).splitlines()) == 5  # header, 1, 5, 9 and the last
    assert small().verdict in text


def test_json_is_strict() -> None:
    fields = json.loads(small().to_json(), parse_constant=pytest.fail)
    assert fields["layers"][0]["name"] == "phi1"
    assert fields["first_outside"] is None
    assert math.isclose(fields["sparsity"], small().sparsity)


def test_dataframe() -> None:
    frame = small().to_dataframe()
    assert list(frame.index) == list(range(1, 13))
    assert (frame["q_low"] < frame["q_high"]).all()


def test_plot(tmp_path) -> None:
    figure = small().plot(tmp_path / "out.png")
    assert len(figure.axes) == 4
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_single_input_has_no_correlation() -> None:
    model, x = network(DESIGN)
    diagnosis = hush.diagnose(model, x[:1])
    assert diagnosis.layers[0].correlation is None
    assert "phi1" in str(diagnosis)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_precisions(dtype: torch.dtype) -> None:
    model, x = network(DESIGN)
    diagnosis = hush.diagnose(model.to(dtype), x.to(dtype))
    assert not diagnosis.no_prediction
    for seen, expected in zip(diagnosis.layers, small().layers, strict=True):
        assert abs(seen.sparsity - expected.sparsity) < 0.02
        assert abs(seen.saturated - expected.saturated) < 0.01
        assert math.isclose(seen.q, expected.q, rel_tol=0.05)
        assert abs(seen.correlation - expected.correlation) < 0.01
        assert math.isclose(seen.gain_log10, expected.gain_log10, abs_tol=0.3)


def test_an_accelerated_model_gives_the_same_diagnosis() -> None:
    model, x = network(DESIGN)
    hush.sparse.accelerate(model)
    diagnosis = hush.diagnose(model, x, design=DESIGN)
    assert (diagnosis.table(), diagnosis.verdict) == (small().table(), small().verdict)


def test_a_network_that_overflows_is_said_to_explode() -> None:
    layers = [module for _ in range(12) for module in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 4))
    with torch.no_grad():
        for module in model:
            if isinstance(module, nn.Linear):
                module.weight.normal_(0.0, 3e3, generator=torch.Generator().manual_seed(0))
    diagnosis = hush.diagnose(model, torch.randn(8, 64, generator=torch.Generator().manual_seed(0)))
    assert diagnosis.explode == 1.0
    assert "will not train" in diagnosis.verdict
    json.loads(diagnosis.to_json(), parse_constant=pytest.fail)
    diagnosis.plot()


def test_weights_that_are_not_finite() -> None:
    model = chain(nn.ReLU())
    model.insert(2, nn.Linear(30, 30))
    model.insert(3, nn.ReLU())
    with torch.no_grad():
        model[2].weight[0, 0] = math.nan
    diagnosis = hush.diagnose(model, X)
    assert diagnosis.no_prediction == "the weights of '2' are not finite"
    assert "From '3' on the activations are no longer finite." in diagnosis.verdict
    assert "explodes" in diagnosis.verdict


@pytest.mark.parametrize("how", ["tuple", "dict", "object"])
def test_whatever_the_model_gives_out(how: str) -> None:
    class Wrapped(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> object:
            y = self.model(x)
            return {"tuple": (y, None), "dict": {"logits": y}, "object": SimpleNamespace(logits=y)}[how]

    model, x = network(DESIGN)
    plain, wrapped = hush.diagnose(model, x), hush.diagnose(Wrapped(model), x)
    assert [layer.gain_log10 for layer in wrapped.layers] == [layer.gain_log10 for layer in plain.layers]
    assert hush.init_(Wrapped(model), DESIGN, x, output="zero").drawn[-1].role == "output"
    assert not model.head.weight.any()


@pytest.mark.parametrize(
    "around",
    [torch.no_grad, torch.inference_mode, lambda: torch.device("meta"), lambda: torch.compiler.set_stance("default")],
)
def test_whatever_surrounds_it(around) -> None:
    model, x = network(DESIGN)
    with around():
        diagnosis = hush.diagnose(model, x, design=DESIGN)
    assert str(diagnosis) == str(small())


def test_a_compiled_model_is_read_uncompiled() -> None:
    model, x = network(DESIGN)
    compiled = torch.compile(model, backend=lambda *_: pytest.fail("it was compiled"))
    diagnosis = hush.diagnose(compiled, x, design=DESIGN)
    assert diagnosis.verdict == small().verdict.replace("phi", "_orig_mod.phi")


def test_rows_and_axes_other_than_the_batch() -> None:
    """Tokens folded into the batch, and a batch on the second axis inside the model, are told apart again."""

    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.phi = nn.Linear(16, 8), nn.Linear(8, 3), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            h = self.phi(self.a(x.flatten(0, 1))).view(*x.shape[:2], 8)
            return self.b(self.phi(h.transpose(0, 1)).transpose(0, 1))

    x = torch.randn(6, 5, 16, generator=torch.Generator().manual_seed(0))
    model = Folded()
    diagnosis = hush.diagnose(model, x, chunk=4)
    h = model.a(x).detach()
    assert math.isclose(diagnosis.layers[0].q, float(h.square().mean((1, 2)).quantile(0.5)), rel_tol=1e-5)
    assert math.isclose(diagnosis.layers[1].q, float(h.relu().square().mean((1, 2)).quantile(0.5)), rel_tol=1e-5)
    assert [layer.positions for layer in diagnosis.layers] == [5, 5]


def chain(phi: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 30), phi, nn.Linear(30, 10))


X = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))


class Odd(nn.Module):
    """Gives out something that is no tensor, after running its layers; or its input, without running them."""

    def __init__(self, given: object) -> None:
        super().__init__()
        self.body, self.given = chain(nn.ReLU()), given

    def forward(self, x: Tensor) -> object:
        return x if self.given is None else (self.body(x), self.given)[1]


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        (chain(nn.ReLU()), {"inputs": X.double()}, "inputs are torch.float64 and the model computes in torch.float32"),
        (chain(nn.ReLU()), {"inputs": X[:0]}, "the batch is empty: its shape is .0, 64."),
        (chain(nn.ReLU()), {"inputs": X / 0.0}, "the inputs hold 512 values that are NaN or infinite"),
        (chain(nn.ReLU()), {"inputs": torch.zeros(8, 64)}, "the inputs are constant: every value is 0"),
        (nn.Sequential(nn.ReLU()), {"inputs": X}, "has no Linear or Conv layer"),
        (nn.Sequential(nn.Linear(64, 3)), {"inputs": X}, "has no activation to read"),
        (chain(nn.GELU()), {"inputs": X, "design": DESIGN}, "GELU.*but the design is for CReLU"),
        (chain(nn.ReLU()), {"inputs": X, "design": DESIGN}, "the model uses ReLU.*but the design is for CReLU"),
        (chain(nn.ReLU()), {"inputs": X, "targets": torch.zeros(3)}, "8 inputs need 8 targets, got 3"),
        (chain(nn.ReLU()), {"inputs": X, "chunk": 0}, "chunk must be at least 1, got 0"),
        (chain(nn.ReLU()), {"inputs": X, "targets": torch.zeros(8)}, "targets have shape .8,. and the output .8, 10."),
        (chain(nn.ReLU()), {"inputs": X, "targets": torch.full((8,), 10)}, "class numbers from 0 to 9.*from 10 to 10"),
        (chain(nn.ReLU()), {"inputs": X, "targets": torch.zeros(8, 10).long()}, "one for each input"),
        (chain(nn.ReLU()), {"inputs": X, "loss": lambda out, _: out}, "one number .* got a tensor of shape .8, 10."),
        (chain(nn.ReLU()), {"inputs": (X, X[:3])}, "same number of inputs, batch first, got 8, 3"),
        (Odd("text"), {"inputs": X}, "the model gives out str, in which there is no tensor"),
        (Odd(None), {"inputs": X}, "none of the activation modules of Odd ran"),
    ],
)
def test_bad_input(model: nn.Module, arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        hush.diagnose(model, **arguments)


def test_targets_of_other_kinds() -> None:
    model = chain(nn.ReLU())
    values = hush.diagnose(model, X, torch.randn(8, 10))
    own = hush.diagnose(model, X, loss=lambda output, _: output.square().sum())
    assert values.gradient_of == own.gradient_of == "the loss"
    assert all(layer.gradient > 0 for layer in (*values.layers, *own.layers))


def test_dead_network_does_not_break_it() -> None:
    model, x = network(DESIGN)
    with torch.no_grad():
        model.layer5.weight.zero_()
        model.layer5.bias.fill_(-1.0)
    diagnosis = hush.diagnose(model, x, design=DESIGN)
    assert diagnosis.layers[4].dead == 1.0
    assert diagnosis.vanish == 1.0
    assert "hardly learn" in diagnosis.verdict
    json.loads(diagnosis.to_json(), parse_constant=pytest.fail)


def test_inputs_that_become_indistinguishable_are_noticed() -> None:
    """The low clip loses the inputs, a ReLU of the same size does not."""
    for name, arguments, lost in (
        ("crelu", {"sparsity": 0.9, "v_prime": 0.3}, True),
        ("shifted_relu", {"sparsity": 0.5}, False),
    ):
        design = hush.design(name, width=100, depth=60, **arguments)
        model, x = network(design)
        diagnosis = hush.diagnose(model, x, design=design)
        assert diagnosis.predicted_indistinguishable is not None
        assert (diagnosis.predicted_indistinguishable > 0.5) is lost
        if lost:
            assert diagnosis.trains is False
            assert json.loads(diagnosis.to_json())["predicted_indistinguishable"] > 0.5
