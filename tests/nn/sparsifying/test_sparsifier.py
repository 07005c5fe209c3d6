"""hush.sparsify: zeros as asked for, a true report, and a model that is as it was wherever it fails."""

import copy
import json
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush
from hush.nn import FATReLU, ThresholdedGELU, ThresholdedSiLU

KINDS = {"relu": (nn.ReLU, FATReLU), "gelu": (nn.GELU, ThresholdedGELU), "silu": (nn.SiLU, ThresholdedSiLU)}


class Gated(nn.Module):
    """SwiGLU on a residual stream, with a dropout and a BatchNorm beside it."""

    def __init__(self, width: int = 32, hidden: int = 96) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.gate, self.up = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.act, self.drop, self.down = nn.SiLU(), nn.Dropout(0.5), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(self.drop(self.act(self.gate(y)) * self.up(y)))


def chain(act: type[nn.Module] = nn.GELU, depth: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [module for _ in range(depth) for module in (nn.Linear(48, 48), act())]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight, std=0.25)
    return nn.Sequential(*layers, nn.Linear(48, 5))


def data(count: int = 3, size: int = 64, features: int = 48) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, features, generator=generator) for _ in range(count)]


def snapshot(model: nn.Module) -> dict[str, object]:
    """All by which a model could be told from what it was."""
    return {
        "modules": [(name, id(module), module.training) for name, module in model.named_modules()],
        "values": {name: value.clone() for name, value in [*model.named_parameters(), *model.named_buffers()]},
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "random": torch.get_rng_state(),
    }


def assert_same(before: dict[str, object], after: dict[str, object]) -> None:
    assert before["modules"] == after["modules"]
    assert before["hooks"] == after["hooks"]
    assert torch.equal(before["random"], after["random"])
    assert before["values"].keys() == after["values"].keys()
    assert all(torch.equal(value, after["values"][name]) for name, value in before["values"].items())


@pytest.mark.parametrize("sparsity", [0.6, 0.9, 0.98])
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_has_the_zeros_asked_for(kind: str, sparsity: float) -> None:
    was, now = KINDS[kind]
    model, batches = chain(was), data()
    dense = copy.deepcopy(model)
    report = hush.sparsify(model, batches, sparsity)
    assert [type(module) for module in model[1::2]] == [now] * 3
    measured = hush.sparsity(model, batches).layers
    for layer in report.layers:
        assert layer.zeros == pytest.approx(sparsity, abs=0.005)
        assert layer.zeros == pytest.approx(measured[layer.name], abs=1e-12)
        assert (layer.was, layer.target) == (was.__name__, sparsity)
        assert repr(model.get_submodule(layer.name)) == layer.now
    assert torch.equal(model[0].weight, dense[0].weight)


def test_the_errors_are_those_of_the_layers_and_of_the_output() -> None:
    model, batches = chain(nn.GELU, depth=2), data()
    dense = copy.deepcopy(model)
    report = hush.sparsify(model, batches, 0.8)
    x = torch.cat(batches)
    with torch.no_grad():
        h = model[0](x)
        lost, whole = F.gelu(h) - model[1](h), F.gelu(h)
        assert report.layers[0].error == pytest.approx(float(lost.norm() / whole.norm()), rel=1e-5)
        assert report.layers[0].reader == "2"
        wanted = float((model[2](whole) - model[2](model[1](h))).norm() / model[2](whole).norm())
        assert report.layers[0].reader_error == pytest.approx(wanted, rel=1e-4)
        before, after = dense(x).double(), model(x).double()
    assert report.output.relative_error == pytest.approx(float((before - after).norm() / before.norm()), rel=1e-5)
    divergence = F.kl_div(after.log_softmax(-1), before.log_softmax(-1), log_target=True, reduction="batchmean")
    assert report.output.divergence == pytest.approx(float(divergence), rel=1e-5)
    agreement = float((before.argmax(-1) == after.argmax(-1)).double().mean())
    assert report.output.agreement == pytest.approx(agreement)
    assert (report.batches, report.inputs) == (3, 192)
    assert json.loads(report.to_json())["layers"][0]["threshold"] == report.layers[0].threshold
    assert report.mean_zeros == pytest.approx(0.8, abs=0.005)
    assert "GELU → ThresholdedGELU" in str(report)
    assert "Over 192 inputs in 3 batches" in str(report)


