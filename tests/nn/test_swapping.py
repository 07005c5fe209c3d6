"""swap_activations: which places it finds, which it leaves, and what the model then computes."""

import copy
import functools
import io
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush
from hush.nn import CReLU, swap_activations

DESIGN = hush.design("crelu", 0.85, v_prime=0.5)


def phi(x: Tensor) -> Tensor:
    return hush.nn.functional.crelu(x, DESIGN.threshold, DESIGN.clip)


class GELUTanh(nn.Module):
    """Another library's: derived from nn.Module alone, and with its function in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.act = functools.partial(F.gelu, approximate="tanh")

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class MyReLU(nn.ReLU):
    pass


class Odd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin()


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.act, self.expand, self.gate = nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 8), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(x))))


class Block(nn.Module):
    """One registered ReLU that is called twice, one function in an attribute, one called by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.relu, self.act_fn = nn.ReLU(inplace=True), functools.partial(F.gelu, approximate="tanh")
        self.gate = SqueezeExcite()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.second(self.relu(self.first(x))))
        return F.silu(x) + self.gate(self.act_fn(y))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(-1))
        self.pooler_act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.pooler_act(x))


def test_a_plain_network_computes_the_designs_activation(generator: torch.Generator) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 7), nn.GELU(), nn.Linear(7, 2)).eval()
    x = torch.randn(5, 6, generator=generator)
    expected = model[4](phi(model[2](phi(model[0](x)))))
    report = swap_activations(model, DESIGN)
    assert torch.equal(model(x), expected)
    assert [s.name for s in report.swapped] == ["1", "3"]
    assert [s.was for s in report.swapped] == ["ReLU", "GELU"]
    assert not model[1].training
    assert model[1] is not model[3]  # each has a threshold of its own
    assert report.left == ()
    assert report.functions is None


@pytest.mark.parametrize("module", [GELUTanh(), MyReLU(), nn.PReLU(), nn.SiLU(), hush.nn.CST(1.0, 2.0)], ids=repr)
def test_kinds(module: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 3), module)
    report = swap_activations(model, DESIGN)
    assert type(model[1]) is CReLU
    assert report.swapped[0].was == type(module).__name__
    assert ("optimizer" in report.swapped[0].note) == isinstance(module, nn.PReLU)


def test_what_is_left_and_why() -> None:
    model = Net()
    report = swap_activations(model, DESIGN, example=torch.randn(2, 8))
    places = [f"blocks.{i}.{attribute}" for i in (0, 1) for attribute in ("relu", "act_fn")]
    assert [s.name for s in report.swapped] == places
    assert [s.calls for s in report.swapped] == [2, 1, 2, 1]
    assert "called 2 times, with one threshold for all" in report.swapped[0].note
    reasons = {entry.name: entry.reason for entry in report.left}
    assert reasons["blocks.0.gate.act"].startswith("it belongs to a squeeze-excite gate")
    assert reasons["blocks.1.gate.gate"].startswith("Sigmoid is mostly a gate")
    assert reasons["head.1"].startswith("it belongs to a head")
    assert reasons["head.3"].startswith("Softmax mixes units")
    assert reasons["pooler_act"].startswith("Tanh is mostly")
    assert len(reasons) == 7
    assert [(use.place, use.owner, use.function, use.calls) for use in report.functions] == [
        ("blocks.0", "Block", "silu", 1),
        ("blocks.1", "Block", "silu", 1),
    ]
    text = str(report)
    assert "Swapped the activation at 4 places for CReLU(" in text
    assert "the function gelu → CReLU(" in text
    assert "Block.forward  blocks.0  silu, once" in text


def test_no_function_is_reported_where_there_is_none() -> None:
    report = swap_activations(nn.Sequential(nn.Linear(3, 3), GELUTanh(), Odd()), DESIGN, example=torch.randn(2, 3))
    assert report.functions == ()
    assert "functions" not in str(report)


