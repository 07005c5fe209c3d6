"""`center_gradients(model)`: the layers of a model, centred, and the handle that undoes it."""

import weakref
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from hush.nn.centering.centered_layer import CENTERED_KINDS, CenteredLayer
from hush.nn.centering.kept_means import listen_to_optimizers
from hush.nn.structure import listed

__all__ = ["Centering", "center_gradients"]


def center_gradients(model: nn.Module, *, keep_mean: bool = True, process_group: Any = None) -> "Centering":
    """Weights learn from what differs between the inputs of a batch; what is common to all is left to the biases.

        ∂L/∂W ← ∂L/∂W − ∂L/∂b ⊗ ā        ā: the mean of the layer's input over the batch (and over positions)
        b     ← b − ΔW ā                  behind every step ΔW of the optimizer, with keep_mean

    In deep sparse networks all but a few percent of every activation is common to all inputs. That common part has one
    huge eigenvalue, which bounds the learning rate of everything else; without it the differences learn (Schraudolph
    1998). The second line makes the two a step in the coordinates y = W(a − ā) + b′, in which a change of W does not
    move the mean. Outputs, the gradients of biases and those of inputs are not touched, and neither is anything in eval
    mode or under torch.no_grad().

        centering = hush.center_gradients(model)
        ...                                # the training loop as it was
        centering.remove()

    It takes every Linear and convolution, also those without bias (where ∂L/∂b is what the bias would have). Several
    backwards for one step add centred gradients, each by its own batch. Among several processes the mean is that of all
    of them, one small all-reduce a layer and forward, so every process must run the same layers in the same order, as
    with SyncBatchNorm. A model under `hush.sparse.accelerate` is centred in the kernels, fused updates included.

    Arguments:
        keep_mean: also take back by the bias what a step does to the mean; for steps of a `torch.optim` optimizer that
            has both weight and bias.
        process_group: the processes that train this model together; by default all.

    Raises:
        ValueError: if the model has no such layer.
    """
    return Centering(model, keep_mean, process_group)


class Centering:
    """The centred layers of a model; made by `center_gradients`. As a context manager it lets go at the end.

    Attributes:
        layers: names of the centred ones.
        left: names of modules with a weight matrix that is not centred: embeddings, transposed convolutions, and what a
            parent module reads by itself, as nn.MultiheadAttention does.
    """

    def __init__(self, model: nn.Module, keep_mean: bool = True, process_group: Any = None) -> None:
        taken, self.left = _sorted_modules(model)
        if not taken:
            raise ValueError(
                f"{type(model).__name__} has no Linear or convolution whose gradient could be centred; "
                f"it has {listed([type(m).__name__ for m in model.modules()], 6)}."
            )
        self._hooks: list[tuple[CenteredLayer, RemovableHandle]] = []
        told: list[str] = []
        for name, module in taken.items():
            # Who centres a model anew, a copy of a centred one for instance, wants it centred once.
            for key in [key for key, hook in module._forward_hooks.items() if isinstance(hook, CenteredLayer)]:
                del module._forward_hooks[key]
            layer = CenteredLayer(name, keep_mean, process_group, told)
            layer.module = weakref.ref(module)
            self._hooks.append((layer, module.register_forward_hook(layer)))
        self.layers = tuple(taken)
        if keep_mean:
            listen_to_optimizers()

    def remove(self) -> None:
        """Gradients are torch's own from the next forward on."""
        for layer, handle in self._hooks:
            handle.remove()
            layer.forget()
        self._hooks = []

    def __enter__(self) -> "Centering":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        count = len(self._hooks)
        left = f"; left as they are: {listed(self.left)}" if self.left else ""
        return f"Centering of {count} {'layer' if count == 1 else 'layers'}{left}"


def _sorted_modules(model: nn.Module) -> tuple[dict[str, nn.Module], tuple[str, ...]]:
    """What is taken, by name, and what else has a weight of two or more dimensions."""
    read_by_parent = {id(module.out_proj) for module in model.modules() if isinstance(module, nn.MultiheadAttention)}
    taken: dict[str, nn.Module] = {}
    left: list[str] = []
    for name, module in model.named_modules():
        name = name or type(module).__name__
        if isinstance(module, CENTERED_KINDS) and id(module) not in read_by_parent:
            taken[name] = module
        elif any(p is not None and p.dim() > 1 for p in module._parameters.values()):
            left.append(name)
    return taken, tuple(left)
