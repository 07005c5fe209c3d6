"""From torch modules to the registry: every module is the function that it is recognised as."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import hush
from hush import theory
from hush.nn import recognise
from hush.nn.recognise import activations_of, is_activation
from hush.theory import Kernel

# module, its entry, kernel, threshold, clip
KNOWN = [
    (hush.nn.ShiftedReLU(0.5), "shifted_relu", Kernel.ONE_SIDED, 0.5, math.inf),
    (hush.nn.SoftThreshold(0.5), "soft_threshold", Kernel.ODD, 0.5, math.inf),
    (hush.nn.CReLU(0.5, 1.25), "crelu", Kernel.ONE_SIDED, 0.5, 1.25),
    (hush.nn.CReLU(0.5, math.inf), "crelu", Kernel.ONE_SIDED, 0.5, math.inf),
    (hush.nn.CST(0.5, 1.25), "cst", Kernel.ODD, 0.5, 1.25),
    (hush.nn.FATReLU(0.5), "fatrelu", Kernel.JUMP, 0.5, math.inf),
    (nn.ReLU(), "relu", Kernel.ONE_SIDED, 0.0, math.inf),
    (nn.ReLU6(), "crelu", Kernel.ONE_SIDED, 0.0, 6.0),
    (nn.Hardtanh(0.0, 2.5), "crelu", Kernel.ONE_SIDED, 0.0, 2.5),
    (nn.Hardtanh(-1.5, 1.5), "cst", Kernel.ODD, 0.0, 1.5),
    (nn.Hardtanh(-1.0, 2.0), "hardtanh", None, 0.0, math.inf),
    (nn.Softshrink(0.7), "soft_threshold", Kernel.ODD, 0.7, math.inf),
    (nn.Threshold(0.3, 0.0), "fatrelu", Kernel.JUMP, 0.3, math.inf),
    (nn.Threshold(0.3, 2.0), "threshold", None, 0.0, math.inf),
    (nn.Threshold(-0.3, 0.0), "threshold", None, 0.0, math.inf),
    (nn.LeakyReLU(0.2), "leaky_relu", None, 0.0, math.inf),
    (nn.GELU(), "gelu", None, 0.0, math.inf),
    (nn.SiLU(), "silu", None, 0.0, math.inf),
    (nn.Tanh(), "tanh", None, 0.0, math.inf),
]


@pytest.mark.parametrize(("module", "name", "kernel", "threshold", "clip"), KNOWN, ids=lambda v: str(v))
def test_it_is_the_function_it_is_taken_for(module, name: str, kernel, threshold: float, clip: float) -> None:
    found = recognise(module)
    assert found is not None
    assert (found.entry.name, found.kernel, found.threshold, found.clip) == (name, kernel, threshold, clip)
    x = torch.cat([torch.linspace(-8.0, 8.0, 4001), torch.tensor([0.5, -0.5, 0.3, 0.7])]).double()
    np.testing.assert_allclose(found.phi(x.numpy()), module(x.clone()).numpy(), rtol=1e-12, atol=1e-14)
    assert is_activation(module)


def test_parameters_are_read_as_they_are_now() -> None:
    module = hush.nn.CReLU(0.5, 1.25)
    module.threshold = 0.75
    found = recognise(module)
    assert found is not None
    assert found.threshold == 0.75


class Doubled(nn.ReLU):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(x)


@pytest.mark.parametrize(
    "module", [Doubled(), nn.ELU(), nn.GELU(approximate="tanh"), nn.Linear(2, 2), nn.Sequential()], ids=str
)
def test_what_is_not_known_is_not_guessed(module: nn.Module) -> None:
    assert recognise(module) is None
    assert hush.nn.phi_of(module) is None


def test_what_counts_as_an_activation() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Doubled(), nn.ELU(), nn.Softmax(-1), hush.nn.CST(1.0, 1.0), nn.Dropout())
    assert [name for name, _ in activations_of(model)] == ["1", "2", "4"]


@pytest.mark.parametrize(
    ("module", "inplace"),
    [
        (nn.ReLU(inplace=True), True),
        (nn.ReLU6(inplace=True), True),
        (nn.Threshold(0.5, 0.0, inplace=True), True),
        (nn.ReLU(), False),
        (hush.nn.CReLU(0.5, 1.0, inplace=True), False),
    ],
    ids=str,
)
def test_inplace_is_whether_the_input_changes(module: nn.Module, inplace: bool) -> None:
    found = recognise(module)
    assert found is not None
    x = torch.linspace(-2.0, 2.0, 9)
    before = x.clone()
    module(x)
    assert found.inplace == inplace == (not torch.equal(x, before))


@pytest.mark.parametrize("name", theory.ACTIVATIONS)
def test_modules_know_their_entry(name: str) -> None:
    module = hush.design(name, 0.8, clip=1.1 if name in theory.CLIPPED else None).module()
    assert module.entry is theory.entry_of(name)
    found = recognise(module)
    assert found is not None
    assert found.entry is module.entry


def test_inplace_is_taken_and_changes_nothing() -> None:
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    for kind, values in ((hush.nn.ShiftedReLU, (0.5,)), (hush.nn.CST, (0.5, 1.0)), (hush.nn.FATReLU, (0.5,))):
        asked, plain = kind(*values, inplace=True), kind(*values)
        before = x.clone()
        assert torch.equal(asked(x), plain(x))
        assert torch.equal(x, before)
        assert repr(asked) == repr(plain)
