"""Which thresholded form an activation gets: by what it computes."""

import functools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush.nn as hn
from hush.nn.sparsifying.known_functions import dense_output, thresholded_form


class GELUByHand(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class QuickGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class TwiceReLU(nn.ReLU):
    """Named like one thing, and another."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * super().forward(x)


KNOWN = [
    (nn.ReLU(), "fatrelu"),
    (nn.ReLU(inplace=True), "fatrelu"),
    (F.relu, "fatrelu"),
    (torch.relu, "fatrelu"),
    (nn.GELU(), "thresholded_gelu"),
    (GELUByHand(), "thresholded_gelu"),
    (F.gelu, "thresholded_gelu"),
    (nn.GELU("tanh"), "thresholded_gelu_tanh"),
    (functools.partial(F.gelu, approximate="tanh"), "thresholded_gelu_tanh"),
    (QuickGELU(), "thresholded_gelu_sigmoid"),
    (nn.SiLU(), "thresholded_silu"),
    (F.silu, "thresholded_silu"),
]


@pytest.mark.parametrize(("held", "name"), KNOWN, ids=lambda value: str(value).split(" at ")[0][:30])
def test_known(held, name: str, generator: torch.Generator) -> None:
    found = thresholded_form(held)
    assert found is not None
    assert found[0] == name
    module, x = found[1], 3.0 * torch.randn(1000, generator=generator)
    assert module.in_state_dict
    # At τ = 0 it computes what was there.
    assert torch.allclose(module(x), held(x.clone()), atol=2e-6)
    module.threshold = 0.5
    assert torch.allclose(dense_output(module, x), held(x.clone()), atol=2e-6)


OTHERS = [nn.LeakyReLU(), nn.ReLU6(), nn.ELU(), nn.Mish(), nn.Hardswish(), nn.Tanh(), nn.PReLU(), nn.RReLU()]
OTHERS += [nn.Softplus(), nn.Identity(), TwiceReLU(), hn.CReLU(0.0, 1.0), hn.ShiftedReLU(0.0), F.linear, nn.GLU()]


@pytest.mark.parametrize("held", OTHERS, ids=lambda value: str(value)[:30])
def test_unknown(held) -> None:
    state = torch.get_rng_state()
    assert thresholded_form(held) is None
    assert torch.equal(torch.get_rng_state(), state)


def test_a_form_with_a_threshold_keeps_it() -> None:
    name, again = thresholded_form(hn.ThresholdedGELU(0.4, "tanh"))
    assert (name, again.threshold, again.approximate) == ("thresholded_gelu_tanh", 0.4, "tanh")
    assert thresholded_form(hn.FATReLU(0.3))[1].threshold == 0.3
