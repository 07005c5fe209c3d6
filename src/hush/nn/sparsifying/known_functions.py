"""The thresholded form of an activation, chosen by what it computes and not by what it is called.

Libraries have a dozen classes for GELU alone, functions stand in attributes, and a class of somebody's own may compute
anything. So each is tried on numbers, and whatever is neither ReLU nor GELU nor SiLU there is none of them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

from hush.nn.activations import FATReLU, Thresholded
from hush.nn.functional import gelu
from hush.nn.thresholded_forms import ThresholdedGELU, ThresholdedSiLU

__all__ = ["FORMS", "KeepsLarge", "dense_output", "thresholded_form"]

# What `sparsify` puts in place: each keeps φ(x) where |φ(x)| > τ.
KeepsLarge = FATReLU | ThresholdedGELU | ThresholdedSiLU


def _gelu_with(approximate: str) -> tuple[Callable[[Tensor], Tensor], Callable[[], KeepsLarge]]:
    return (lambda x: gelu(x, approximate)), (lambda: ThresholdedGELU(0.0, approximate, in_state_dict=True))


# name, as configurations have it: the function, and its thresholded form at τ = 0
FORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], KeepsLarge]]] = {
    "fatrelu": (F.relu, lambda: FATReLU(0.0, in_state_dict=True)),
    "thresholded_gelu": _gelu_with("none"),
    "thresholded_gelu_tanh": _gelu_with("tanh"),
    "thresholded_gelu_sigmoid": _gelu_with("sigmoid"),
    "thresholded_silu": (F.silu, lambda: ThresholdedSiLU(0.0, in_state_dict=True)),
}


def thresholded_form(held: Callable[..., Any]) -> tuple[str, KeepsLarge] | None:
    """The name and a new module of the thresholded form of what `held` computes; None where there is none.

    Of a form that has a threshold already the new one has the same.
    """
    if isinstance(held, Thresholded):
        return _form_again(held)
    # Near 0, where they differ, and far out, where some are clipped.
    x = torch.cat([torch.linspace(-8.0, 8.0, 1601), torch.tensor([-1e4, -100.0, -20.0, 20.0, 100.0, 1e4])])
    try:
        # A forward that draws random numbers must not take them from anybody; and hooks are not for this.
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            y = (held.forward if isinstance(held, nn.Module) else held)(x.clone())
    except Exception:
        return None  # it wants something else than one tensor of any shape: no activation as these are
    if not isinstance(y, Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        return None
    for name, (function, make) in FORMS.items():
        # The two GELUs differ by 5e-4, and one activation in two spellings by some units of the last place.
        if torch.allclose(y, function(x), rtol=1e-6, atol=2e-6):
            return name, make()
    return None


def dense_output(module: KeepsLarge, x: Tensor) -> Tensor:
    """φ(x) of a thresholded form, without its threshold."""
    if isinstance(module, ThresholdedGELU):
        return gelu(x, module.approximate)
    return F.silu(x) if isinstance(module, ThresholdedSiLU) else F.relu(x)


def _form_again(held: Thresholded) -> tuple[str, KeepsLarge] | None:
    # Another class may compute anything.
    if type(held) not in (FATReLU, ThresholdedGELU, ThresholdedSiLU) or isinstance(held.threshold, Tensor):
        return None
    name = held.activation
    if isinstance(held, ThresholdedGELU) and held.approximate != "none":
        name = f"{name}_{held.approximate}"
    module = FORMS[name][1]()
    module.threshold = held.threshold
    return name, module
