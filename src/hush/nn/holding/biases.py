"""Dead units brought back by the bias in front of them.

A unit that was silent for a whole window has no gradient that could change it. Its bias is moved by what its nearest
input of that window lacked, and a little more: so its strongest inputs, and only those, make it active again, and all
else is for training to decide. A bias is an ordinary parameter: every process, checkpoint, exporter and engine has it,
and in eval the model stays the function that its parameters and thresholds say.

Which bias that is shows in an ordinary forward: that of the layer whose output is the very tensor the activation reads.
"""

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from hush.nn.holding.gauges import Gauge

__all__ = ["BiasSearch", "bias_of", "move_biases"]

_MARGIN = 0.1  # of the layer's rms, beyond the threshold: at the threshold itself a unit would still be silent
_BIASED = (nn.Linear, nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


class BiasSearch:
    """Hooks that see which layer stands in front of each held activation, until the first step behind a forward."""

    def __init__(self, model: nn.Module, gauges: "Sequence[Gauge]") -> None:
        self.gauges = list(gauges)
        self.found: dict[Gauge, list[nn.Module | None]] = {}  # what each activation has read, call by call
        self._outputs: dict[nn.Module, weakref.ref[Tensor]] = {}
        self._handles = [m.register_forward_hook(self._remember) for m in model.modules() if isinstance(m, _BIASED)]
        self._handles += [gauge.module.register_forward_pre_hook(self._look, with_kwargs=True) for gauge in gauges]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_outputs": {}}  # references to the tensors of a run cannot be saved

    def _remember(self, module: nn.Module, _args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling() and isinstance(output, Tensor):
            self._outputs[module] = weakref.ref(output)

    def _look(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        x = args[0] if args else next(iter(named.values()))
        source = next((layer for layer, output in self._outputs.items() if output() is x), None)
        for gauge in self.gauges:
            if gauge.module is module:
                self.found.setdefault(gauge, []).append(source)

    def finish(self) -> bool:
        """Once something has run, tell the gauges what stands in front of them and be gone."""
        if not self.found:
            return False
        sources = {gauge: seen[0] for gauge, seen in self.found.items() if all(layer is seen[0] for layer in seen)}
        for gauge, source in sources.items():
            # A bias that two activations share would be moved for one and change the other.
            if source is not None and list(sources.values()).count(source) == 1:
                gauge.source = source
        self.leave()
        return True

    def leave(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._outputs.clear()


def bias_of(gauge: "Gauge") -> Tensor | None:
    """The bias in front of an activation that has one number for each of its units; None if there is none to move."""
    bias = getattr(gauge.source, "bias", None)
    units = gauge.units.active
    if not isinstance(bias, Tensor) or units is None or not bias.requires_grad:
        return None
    # Sharded parameters have the shape of their part, or are tensors of another kind.
    plain = type(bias.detach()) is Tensor and bias.shape == units.shape
    return bias if plain else None


def move_biases(gauge: "Gauge", silent: Tensor, highest: Tensor, lowest: Tensor | None) -> Tensor:
    """Move the biases of silent units towards the threshold, by the bounds of their inputs; which were moved."""
    bias = bias_of(gauge)
    assert bias is not None
    passes = gauge.module.threshold + _MARGIN * gauge.scale
    rise = passes - highest
    change = rise
    if lowest is not None:
        fall = passes + lowest
        change = torch.where(rise <= fall, rise, -fall)
        rise = torch.minimum(rise, fall)
    # Where the threshold has fallen far enough since, the next window may well find the unit active.
    moved = silent & rise.isfinite() & (rise > 0.0)
    bias.add_(torch.where(moved, change, 0.0).to(bias.device, bias.dtype))
    return moved
