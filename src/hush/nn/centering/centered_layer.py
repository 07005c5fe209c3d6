"""One centred layer: a forward hook that takes the mean input out of the weight's gradient.

    ∂L/∂W = Σ_b δ_b ⊗ (a_b − ā) = Σ_b δ_b ⊗ a_b − (Σ_b δ_b) ⊗ ā

The hook adds c.detach() − c to the layer's output, c = Wā: zero, with just that gradient. So it is a matter of each
call alone, and whatever sums, scales, averages or differentiates gradients further on (accumulation, a weight used
twice, autocast, torch.compile, torch.func) finds an ordinary graph. Bias and input of the layer keep their gradients.
"""

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = [
    "CENTERED_KINDS",
    "CenteredLayer",
    "centered_layer_of",
    "centered_output",
    "output_of_mean",
    "share_means",
    "waiting_layers",
]

CENTERED_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_layers: "weakref.WeakSet[CenteredLayer]" = weakref.WeakSet()
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class CenteredLayer:
    """The hook of one layer; and since the last step of the optimizer its mean input ā, and what Wā was before it."""

    def __init__(self, name: str, keep_mean: bool, process_group: Any = None, told: list[str] | None = None) -> None:
        self.name, self.keep_mean, self.process_group = name, keep_mean, process_group
        self._told = [] if told is None else told  # of single rows; all layers of a model have the same list
        self.mean: Tensor | None = None
        self.before: Tensor | None = None
        self.rows = 0.0
        self.version = -1  # of the weight that `before` is of
        self.module: weakref.ref[nn.Module] | None = None  # whose inputs were noted
        _layers.add(self)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has a module of its own, and a group of processes belongs to the process it was made in.
        return {**self.__dict__, "process_group": None, "module": None, "mean": None, "before": None, "rows": 0.0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _layers.add(self)

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        weight = module.weight
        if not (module.training and torch.is_grad_enabled() and isinstance(weight, Tensor) and weight.requires_grad):
            return None
        values, rows = _rows(module, inputs[0])
        (mean,), shared_rows = share_means([values.detach().mean(0)], rows, self.process_group)
        self.note(module, mean, shared_rows)
        return centered_output(module, output, weight, mean)

    def note(self, module: nn.Module, mean: Tensor, rows: float) -> None:
        """A batch of so many rows with this mean input has gone through the layer."""
        if rows == 1 and not self._told and not torch.compiler.is_compiling():
            self._told.append(self.name)
            warnings.warn(
                f"the layer {self.name!r} was given a single row: the mean of one is the row itself, so the centred "
                "gradient of its weight is 0; center_gradients needs larger batches.",
                stacklevel=3,
            )
        weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
        transformed = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
        if not (self.keep_mean and rows and weight is not None and bias is not None) or transformed:
            return
        if self.module is None or self.module() is not module:
            self.module = weakref.ref(module)
        # Wā is taken now and not when the step begins: with a closure the forward is a part of the step.
        with torch.no_grad(), torch.autocast(weight.device.type, enabled=False):
            mean = mean.detach().to(torch.promote_types(mean.dtype, torch.float32))
            before = output_of_mean(module, weight, mean)
        version = weight._version
        if self.mean is None or self.before is None or self.version != version:
            self.mean, self.before, self.rows, self.version = mean.clone(), before, float(rows), version
        else:
            self.rows += rows
            self.mean = self.mean + (mean - self.mean) * (rows / self.rows)
            self.before = self.before + (before - self.before) * (rows / self.rows)

    def forget(self) -> None:
        self.mean, self.before, self.rows = None, None, 0.0


def centered_layer_of(module: nn.Module) -> CenteredLayer | None:
    """The hook of a layer that has no other; None where there is none, or somebody else listens too."""
    hooks = module.__dict__["_forward_hooks"]
    if len(hooks) != 1 or any(module.__dict__[name] for name in _HOOKS[1:]):
        return None
    (hook,) = hooks.values()
    return hook if isinstance(hook, CenteredLayer) else None


def waiting_layers() -> list[tuple[nn.Module, CenteredLayer]]:
    """Every module that has noted a mean input since its last step, with its hook."""
    found = [(layer.module(), layer) for layer in list(_layers) if layer.module is not None]
    return [(module, layer) for module, layer in found if module is not None and layer.mean is not None]


def output_of_mean(module: nn.Module | None, weight: Tensor, mean: Tensor) -> Tensor:
    """Wā by output; of a convolution every place of the kernel reads the same mean, that of the channel."""
    mean = mean.to(weight.dtype)
    if weight.dim() == 2:
        return nn.functional.linear(mean, weight)
    groups = int(module.groups)  # type: ignore[union-attr, arg-type]
    summed = weight.flatten(2).sum(2).unflatten(0, (groups, -1))  # (groups, out / groups, in / groups)
    return torch.einsum("goi,gi->go", summed, mean.unflatten(0, (groups, -1))).flatten()


def centered_output(module: nn.Module | None, output: Tensor, weight: Tensor, mean: Tensor) -> Tensor:
    """`output`, with Wā taken out of the gradient of W."""
    common = output_of_mean(module, weight, mean).to(output.dtype)
    common = common.reshape(-1, *[1] * (weight.dim() - 2))
    return output + (common.detach() - common)


def share_means(means: Sequence[Tensor], rows: float, process_group: Any) -> tuple[list[Tensor], float]:
    """The means over the batches of all processes that train together, and their rows."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(process_group) == 1:
        return list(means), rows
    flat = torch.cat([m.reshape(-1).to(torch.float32) for m in means]) * rows
    flat = torch.cat([flat, flat.new_tensor([rows])])
    dist.all_reduce(flat, group=process_group)
    total = float(flat[-1])
    shared = (flat[:-1] / max(total, 1.0)).split([m.numel() for m in means])
    return [s.reshape(m.shape) for s, m in zip(shared, means, strict=True)], total


def _rows(module: nn.Module, x: Tensor) -> tuple[Tensor, int]:
    """The inputs as rows (batch and positions, features), and how many there are."""
    if isinstance(module, nn.Linear):
        rows = x.reshape(-1, x.shape[-1])
    else:
        spatial = module.weight.dim() - 2  # type: ignore[operator]
        rows = x.movedim(-1 - spatial, -1).reshape(-1, x.shape[-1 - spatial])
    return rows, rows.shape[0]