def test_types_and_names() -> None:
    model = Net()
    assert [s.name for s in swap_activations(model, DESIGN, types=nn.Tanh).swapped] == ["pooler_act"]
    report = swap_activations(model, DESIGN, types=(nn.ReLU, nn.GELU), skip="blocks.1.*")
    assert [s.name for s in report.swapped] == ["blocks.0.relu", "blocks.0.act_fn"]
    assert {"skip= names it", "types= does not name Sigmoid"} <= {entry.reason for entry in report.left}
    # What is named goes, wherever it is and whatever it is, but for what mixes units.
    report = swap_activations(model, DESIGN, names=["head.*", "*.gate.act"])
    assert [s.name for s in report.swapped] == ["blocks.0.gate.act", "blocks.1.gate.act", "head.1"]
    assert [s.name for s in swap_activations(model, DESIGN, names="*.gate.gate").swapped][1] == "blocks.1.gate.gate"
    own = nn.Sequential(nn.Linear(3, 3), Odd())
    assert swap_activations(own, DESIGN, types=Odd).swapped[0].was == "Odd"


def test_a_module_in_several_places_becomes_several() -> None:
    shared = nn.ReLU()
    model = nn.Sequential(nn.Linear(3, 3), shared, nn.Linear(3, 3), shared)
    report = swap_activations(model, DESIGN, example=torch.randn(1, 3))
    assert model[1] is not model[3]
    assert "one module with '3' before" in report.swapped[0].note
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert len(swap_activations(nn.Sequential(block, block), DESIGN).swapped) == 1


def test_refusals_leave_the_model_as_it_was() -> None:
    class Functional(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x))

    model = nn.Sequential(Functional(3, 3), nn.Sigmoid())
    with pytest.raises(ValueError, match="nothing to swap in Sequential: what it has was left: Sigmoid at '1'"):
        swap_activations(model, DESIGN)
    with pytest.raises(ValueError, match="its forward applies relu in '0' as a function: make that a module"):
        swap_activations(model, DESIGN, example=torch.randn(1, 3))
    with pytest.raises(ValueError, match="it holds no activation"):
        swap_activations(nn.Sequential(Functional(3, 3)), DESIGN)
    with pytest.raises(ValueError, match=r"names='act\*' matches no activation of the model; it has '1'"):
        swap_activations(model, DESIGN, names="act*")
    with pytest.raises(ValueError, match="types must be classes of modules"):
        swap_activations(model, DESIGN, types=(F.relu,))
    with pytest.raises(ValueError, match="the model is a single ReLU"):
        swap_activations(nn.ReLU(), DESIGN)
    assert type(model[1]) is nn.Sigmoid


@pytest.mark.parametrize("activation", ["relu", F.gelu, nn.GELU()], ids=["relu", "gelu", "module"])
def test_torchs_encoder_leaves_its_fused_path(activation: object) -> None:
    """In eval mode a layer that was made with ReLU or GELU runs a kernel that never looks at `activation`."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation=activation, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    swap_activations(model, DESIGN)
    x = torch.randn(3, 5, 16)
    padding = torch.tensor([[False] * (5 - n) + [True] * n for n in (0, 1, 2)])
    for arguments in ((x,), (x, None, padding)):
        expected = model.train()(*arguments)
        with torch.no_grad():
            found = model.eval()(*arguments)
        torch.testing.assert_close(found, expected)


def test_an_accelerated_model_follows(generator: torch.Generator) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    x = torch.randn(8, 64, generator=generator)
    hush.sparse.accelerate(model, adaptive=False)
    model(x)  # plans are made at the first call
    twin = hush.sparse.decelerate(copy.deepcopy(model))
    for changed in (model, twin):
        swap_activations(changed, DESIGN, example=x)
    torch.testing.assert_close(model(x), twin(x))
    model[1].threshold = twin[1].threshold = 0.1
    torch.testing.assert_close(model(x), twin(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile itself calls something it has deprecated
def test_what_people_do_with_a_model_afterwards(generator: torch.Generator) -> None:
    model, x = Net(), torch.randn(2, 8, generator=generator)
    compiled = torch.compile(model, backend="eager")
    before = compiled(x)
    swap_activations(model, DESIGN)
    expected = model(x)
    assert not torch.equal(before, expected)
    torch.testing.assert_close(compiled(x), expected)  # made before, and made anew
    torch.testing.assert_close(torch.compile(model, backend="eager")(x), expected)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
    assert torch.equal(nn.DataParallel(model)(x), expected)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = Net()
    swap_activations(other, DESIGN)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), expected)