def test_of_all_thresholded_forms_it_changes_the_layer_least() -> None:
    """Any other choice of as many values to keep loses more, and so does shrinking them by τ."""
    model, batches = chain(nn.SiLU, depth=1), data()
    layer = hush.sparsify(model, batches, 0.7).layers[0]
    full = F.silu(model[0](torch.cat(batches))).detach()
    kept = model[1](model[0](torch.cat(batches))).detach()
    shrunk = F.softshrink(full, layer.threshold)
    largest = full.flatten().topk(int((kept != 0).sum())).indices  # by value, as a threshold on h would
    one_sided = torch.zeros(full.numel()).index_copy(0, largest, full.flatten()[largest]).view_as(full)
    ours = float((full - kept).norm())
    assert ours <= float((full - one_sided).norm())
    assert ours < 0.8 * float((full - shrunk).norm())


def test_targets_by_name_and_what_is_left() -> None:
    model = nn.Sequential(*chain(nn.ReLU), nn.Mish(), nn.Linear(5, 5), nn.LeakyReLU())
    report = hush.sparsify(model, data(), {"1": 0.7, "3": 0.9})
    assert [(layer.name, layer.target) for layer in report.layers] == [("1", 0.7), ("3", 0.9)]
    assert [round(layer.zeros, 2) for layer in report.layers] == [0.7, 0.9]
    reasons = {entry.name: entry.reason for entry in report.left}
    assert reasons["5"] == "no pattern of sparsity= matches it"
    assert reasons["7"] == reasons["9"] == "it computes neither ReLU nor GELU nor SiLU"
    assert type(model[5]) is nn.ReLU
    assert "Left alone:" in str(report)


def test_gates_dropout_and_running_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 32), Gated(), Gated()).train()
    model[2].eval()
    before = snapshot(model)
    report = hush.sparsify(model, data(), 0.9)
    after = snapshot(model)
    assert torch.equal(before["random"], after["random"])
    assert all(torch.equal(value, after["values"][name]) for name, value in before["values"].items())
    assert before["hooks"] == after["hooks"]
    assert [module.training for module in (model, model[1].act, model[2].act)] == [True, True, False]
    assert [layer.reader for layer in report.layers] == ["", ""]  # a product lies between
    assert report.mean_zeros == pytest.approx(0.9, abs=0.005)


def test_the_reader_behind_a_dropout_is_found() -> None:
    model = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 4))
    layer = hush.sparsify(model, data(), 0.9).layers[0]
    assert layer.reader == "3"
    assert 0.0 < layer.reader_error < 1.5


