"""Real random networks in torch from the theory's lists of steps, and what they show at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as default

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hush import theory
from hush.theory.positions.drawn_field import draw_field
from hush.theory.positions.stack import StackOfSteps


@dataclass
class Measured:
    """One network behind each of its steps; `q` and `sparsity` in the order of the forward pass."""

    variance: list[float] = default(default_factory=list)
    position_correlation: list[float] = default(default_factory=list)
    input_correlation: list[float | None] = default(default_factory=list)
    q: list[float] = default(default_factory=list)
    sparsity: list[float] = default(default_factory=list)
    gradient_log10: list[float] = default(default_factory=list)  # in front of each step, over that at the end


class _Phi(torch.autograd.Function):
    """Any theory activation, elementwise."""

    @staticmethod
    def forward(ctx, x: Tensor, phi: theory.Activation) -> Tensor:  # type: ignore[no-untyped-def, override]
        values = x.double().numpy()
        ctx.slope = torch.from_numpy(np.asarray(phi.derivative(values))).to(x.dtype)
        return torch.from_numpy(np.asarray(phi(values))).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[no-untyped-def, override]
        return gradient * ctx.slope, None


class RandomNetwork:
    """Draws the weights of each step as it is met; activations have the shape (inputs, channels, *positions)."""

    def __init__(self, width: int, seed: int) -> None:
        self.width = width
        self.generator = torch.Generator().manual_seed(seed)
        self.found = Measured()

    def measure(self, steps: Sequence[theory.Step], field: theory.Field, gradient: theory.Field, seed: int) -> Measured:
        """Run one input drawn from `field` forwards, and one gradient drawn from `gradient` back."""
        rng = np.random.default_rng(seed)
        drawn = draw_field(field, self.width, rng).transpose(1, 0, 2).reshape(field.inputs, self.width, *field.shape)
        x = torch.tensor(drawn, dtype=torch.float32, requires_grad=True)
        passed = [x]
        for step in steps:
            x = self(step, passed[-1])
            x.retain_grad()
            passed.append(x)
            self._look(x.detach())
        arriving = torch.zeros_like(x)
        back = draw_field(gradient, x.shape[1], rng)[:, 0].reshape(x.shape[1], *x.shape[2:])
        arriving[0] = torch.from_numpy(back).float()
        x.backward(arriving)
        sums = [float(p.grad[0].double().square().sum()) for p in passed if p.grad is not None]
        self.found.gradient_log10 = [math.log10(value / sums[-1]) for value in sums[:-1]]
        return self.found

    def __call__(self, step: theory.Step, x: Tensor) -> Tensor:
        if isinstance(step, theory.Branch):
            stream, branch = x, x
            for part in step.shortcut:
                stream = self(part, stream)
            for part in step.steps:
                branch = self(part, branch)
            return stream + step.scale * branch
        if isinstance(step, StackOfSteps):
            for part in step.steps:
                x = self(part, x)
            return x
        if isinstance(step, theory.Activate):
            return self._activate(step.phi, x)
        if isinstance(step, theory.Dense):
            return torch.einsum("oc,bc...->bo...", self._weight(step.sigma_w, x), x) + self._bias(step.sigma_b, x)
        if isinstance(step, theory.Gate):
            gate = torch.einsum("oc,bc...->bo...", self._weight(step.sigma_gate, x), x)
            up = torch.einsum("oc,bc...->bo...", self._weight(step.sigma_up, x), x)
            return self._activate(step.phi, gate) * up
        if isinstance(step, theory.Convolution):
            return self._convolve(step, x)
        if isinstance(step, theory.Normalise):
            if step.kind == "layer":
                x = x - x.mean(1, keepdim=True)
            return x / x.square().mean(1, keepdim=True).sqrt()
        if isinstance(step, theory.GlobalAverage):
            return x.flatten(2).mean(2, keepdim=True)
        if isinstance(step, theory.AveragePooling):
            pool = functional.avg_pool1d if x.ndim == 3 else functional.avg_pool2d
            return pool(x, step.kernel, step.window.stride, step.padding)
        if isinstance(step, theory.MaxPooling):
            x = x if step.phi is None else self._activate(step.phi, x)
            largest = functional.max_pool1d if x.ndim == 3 else functional.max_pool2d
            return largest(x, step.kernel, step.window.stride, step.padding)
        if isinstance(step, theory.Attention):
            return self._attend(step, x)
        raise TypeError(f"{type(step).__name__} has no torch twin here.")

    def _normal(self, deviation: float, *shape: int) -> Tensor:
        return deviation * torch.randn(*shape, generator=self.generator)

    def _weight(self, sigma: float, x: Tensor) -> Tensor:
        return self._normal(sigma / math.sqrt(x.shape[1]), self.width, x.shape[1])

    def _bias(self, sigma: float, x: Tensor) -> Tensor:
        return self._normal(sigma, self.width).reshape(-1, *(1,) * (x.ndim - 2))

    def _activate(self, phi: theory.Activation, h: Tensor) -> Tensor:
        x = _Phi.apply(h, phi)
        self.found.q.append(float(h.detach()[0].double().square().mean()))
        self.found.sparsity.append(float((x.detach()[0] == 0.0).double().mean()))
        return x

    def _convolve(self, step: theory.Convolution, x: Tensor) -> Tensor:
        dimensions = x.ndim - 2
        window = step.window
        kernel, padding = window.along(step.kernel, dimensions), window.along(step.padding, dimensions)
        weight = self._normal(step.sigma_w / math.sqrt(math.prod(kernel) * x.shape[1]), self.width, x.shape[1], *kernel)
        sides = [p for size in reversed(padding) for p in (size, size)]
        x = functional.pad(x, sides, mode="circular" if step.mode == "circular" else "constant")
        convolve = functional.conv1d if dimensions == 1 else functional.conv2d
        y = convolve(x, weight, stride=window.along(step.stride, dimensions), dilation=step.dilation)
        return y + self._bias(step.sigma_b, y)

    def _attend(self, step: theory.Attention, x: Tensor) -> Tensor:
        size, head = x.shape[2], step.head_dim or x.shape[1]
        if step.sigma_q is None:
            raise TypeError("give sigma_q and sigma_k.")
        q, k, v = (
            torch.einsum("oc,bct->bot", self._weight(sigma, x), x).unflatten(1, (-1, head))
            for sigma in (step.sigma_q, step.sigma_k or 0.0, step.sigma_v)
        )
        logits = torch.einsum("bhdt,bhds->bhts", q, k) / math.sqrt(head)
        if step.causal:
            logits = logits.masked_fill(torch.ones(size, size).triu(1).bool(), -math.inf)
        y = torch.einsum("bhts,bhds->bhdt", logits.softmax(-1), v).flatten(1, 2)
        return torch.einsum("oc,bct->bot", self._weight(step.sigma_out, y), y) + self._bias(step.sigma_b, y)

    def _look(self, x: Tensor) -> None:
        seen = theory.Field.of_inputs(x.flatten(2).double().numpy())
        self.found.variance.append(seen.variance)
        self.found.position_correlation.append(seen.position_correlation())
        self.found.input_correlation.append(seen.input_correlation())
