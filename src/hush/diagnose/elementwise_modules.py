"""Which modules are activations, those that nobody registered included: Hugging Face's, timm's, one's own."""

import torch
from torch import Tensor, nn

from hush.nn.recognise import is_activation

__all__ = ["activation_modules", "acts_entry_by_entry"]


def activation_modules(model: nn.Module) -> dict[nn.Module, str]:
    """Every activation of `model`, known by its type or found out by trying, with its name."""
    return {
        module: name for name, module in model.named_modules() if is_activation(module) or acts_entry_by_entry(module)
    }


def acts_entry_by_entry(module: nn.Module) -> bool:
    """Whether a module without parts or parameters is an elementwise function that is not affine.

    It is tried on a few numbers: the same numbers in another order must give the same results in that order.
    Modules of torch itself are known by their type, and are not tried.
    """
    if type(module).__module__.startswith("torch.") or next(module.children(), None) is not None:
        return False
    if next(module.parameters(), None) is not None or next(module.buffers(), None) is not None:
        return False
    probe = torch.linspace(-3.0, 3.0, 12, device="cpu").view(2, 6)
    mode = module.training
    try:
        module.training = False
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            plain, turned = type(module).forward(module, probe.clone()), type(module).forward(module, probe.flip(1))
    except Exception:
        # It wants something else than one tensor, so it is no activation.
        return False
    finally:
        module.training = mode
    if not isinstance(plain, Tensor) or not isinstance(turned, Tensor) or plain.shape != probe.shape:
        return False
    steps = plain.flatten().diff()
    return torch.allclose(plain.flip(1), turned) and not torch.allclose(steps, steps[0].expand_as(steps), atol=1e-5)