class Functional(nn.Module):
    """One activation in an attribute, one applied by the forward itself, one module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, 4)
        self.act, self.twice = F.gelu, nn.ReLU()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.twice(self.second(self.twice(self.first(x))))
        return {"ids": torch.arange(3), "logits": self.third(F.silu(self.act(y)))}


def test_functions_in_attributes_and_in_forwards() -> None:
    model = Functional()
    report = hush.sparsify(model, [{"x": x} for x in data()], 0.8)
    assert {layer.name: layer.was for layer in report.layers} == {"twice": "ReLU", "act": "the function gelu"}
    assert isinstance(model.act, ThresholdedGELU)
    assert [(use.function, use.place) for use in report.functions] == [("silu", "")]
    assert "called 2 times, with one threshold for all" in str(report)
    assert report.output.divergence is not None
    assert pickle.loads(pickle.dumps(model)).act.threshold == model.act.threshold


def test_torchs_encoder_layers_lose_their_fused_path() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(48, 2, 96, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(4, 7, 48)
    report = hush.sparsify(model, x, 0.9)
    assert [layer.reader for layer in report.layers] == ["layers.0.linear2", "layers.1.linear2"]
    with torch.no_grad():
        fast = model(x)
        model.layers[0].linear1.register_forward_hook(lambda *_: None)  # no fused path with it
        assert torch.equal(fast, model(x))
    assert report.output.relative_error > 1e-4


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_constant_layers_are_never_silenced(value: float) -> None:
    model = nn.Sequential(nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.constant_(model[0].bias, value)
    report = hush.sparsify(model, data(), 0.9)
    assert model[1].threshold == 0.0
    wanted = "it gives out nothing but zeros" if value == 0.0 else "its values are alike: no threshold comes nearer"
    assert report.layers[0].note == wanted


def test_zeros_that_are_there_already_stay() -> None:
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 2))
    nn.init.constant_(model[0].bias, -1.0)
    dense = copy.deepcopy(model)
    report = hush.sparsify(model, data(), 0.5)
    assert model[1].threshold == 0.0
    assert report.layers[0].note == "it had more zeros already"
    assert torch.equal(model(data()[0]), dense(data()[0]))


def test_again_at_a_higher_and_at_a_lower_sparsity() -> None:
    model = chain(nn.GELU)
    hush.sparsify(model, data(), 0.8)
    again = hush.sparsify(model, data(), 0.95)
    assert [round(layer.zeros, 2) for layer in again.layers] == [0.95] * 3
    assert again.layers[0].was == "ThresholdedGELU"
    thresholds = [module.threshold for module in model[1::2]]
    hush.sparsify(model, data(), 0.6)  # what is silent already was so in the model that is to be kept
    assert [module.threshold for module in model[1::2]] == thresholds


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    model = chain(nn.GELU).to(dtype)
    report = hush.sparsify(model, [x.to(dtype) for x in data()], 0.9)
    assert [layer.zeros for layer in report.layers] == pytest.approx([0.9] * 3, abs=0.01)


# ------------------------------------------------------------------------------------------------ failing, unchanged


class Failing(nn.Module):
    """Its forward fails at the n-th call."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return x


@pytest.mark.parametrize("calls", [1, 2, 4, 7, 11])
def test_a_failure_half_way_leaves_the_model_as_it_was(calls: int) -> None:
    model = nn.Sequential(Failing(calls), *chain(nn.GELU), nn.BatchNorm1d(5))
    before = snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        hush.sparsify(model, data(), 0.9)
    assert_same(before, snapshot(model))


def test_a_function_in_an_attribute_comes_back() -> None:
    model = Functional()
    model.third = nn.Sequential(Failing(6), model.third)
    with pytest.raises(KeyboardInterrupt):
        hush.sparsify(model, data(), 0.8)
    assert model.act is F.gelu
    assert "act" not in dict(model.named_children())
    assert isinstance(model.twice, nn.ReLU)


@pytest.mark.parametrize(
    ("model", "batches", "options", "words"),
    [
        (nn.Sequential(nn.Linear(48, 4)), None, {}, "nothing to sparsify in Sequential: it holds no activation"),
        (
            nn.Sequential(nn.Linear(48, 4), nn.Tanh()),
            None,
            {},
            "nothing to sparsify in Sequential: what it has was left",
        ),
        (
            nn.Sequential(nn.Linear(48, 4), nn.Mish()),
            None,
            {},
            "Mish at '1': it computes neither ReLU nor GELU nor SiLU",
        ),
        (chain(), None, {"sparsity": 1.0}, "the sparsity is a share of zeros between 0 and 1, got 1.0"),
        (chain(), None, {"sparsity": {"blocks.*": 0.9}}, r"'blocks.\*' matches no activation of the model; it has '1'"),
        (chain(), None, {"skip": "head"}, "skip='head' matches no activation"),
        (chain(), None, {"max_batches": 0}, "max_batches must be a whole number of batches, at least 1, got 0"),
        (chain(), [torch.randn(4, 7)], {}, "Sequential does not run on the first batch: mat1 and mat2"),
        (chain(), [torch.full((4, 48), float("nan"))], {}, "what '1', '3', '5' gives out on these batches is NaN"),
        (chain(), [], {}, "batches gave nothing"),
    ],
)
def test_refusals(model: nn.Module, batches: object, options: dict, words: str) -> None:
    before = snapshot(model)
    with pytest.raises(ValueError, match=words):
        hush.sparsify(model, data() if batches is None else batches, **options)
    assert_same(before, snapshot(model))


