"""The figures of the paper and two residual networks as states of the explorer."""

from dataclasses import dataclass, replace

from hush.app.settings import Clip, Settings, Sigmas

__all__ = ["PRESETS", "Preset"]

# P(z < 1) and P(|z| < 1): the sparsities at τ = 1 of the one-sided and of the odd activations.
_ONE_SIDED, _ODD = 0.8413, 0.6827


@dataclass(frozen=True)
class Preset:
    """A figure of the paper, or with None for its number an example of ours: what it shows, and where to look."""

    figure: str | None
    title: str
    note: str
    settings: Settings

    @property
    def label(self) -> str:
        return f"Example: {self.title}" if self.figure is None else f"Figure {self.figure}: {self.title}"


def _clipped(activation: str, sparsity: float, clip: float, **more: object) -> Settings:
    return Settings(activation, sparsity, Clip.HEIGHT, clip, **more)  # type: ignore[arg-type]


def _sloped(activation: str, sparsity: float, v_prime: float, **more: object) -> Settings:
    return Settings(activation, sparsity, Clip.SLOPE, v_prime=v_prime, **more)  # type: ignore[arg-type]


def _off_edge(settings: Settings, factor: float) -> Settings:
    return replace(settings, sigmas=Sigmas.FACTOR, sigma_w_factor=factor)


PRESETS = (
    Preset(
        "1",
        "the activations (CReLU, τ = 1, m = 1)",
        "Look at φ; change the activation for the others.",
        _clipped("crelu", _ONE_SIDED, 1.0),
    ),
    Preset(
        "2",
        "V(q) of ReLU_τ and ST on the EoC (τ = 1)",
        "V touches the diagonal at q* and bends up: stable from below only. ST at the same τ has the same V.",
        Settings("shifted_relu", _ONE_SIDED),
    ),
    Preset(
        "3",
        "V′(m) and V″(m) (CReLU, s = 0.85)",
        "Look at “V′ and V″ against the clip”; move the sparsity.",
        _sloped("crelu", 0.85, 0.7),
    ),
    Preset(
        "4a",
        "m too large, CReLU (s = 0.85, V′ = 0.9)",
        "V hugs the diagonal above q*: nothing holds q back.",
        _sloped("crelu", 0.85, 0.9),
    ),
    Preset(
        "4b",
        "m too large, CST (s = 0.85, V′ = 0.9)",
        "A second stable fixed point; the cobweb starts above the unstable one and ends there.",
        _sloped("cst", 0.85, 0.9),
    ),
    Preset(
        "5a",
        "exploding gradients, CReLU (s = 0.85, m = 1.74)",
        "The figure shows a training run; the predicted gain of the gradient is “Gain of the gradient”.",
        _clipped("crelu", 0.85, 1.74),
    ),
    Preset(
        "5b",
        "exploding gradients, CST (s = 0.85, m = 1.22)",
        "The figure shows a training run; the predicted gain of the gradient is “Gain of the gradient”.",
        _clipped("cst", 0.85, 1.22),
    ),
    Preset(
        "6",
        "R(ρ) of ReLU_τ around the EoC (τ = 1, σ_w 3 % below)",
        "Move σ_w across 1: below, ρ = 1 attracts; above, no q is left to define R.",
        _off_edge(Settings("shifted_relu", _ONE_SIDED), 0.97),
    ),
    Preset(
        "7",
        "R(ρ) of ST around the EoC (τ = 1, σ_w 3 % below)",
        "As Figure 6, for the odd activation.",
        _off_edge(Settings("soft_threshold", _ODD), 0.97),
    ),
    Preset(
        "8",
        "the EoC curves of ReLU_τ and ST (τ = 1)",
        "Look at “Edge of Chaos”; the dot is q* = 1.",
        Settings("soft_threshold", _ODD),
    ),
    Preset(
        "9",
        "V(q) of ReLU_τ and ST at a fixed sparsity (ST, s = 0.7)",
        "The paper draws s = 0.5, 0.6 and 0.7.",
        Settings("soft_threshold", 0.7),
    ),
    Preset(
        "10",
        "V(q) of CReLU around the EoC (τ = 1, m = 2)",
        "The bottom right panel: further fixed points. Move σ_w off the EoC, and m.",
        _clipped("crelu", _ONE_SIDED, 2.0),
    ),
    Preset(
        "11",
        "V(q) of CST around the EoC (τ = 1, m = 2)",
        "The bottom right panel: further fixed points. Move σ_w off the EoC, and m.",
        _clipped("cst", _ODD, 2.0),
    ),
    Preset(
        "12",
        "R(ρ) of CReLU around the EoC (τ = 1, m = 1, σ_w 10 % above)",
        "Above the EoC a fixed point ρ* < 1 attracts: inputs part, gradients explode.",
        _off_edge(_clipped("crelu", _ONE_SIDED, 1.0), 1.1),
    ),
    Preset(
        "13",
        "R(ρ) of CST around the EoC (τ = 1, m = 1, σ_w 10 % above)",
        "Above the EoC a fixed point ρ* < 1 attracts: inputs part, gradients explode.",
        _off_edge(_clipped("cst", _ODD, 1.0), 1.1),
    ),
    Preset(
        "14a",
        "the second failure mode, CST (s = 0.85, m = 0.81)",
        "Training that comes apart late is no property of the initialisation: nothing on this page shows it.",
        _clipped("cst", 0.85, 0.81),
    ),
    Preset(
        "14b",
        "the second failure mode, CST (s = 0.9, m = 0.76)",
        "Training that comes apart late is no property of the initialisation: nothing on this page shows it.",
        _clipped("cst", 0.9, 0.76, depth=30),
    ),
    Preset(
        None,
        "95 % zeros in 30 feed-forward blocks with RMSNorm",
        "The norm holds q and the sparsity in every block, whatever the stream does: nothing is to be tuned.",
        Settings("crelu", 0.95, depth=30, block="feedforward"),
    ),
    Preset(
        None,
        "30 one-matrix residual blocks, β = 1, no norm",
        "q is the stream's own variance: in half of the networks it runs away, and all of them lose their sparsity. "
        "Choose a norm, or β = 1/√L.",
        Settings("crelu", 0.9, depth=30, block="residual", norm="none", branch_rule="number"),
    ),
)
