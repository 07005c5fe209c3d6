"""Keep a Hugging Face configuration true after a swap.

`from_pretrained` builds a model from its configuration before it loads the weights. One that still says "gelu" would
bring the old activations back, with no more than a line in a log.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from hush.nn.structure import listed
from hush.nn.swap_report import LeftActivation, Swapped

__all__ = ["update_configs"]

# The entries by which nearly all of transformers' models choose the activation of their hidden layers.
_FIELDS = ("activation_function", "hidden_act", "hidden_activation")


def update_configs(
    model: nn.Module, activation: str, swapped: Sequence[Swapped], left: Sequence[LeftActivation]
) -> tuple[str, ...]:
    """Write `activation` into every configuration that described what was swapped; what to know of each, in words."""
    notes, seen = [], set()
    for name, module in model.named_modules():
        config = getattr(module, "config", None)
        if config is None or not hasattr(module, "save_pretrained") or id(config) in seen:
            continue
        seen.add(id(config))
        gone = [entry for entry in swapped if entry.name.startswith(f"{name}." if name else "")]
        stays = [entry for entry in left if entry.name.startswith(f"{name}." if name else "")]
        if gone:
            notes.append(_update(config, activation, gone, stays))
    return tuple(notes)


def _update(config: Any, activation: str, gone: Sequence[Swapped], stays: Sequence[LeftActivation]) -> str:
    fields = [field for field in _FIELDS if isinstance(getattr(config, field, None), str)]
    kinds = {entry.was for entry in gone}
    alike = [entry.name for entry in stays if entry.was in kinds]
    if len(fields) == 1 and len(kinds) == 1 and not alike:
        setattr(config, fields[0], activation)
        return (
            f"config.{fields[0]} is now {activation!r}. Where the model is loaded again, call "
            "hush.integrations.huggingface.register_activations() before from_pretrained."
        )
    what = " and ".join(f"{field}={getattr(config, field)!r}" for field in fields) or "nothing of its activation"
    why = f", which {listed(alike)} uses as well" if alike else ""
    return (
        f"The model's config says {what}{why}, so it was left; from_pretrained would bring the old activations back: "
        "build the model from its config, swap as here, and load_state_dict the saved weights."
    )