def test_what_no_batch_runs() -> None:
    model = chain()
    model.aside = nn.Sequential(nn.Linear(3, 3), nn.GELU())
    model.forward = lambda x: nn.Sequential(*list(model)[:-1])(x)
    report = hush.sparsify(model, data(), 0.9)
    assert report.layers[-1].note == "these batches never ran it"
    assert model.aside[1].threshold == 0.0
    idle = nn.Sequential(nn.Linear(48, 4), nn.GELU())
    idle.forward = lambda x: idle[0](x)
    with pytest.raises(ValueError, match="none of '1' ran on these batches"):
        hush.sparsify(idle, data(), 0.9)
    assert type(idle[1]) is nn.GELU


# ------------------------------------------------------------------------------------------------ what comes after


def tune(model: nn.Module, steps: int, seed: int = 3, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(64, 48, generator=generator)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_held_and_resumed_bit_for_bit(kind: str) -> None:
    def fresh() -> nn.Sequential:
        return chain(KINDS[kind][0])

    model = fresh()
    hush.sparsify(model, data(), 0.9)
    first = [module.threshold for module in model[1::2]]
    hold = hush.hold(model, 0.9)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    tune(model, 5, optimizer=optimizer)
    saved = copy.deepcopy(model.state_dict())
    tune(model, 5, seed=4, optimizer=optimizer)
    assert [module.threshold for module in model[1::2]] != first
    assert [layer.zeros for layer in hold.report().layers] == pytest.approx([0.9] * 3, abs=0.03)
    # A new process: the forms without measuring, then the hold, then the file.
    again = fresh()
    report = hush.sparsify(again, None)
    assert (report.output, report.layers[0].zeros) == (None, None)
    x = data()[0]
    assert torch.allclose(again(x), fresh()(x), atol=1e-6)
    hush.hold(again, 0.9)
    again.load_state_dict(saved)
    tune(again, 5, seed=4)
    assert [m.threshold for m in again[1::2]] == [m.threshold for m in model[1::2]]
    assert torch.equal(again.eval()(x), model.eval()(x))


def test_a_held_model_is_let_go_first() -> None:
    model = chain()
    hush.sparsify(model, data(), 0.9)
    hold = hush.hold(model, 0.9)
    with pytest.raises(ValueError, match="'1', '3', '5' is held; let go first"):
        hush.sparsify(model, data(), 0.95)
    hold.remove()
    assert hush.sparsify(model, data(), 0.95).mean_zeros == pytest.approx(0.95, abs=0.005)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_afterwards_held_and_not() -> None:
    model = chain(nn.GELU)
    hush.sparsify(model, data(), 0.9)
    compiled, x = torch.compile(model, backend="eager"), data()[0]
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
    hold = hush.hold(model, 0.9)
    tune(compiled, 4)
    assert min(layer.moves for layer in hold.report().layers) == 4
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
    assert torch.equal(compiled(x) == 0, model(x) == 0)


def test_accelerated_afterwards() -> None:
    model = chain(nn.ReLU)
    hush.sparsify(model, data(), 0.9)
    wanted = model(data()[0])
    hush.sparse.accelerate(model)
    assert torch.allclose(model(data()[0]), wanted, atol=1e-5)


def test_activations_that_worked_in_place_are_told() -> None:
    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = nn.Linear(48, 48), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            h = self.layer(x)
            return self.act(h) + h

    report = hush.sparsify(Shortcut(), data(), 0.9)
    assert "worked in place" in str(report)
