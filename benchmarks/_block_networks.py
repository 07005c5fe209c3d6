"""Residual networks that are drawn rightly or wrongly on purpose, and their figures at initialisation, in plain torch.

    one matrix      x ← x + β(W φ(n(x)) + b)
    two matrices    x ← x + β(W₂ φ(W₁ n(x) + b₁) + b₂)
    post-norm       x ← n(x + β(…)) with no norm inside

`hush.nn` builds networks that are drawn as the theory says; here the draw itself is what varies, so the network is
written out.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

import hush
from hush.nn import from_design
from hush.theory import Smooth

PLAIN = {"relu": nn.ReLU, "gelu": nn.GELU}


@dataclass(frozen=True)
class Setting:
    """One network and how it is drawn.

    Attributes:
        data: "digits" or "mnist".
        matrices: of one block, 1 or 2.
        norm: "none", "rms" or "layer" in front of every branch and of the head, or "post": a LayerNorm behind each add.
        sparsity, slope: of the design at q* = 1 that gives τ and m (slope: V′ of the plain chain); 0 for ReLU and GELU.
        branch_scale: β: "1", "1/sqrt(depth)" or "1/depth".
        draw: "block" as the theory of blocks says, "chain" with the chain's σ_w and σ_b in every layer.
        times_in, times_out: by what the weights that feed φ and those that read φ are multiplied.
        bias: standard deviation of the biases of a "block" draw.
        input_scale: by what the images, of variance 1, are multiplied.
    """

    data: str
    matrices: int
    norm: str
    activation: str
    sparsity: float
    slope: float
    branch_scale: str
    depth: int
    width: int
    draw: str = "block"
    times_in: float = 1.0
    times_out: float = 1.0
    bias: float = 0.0
    input_scale: float = 1.0
    seed: int = 0

    @property
    def beta(self) -> float:
        return {"1": 1.0, "1/sqrt(depth)": self.depth**-0.5, "1/depth": 1.0 / self.depth}[self.branch_scale]


@dataclass(frozen=True)
class _Drawing:
    """φ as a module, σ of the weights that read φ, and σ_w, σ_b of a plain chain."""

    activation: nn.Module
    sigma_out: float
    sigma_w: float
    sigma_b: float


@cache
def drawing_of(activation: str, sparsity: float, slope: float) -> _Drawing:
    if activation in PLAIN:
        module = PLAIN[activation]()
        phi = Smooth(lambda x: module(torch.from_numpy(x)).numpy(), kinks=(0.0,) if activation == "relu" else ())
        sigma = float(phi.slope_moment(1, 1.0)) ** -0.5
        return _Drawing(module, sigma, sigma, 0.0)
    clipped = activation in ("crelu", "cst")
    design = hush.design(activation, sparsity=sparsity, **({"v_prime": slope} if clipped else {}))
    return _Drawing(from_design(design), design.sigma_w, design.sigma_w, design.sigma_b)


class Block(nn.Module):
    def __init__(self, setting: Setting, activation: nn.Module) -> None:
        super().__init__()
        width = setting.width
        self.beta, self.post = setting.beta, setting.norm == "post"
        self.norm = norm_of(setting.norm, width)
        self.activation = activation
        self.reads_stream = nn.Linear(width, width) if setting.matrices == 2 else nn.Identity()
        self.reads_activation = nn.Linear(width, width)

    def forward(self, x: Tensor, kept: list[Tensor] | None) -> Tensor:
        h = self.reads_stream(x if self.post else self.norm(x))
        if kept is not None:
            # A node of its own, so that the gradient at h is that of the branch alone where h is the stream itself.
            kept.append(h := h * 1.0)
        x = x + self.beta * self.reads_activation(self.activation(h))
        return self.norm(x) if self.post else x


class ResidualNetwork(nn.Module):
    def __init__(self, setting: Setting, inputs: int, classes: int = 10) -> None:
        super().__init__()
        drawing = drawing_of(setting.activation, setting.sparsity, setting.slope)
        self.embed = nn.Linear(inputs, setting.width)
        self.blocks = nn.ModuleList(Block(setting, drawing.activation) for _ in range(setting.depth))
        self.norm = nn.Identity() if setting.norm == "post" else norm_of(setting.norm, setting.width)
        self.head = nn.Linear(setting.width, classes)
        self._draw(setting, drawing)

    def forward(self, x: Tensor, stream: list[Tensor] | None = None, kept: list[Tensor] | None = None) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            if stream is not None:
                stream.append(x := x * 1.0)
            x = block(x, kept)
        if stream is not None:
            stream.append(x := x * 1.0)
        x = self.norm(x)
        if stream is not None:
            stream.append(x)
        return self.head(x)

    @torch.no_grad()
    def _draw(self, setting: Setting, drawing: _Drawing) -> None:
        generator = torch.Generator().manual_seed(setting.seed)

        def fill(layer: nn.Linear, sigma: float, bias: float) -> None:
            layer.weight.normal_(0.0, sigma / math.sqrt(layer.in_features), generator=generator)
            layer.bias.normal_(0.0, 1.0, generator=generator).mul_(bias)

        chain = setting.draw == "chain"
        sigma_in, sigma_out, bias = (
            (drawing.sigma_w, drawing.sigma_w, drawing.sigma_b) if chain else (1.0, drawing.sigma_out, setting.bias)
        )
        fill(self.embed, 1.0, 0.0)
        for block in self.blocks:
            if isinstance(block.reads_stream, nn.Linear):
                fill(block.reads_stream, setting.times_in * sigma_in, bias)
            fill(block.reads_activation, setting.times_out * sigma_out, bias)
        fill(self.head, 1.0, 0.0)


def norm_of(name: str, width: int) -> nn.Module:
    if name == "none":
        return nn.Identity()
    return nn.RMSNorm(width, eps=1e-6) if name == "rms" else nn.LayerNorm(width, eps=1e-6)


def figures_of(setting: Setting, images: Tensor, labels: Tensor) -> dict[str, float]:
    """What can be measured before training, on a batch of the data, in float64; gradients of a random probe.

    Of a squared gradient at block l beside that at the last block, log10, the median over the inputs:
        highest_gain, first_gain: at the pre-activations, the largest and that of the first block. Where no unit of a
            block passes a gradient, for an input, that block is left out; if that is so everywhere, they are 0.
        stream_gain: along the stream, from its end to the embedding.
    explode: the share of inputs with a gain above 10³ at some pre-activation.
    stream_growth, output: log10 of p_L/p_0, and of the mean square of the outputs.
    sensitivity: log10 of |∂f/∂θ|², f a random mixture of the outputs, averaged over the batch.
    correlation, correlation_start: mean cosine of two inputs in what the head reads, and in what the embedding gives.
    """
    # The weights are drawn in float32, as in training, and only then widened.
    model = ResidualNetwork(setting, images.shape[1]).double()
    stream: list[Tensor] = []
    kept: list[Tensor] = []
    logits = model(images.double() * setting.input_scale, stream, kept)
    probe = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    *along, read = stream
    gradients = torch.autograd.grad((logits * probe).sum(), along + kept, retain_graph=True)
    on_stream, on_branch = (
        torch.stack([g.square().sum(1) for g in part]).log10()
        for part in (gradients[: len(along)], gradients[len(along) :])
    )
    gains, explode = _gains(on_branch)
    outputs = [block.activation(h) for block, h in zip(model.blocks, kept, strict=True)]
    zeros = torch.stack([(y == 0).double().mean() for y in outputs])
    dead = torch.stack([(y == 0).all(0).double().mean() for y in outputs])
    shared = (logits * probe[:1]).sum(1).mean()
    sensitivity = sum(float(g.square().sum()) for g in torch.autograd.grad(shared, list(model.parameters())))
    p = torch.stack([x.detach().square().mean() for x in along])
    return {
        "highest_gain": max(gains, default=0.0),
        "first_gain": gains[0] if gains else 0.0,
        "stream_gain": float((on_stream[0] - on_stream[-1]).median()),
        "explode": explode,
        "stream_growth": float(torch.log10(p[-1] / p[0])),
        "output": float(logits.detach().square().mean().log10()),
        "loss": float(F.cross_entropy(logits.detach(), labels)),
        "sensitivity": math.log10(sensitivity),
        "sparsity": float(zeros.mean()),
        "sparsity_low": float(zeros.min()),
        "sparsity_high": float(zeros.max()),
        "dead": float(dead.mean()),
        "correlation_start": _mean_cosine(along[0].detach()),
        "correlation": _mean_cosine(read.detach()),
    }


def _gains(log_squares: Tensor) -> tuple[list[float], float]:
    """Of log10 |δ|², (blocks, inputs), −∞ for none: medians of the gains by block, and the share of inputs above 3."""
    living = log_squares.isfinite()
    # The last block with a gradient, for each input.
    last = len(living) - 1 - living.flip(0).int().argmax(0)
    gains = log_squares - log_squares.gather(0, last[None])
    medians = [float(row[alive].median()) for row, alive in zip(gains, living, strict=True) if alive.any()]
    highest = gains.masked_fill(~living, -math.inf).max(0).values
    return medians, float((highest > 3.0).double().mean())


def _mean_cosine(x: Tensor) -> float:
    """Over all pairs of different rows; 1 − ρ keeps its digits where the rows are nearly equal."""
    unit = F.normalize(x, dim=1)
    count = len(unit)
    centred = unit - unit.mean(0)
    return 1.0 - float(centred.square().sum()) / (count - 1)
