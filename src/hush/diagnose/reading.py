"""The running statistics of one call of an activation, h in and x = φ(h) out; no activation is kept.

q = |h|²/N of each input      sparsity = share of x = 0        saturated = share of φ′ = 0, x ≠ 0
dead = units with x = 0 for every input      correlation = mean cosine of h over pairs of inputs
|δ|² = |∂L/∂h|² of each input, if a backward pass follows
"""

import torch
from torch import Tensor, nn

from hush.diagnose.saturation import count_saturated
from hush.nn.recognise import phi_of
from hush.theory import Activation

__all__ = ["Reading"]


class Reading:
    """What one call of one activation showed, over all batches.

    Attributes:
        module: the activation module, or how a function is written.
        unit_axis: where the units are in a tensor: 1 after a convolution (its channels), −1 after a Linear.
        inputs: how many inputs were read.
        positions: how many values each unit has for one input: the size of a feature map, or 1.
    """

    def __init__(self, name: str, module: "nn.Module | str", unit_axis: int, phi: Activation | None = None) -> None:
        self.name = name
        self.module = module
        self.phi: Activation | None = phi_of(module) if isinstance(module, nn.Module) else phi
        self.unit_axis = unit_axis
        self.q: list[Tensor] = []
        self.squared_gradients: list[Tensor] = []
        self.cosines: list[Tensor] = []
        self.inputs = 0
        self._count = 0
        self._zeros: Tensor | int = 0
        self._saturated: Tensor | int = 0
        self._alive: Tensor | None = None
        self._cosine_sum: Tensor | float = 0.0
        self._pairs = 0
        self._token_sum: Tensor | float = 0.0
        self._tokens = 0

    def read_input(self, h: Tensor, batch: int | None = None) -> None:
        """Read h; `batch` is how many inputs it belongs to, by default the length of its first axis."""
        rows = self._by_input(h.detach(), batch)
        # In float64 while summing: the squares of an exploding network overflow float32.
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
        self.q.append(norms.square() / rows.shape[1])
        self.inputs += rows.shape[0]
        if rows.shape[0] > 1:
            self._read_cosines(rows, norms)
        if h.dim() > 2 and (batch is None or h.shape[0] == batch):
            self._read_tokens(h.detach())
        if h.requires_grad:
            # Typed by hand, because torch has not typed register_hook.
            register = getattr(h, "register_hook")  # noqa: B009
            register(lambda gradient: self._read_gradient(gradient, batch))

    def read_output(self, x: Tensor) -> None:
        x = x.detach()
        if x.dim() < 2:
            x = x.reshape(-1, 1)
        silent = x == 0
        self._count += x.numel()
        self._zeros = self._zeros + silent.sum()
        self._saturated = self._saturated + count_saturated(self.phi, x, self.unit_axis)
        others = [axis for axis in range(x.dim()) if axis != self.unit_axis % x.dim()]
        alive = ~silent.all(dim=others[0]) if len(others) == 1 else ~silent.movedim(self.unit_axis, 0).flatten(1).all(1)
        self._alive = alive if self._alive is None else self._alive | alive

    def _by_input(self, values: Tensor, batch: int | None) -> Tensor:
        """(inputs, values of each): whichever axis holds the inputs, or several rows for each."""
        if values.dim() < 2:
            values = values.reshape(-1, 1)
        if batch is None or values.shape[0] == batch:
            return values.flatten(1)
        if values.shape[1] == batch:
            return values.movedim(1, 0).flatten(1)
        if values.shape[0] % batch == 0:
            return values.reshape(batch, -1)
        raise ValueError(
            f"{self.name!r} reads a tensor of shape {tuple(values.shape)}, in which {batch} inputs cannot be told "
            f"apart; hush.diagnose takes inputs and models with the batch first."
        )

    def _read_cosines(self, rows: Tensor, norms: Tensor) -> None:
        # Half precision would lose small norms, and float32 those of a row of zeros: 0 is the cosine then.
        wide = rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
        unit = wide / norms.clamp(min=1e-30).to(wide.dtype)[:, None]
        cosines = unit @ unit.T
        self._cosine_sum = self._cosine_sum + (cosines.sum(dtype=torch.float64) - cosines.diagonal().sum())
        self._pairs += len(rows) * (len(rows) - 1)
        if not self.cosines:
            upper = torch.triu_indices(len(rows), len(rows), 1, device=rows.device)
            self.cosines.append(cosines[upper[0], upper[1]])

    def _read_tokens(self, h: Tensor) -> None:
        """The mean cosine between the vectors of two positions of one input, from the norm of their sum."""
        rows = h.movedim(self.unit_axis, -1).flatten(1, -2)
        count = rows.shape[1]
        if count > 1:
            wide = rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
            unit = wide / torch.linalg.vector_norm(wide, dim=-1, keepdim=True).clamp(min=1e-30)
            squares = unit.sum(1).square().sum(-1, dtype=torch.float64)
            self._token_sum = self._token_sum + ((squares - count) / (count * (count - 1))).sum()
            self._tokens += len(rows)

    def _read_gradient(self, gradient: Tensor, batch: int | None) -> None:
        rows = self._by_input(gradient.detach(), batch)
        self.squared_gradients.append(torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square())

    @property
    def units(self) -> int:
        return 0 if self._alive is None else self._alive.numel()

    @property
    def positions(self) -> int:
        return max(1, self._count // max(1, self.inputs * self.units))

    @property
    def sparsity(self) -> float:
        return float(self._zeros) / self._count

    @property
    def saturated(self) -> float:
        return float(self._saturated) / self._count

    @property
    def dead(self) -> float:
        return 0.0 if self._alive is None else 1.0 - float(self._alive.double().mean())

    @property
    def token_correlation(self) -> float | None:
        """Between positions of one input; None where there is one position."""
        return float(self._token_sum) / self._tokens if self._tokens else None

    @property
    def correlation(self) -> float | None:
        return float(self._cosine_sum) / self._pairs if self._pairs else None
