"""Adding an activation is one entry: a toy of our own goes through design, module, init_, diagnosis, command line,
explorer and engine, and leaves no trace."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hush
from hush.theory import (
    ActivationEntry,
    PiecewiseLinear,
    activation_names,
    one_sided_threshold,
    register,
    unregister,
    variance_map_slope,
)

LEAK = 0.05


def soft_clipped(threshold: float, clip: float) -> PiecewiseLinear:
    """0 up to τ, slope 1 over the next m, and beyond a slope of 0.05 instead of none."""
    top = threshold + clip
    offsets = (0.0, -threshold, clip - LEAK * top)
    return PiecewiseLinear((threshold, top), (0.0, 1.0, LEAK), offsets, "soft_clipped")


class SoftClipped(nn.Module):
    def __init__(self, threshold: float, clip: float) -> None:
        super().__init__()
        self.threshold, self.clip = threshold, clip

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x - self.threshold)
        return torch.minimum(y, self.clip + LEAK * (y - self.clip))


ENTRY = ActivationEntry(
    "soft_clipped",
    soft_clipped,
    ("threshold", "clip"),
    title="softly clipped ReLU",
    threshold_at=one_sided_threshold,
    module=SoftClipped,
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(ENTRY)
    yield
    unregister("soft_clipped")
    assert "soft_clipped" not in activation_names()


def test_design_chooses_for_it() -> None:
    made = hush.design("soft_clipped", 0.85, width=200, depth=20)
    assert made.clip is not None
    assert made.odds is not None
    assert made.odds.explode <= 0.01
    assert made.phi().sparsity(1.0) == pytest.approx(0.85)
    assert hush.Design.from_json(made.to_json()) == made
    sloped = hush.design("soft_clipped", 0.85, v_prime=0.8)
    assert variance_map_slope(sloped.phi(), 1.0, sloped.sigma_w) == pytest.approx(0.8)


def test_its_module_is_initialised_and_follows_the_theory() -> None:
    made = hush.design("soft_clipped", 0.8, v_prime=0.8, width=200, depth=8)
    assert isinstance(made.module(), SoftClipped)
    model = hush.nn.mlp(64, 10, made)
    generator = torch.Generator().manual_seed(0)
    hush.init_(model, made, generator=generator)
    x = torch.randn(64, 64, generator=generator)
    diagnosis = hush.diagnose(model, x, design=made)
    assert not diagnosis.no_prediction
    assert diagnosis.layers[3].q_band is not None
    assert np.mean([layer.sparsity for layer in diagnosis.layers]) == pytest.approx(0.8, abs=0.03)


def test_another_activation_in_its_place_is_refused() -> None:
    made = hush.design("crelu", 0.8, v_prime=0.8, width=50, depth=4)
    model = nn.Sequential(nn.Linear(8, 8), SoftClipped(0.8, 1.0), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="the model uses SoftClipped.* but the design is for CReLU"):
        hush.init_(model, made)


def test_the_engine_computes_what_the_module_does() -> None:
    made = hush.design("soft_clipped", 0.8, v_prime=0.8, width=64, depth=4)
    model = hush.nn.mlp(32, 5, made)
    hush.init_(model, made, generator=torch.Generator().manual_seed(0))
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(1))
    expected = model(x)
    hush.sparse.accelerate(model)
    torch.testing.assert_close(model(x), expected)


def test_the_explorer_offers_it() -> None:
    from hush.app.settings import Settings, span

    assert Settings(activation="soft_clipped").is_clipped
    assert span("sparsity", "soft_clipped").low == 0.5


def test_the_command_line_offers_it() -> None:
    # In a process of its own, as a user's script would: the entry first, then the command line.
    code = (
        "from hush.theory import ActivationEntry, crelu, one_sided_threshold, register\n"
        "names = ('threshold', 'clip')\n"
        "register(ActivationEntry('soft_clipped', crelu, names, threshold_at=one_sided_threshold))\n"
        "from hush.cli import main\n"
        "main()\n"
    )
    for arguments, expected in (
        (["design", "--help"], "soft_clipped"),
        (["design", "soft_clipped", "--sparsity", "0.85", "--v-prime", "0.8"], "soft_clipped"),
    ):
        run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert expected in run.stdout.replace("\n", "")
