"""What is a chain and what is not, seen by data flow; what is not has `tests/nn/test_block_init.py`."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hush
from hush.nn.flow import INPUT
from hush.nn.structure import obstacles
from hush.nn.tracing import trace_flow
from tests.helpers import ResNet, Transformer
from tests.nn.architectures import CHAINS, NO_CHAINS, Chain, Heads, Layers, UsedTwice, example, torch_transformer

DESIGN = hush.design("crelu", 0.8, v_prime=0.7, width=16, depth=3)
Build = Callable[[nn.Module], nn.Module]


@pytest.mark.parametrize(("build", "seen"), NO_CHAINS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_no_chain_is_seen(build: Build, seen: str) -> None:
    model = build(DESIGN.module())
    assert seen in "; ".join(obstacles(model, trace_flow(model, example(model))))


@pytest.mark.parametrize(("build", "seen"), NO_CHAINS, ids=lambda value: getattr(value, "__name__", ""))
def test_it_is_drawn_on_request_and_the_report_says_so(build: Build, seen: str) -> None:
    model = build(DESIGN.module())
    report = hush.init_(model, DESIGN, example(model), structure="chain")
    assert report.drawn
    assert "because structure='chain' says so, but it is none" in report.structure
    assert seen in report.structure


@pytest.mark.parametrize("build", CHAINS, ids=lambda build: build.__name__)
def test_chains_are_drawn(build: Build) -> None:
    model = build(DESIGN.module())
    report = hush.init_(model, DESIGN, example(model))
    assert report.structure in ("A plain chain, seen by data flow.", "Chains along every path, seen by data flow.")


def test_forks_and_reuse_are_in_the_report() -> None:
    heads, again = Heads(DESIGN.module()), UsedTwice(DESIGN.module())
    assert "'a' is read by 'b', 'c': their gradients add up there." in str(hush.init_(heads, DESIGN, example(heads)))
    text = str(hush.init_(again, DESIGN, example(again)))
    assert "Called more than once, while the theory takes every layer's weights for new: 'b'." in text


@pytest.mark.parametrize(
    ("model", "seen"),
    [
        (ResNet(DESIGN.module()), "BatchNorm2d at 'blocks.0.norm', 'blocks.1.norm'"),
        (Transformer(DESIGN.module()), "LayerNorm at 'norm1', 'norm2'; MultiheadAttention at 'attention'"),
        (torch_transformer(DESIGN.module()), "TransformerEncoderLayer at 'layers.0', 'layers.1'"),
        (nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.GroupNorm(1, 4))), "GroupNorm at '1.0'"),
        (nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4)), "RMSNorm at '1'"),
    ],
)
def test_modules_tell_without_an_example(model: nn.Module, seen: str) -> None:
    with pytest.raises(ValueError, match=re.escape(seen)) as refusal:
        hush.init_(model, DESIGN)
    assert "Pass example=x" in str(refusal.value)


def test_a_forward_of_its_own_needs_an_example() -> None:
    inside = nn.Sequential(nn.Linear(16, 16), Chain(DESIGN.module()))
    with pytest.raises(ValueError, match=r"because these classes have a forward of their own: Chain\. Pass example=x"):
        hush.init_(inside, DESIGN)
    patched = nn.Sequential(nn.Linear(16, 16), DESIGN.module())
    patched[0].forward = lambda x: x
    with pytest.raises(ValueError, match="have a forward of their own: Linear"):
        hush.init_(patched, DESIGN)


def test_torchs_own_modules_in_a_row_need_none() -> None:
    body = nn.Sequential(nn.Conv2d(1, 4, 3), DESIGN.module(), nn.MaxPool2d(2), nn.Dropout(0.1), nn.Identity())
    model = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), body, nn.Flatten(), nn.Linear(36, 3))
    report = hush.init_(model, DESIGN)
    assert report.first == ("1.0.weight",)
    assert "torch's own modules in a row" in report.structure


def test_pooling_between_the_layers_is_in_the_report() -> None:
    phi = DESIGN.module()
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), phi, nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), phi, nn.Flatten(), nn.Linear(4, 3)
    )
    text = str(hush.init_(model, DESIGN, torch.randn(2, 1, 8, 8)))
    assert "knows nothing but activations; here there is also 'max_pool2d'." in text
    cnn = hush.nn.cnn(1, 3, DESIGN)
    # What comes behind the last activation is the head's affair.
    assert "here there is also" not in str(hush.init_(cnn, DESIGN, torch.randn(2, 1, 8, 8)))


def test_a_function_in_place_of_the_module_is_in_the_report() -> None:
    class Functional(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.relu(self.b(torch.relu(self.a(x)))))

    model = Functional(DESIGN.module())
    text = str(hush.init_(model, DESIGN, example(model)))
    assert "The function relu is called in Functional.forward. The design is for CReLU" in text


def test_a_layer_whose_input_cannot_be_followed() -> None:
    class Constant(Layers):
        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.ones(2, 16)) * self.phi(self.a(x)).sum()

    with pytest.raises(ValueError, match="what 'c' reads could not be followed back to a layer or to the input"):
        hush.init_(Constant(DESIGN.module()), DESIGN, example(Layers(DESIGN.module())))


def test_weights_applied_by_function_and_tied_tables() -> None:
    model = Transformer(DESIGN.module())
    flow = trace_flow(model, torch.randint(0, 50, (2, 7)))
    assert flow.reads["attention.out_proj"] == {INPUT}
    # The embedding's weight is the unembedding's, and looking a row up is no call of that layer.
    assert flow.order[-1] == "unembed"
    assert "unembed" not in flow.first


def test_an_accelerated_model_is_seen_like_the_plain_one() -> None:
    model = hush.nn.mlp(64, 10, DESIGN, width=64)
    plain = trace_flow(model, torch.randn(2, 64))
    hush.sparse.accelerate(model)
    assert trace_flow(model, torch.randn(2, 64)) == plain
    assert "torch's own modules in a row" in hush.init_(model, DESIGN).structure
    assert plain.is_chain
    assert not obstacles(model, plain)


def test_parametrised_and_tied_weights_are_followed() -> None:
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)])
    nn.utils.parametrizations.weight_norm(model[1])
    model[3].weight = model[2].weight
    flow = trace_flow(model, torch.randn(2, 16))
    assert [(call.layer, set(call.reads)) for call in flow.calls] == [
        ("0", {INPUT}),
        ("1", {"0"}),
        ("2", {"1"}),
        ("2", {"2"}),
    ]
    assert flow.used_again == ("2",)


def test_drawn_as_a_chain_a_residual_stream_grows_with_depth() -> None:
    """Why blocks are not drawn as a chain: x + Wφ(x) at the chain's edge doubles, roughly, with every block."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.phi, self.linear = DESIGN.module(), nn.Linear(128, 128)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.linear(self.phi(x))

    model, x = nn.Sequential(*[Block() for _ in range(20)]), torch.randn(8, 128)
    hush.init_(model, DESIGN, x, structure="chain", generator=torch.Generator().manual_seed(0))
    assert float(model(x).detach().square().mean()) > 10.0 * DESIGN.q_star
