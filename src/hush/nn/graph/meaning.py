"""What one call of a torch function is: its kind, and what the theory needs to know of its arguments."""

import inspect
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hush.nn.graph.nodes import Kind
from hush.nn.recognise import phi_of, phi_of_function
from hush.nn.torch_functions import (
    ADDITIONS,
    ATTENTIONS,
    ELEMENTWISE_ACTIVATIONS,
    HUSH_ACTIVATIONS,
    JOINTS,
    LINEAR_MAPS,
    MULTIPLICATIONS,
    NORMALISATIONS,
    POOLINGS,
    REARRANGEMENTS,
    TABLES,
)
from hush.theory import Activation

__all__ = ["Meaning", "layer_module_options", "meaning_of"]


class Meaning(NamedTuple):
    kind: Kind
    options: dict[str, Any]


_NORMS = {
    "batch_norm": "batch",
    "group_norm": "group",
    "instance_norm": "instance",
    "layer_norm": "layer",
    "rms_norm": "rms",
}
# The arguments of functions that are built into torch, which Python's inspect cannot read.
_SIGNATURES = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("bias", "input", "weight"),
    "baddbmm": ("bias", "input", "weight"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"),
    **{f"conv{n}d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups") for n in (1, 2, 3)},
    **{
        f"conv_transpose{n}d": (
            *("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
        )
        for n in (1, 2, 3)
    },
    "avg_pool2d": ("input", "kernel_size", "stride"),
    "avg_pool1d": ("input", "kernel_size", "stride"),
    "avg_pool3d": ("input", "kernel_size", "stride"),
}
_MODULES: dict[str, type[nn.Module]] = {
    name.lower(): kind
    for name, kind in vars(torch.nn.modules.activation).items()
    if isinstance(kind, type) and issubclass(kind, nn.Module)
} | {"leaky_relu": nn.LeakyReLU}


def meaning_of(func: Any, name: str, args: Any, kwargs: Any, tracked: list[Tensor], names: dict[int, str]) -> Meaning:
    """The kind of a call and its options.

    Arguments:
        tracked: those of its tensors that come from the input; one that is given twice counts twice.
        names: of the parameters among its tensors, by the id of the tensor.
    """
    given = _arguments(func, name, args, kwargs)
    known = {id(tensor) for tensor in tracked} | set(names)
    if func in HUSH_ACTIVATIONS or func in ELEMENTWISE_ACTIVATIONS:
        return Meaning("activation", {"module": "", "phi": _phi(func, name, given)})
    if func in TABLES:
        return Meaning("embedding", {"weight": _name(given.get("weight"), names)})
    if func in ATTENTIONS:
        options = {
            "causal": bool(given.get("is_causal", False)),
            "masked": given.get("attn_mask") is not None,
            "factor": given.get("scale"),
        }
        return Meaning("attention", options)
    if func in NORMALISATIONS:
        return Meaning("norm", _norm(name, given, names))
    if func in LINEAR_MAPS and names and tracked:
        return Meaning("layer", _linear_map(name, given, args, names))
    if func in ADDITIONS:
        constants = [_square(each) for each in args[:2] if id(each) not in known]
        options = {"sign": -1.0 if "sub" in name else 1.0}
        return Meaning("add", {**options, "constant": constants[0]} if constants else options)
    if func in MULTIPLICATIONS:
        if len(tracked) > 1:
            return Meaning("product", {})
        return Meaning("scale", _scale(name, [each for each in args if each is not tracked[0]], names))
    if func in JOINTS:
        return Meaning("concat", {"axis": given.get("dim", args[1] if len(args) > 1 else 0)})
    if func in POOLINGS:
        return Meaning("pool", {key: given[key] for key in ("kernel_size", "stride", "dim") if key in given})
    if func in REARRANGEMENTS:
        return Meaning("rearrange", {})
    return Meaning("product" if len(tracked) > 1 and name in ("matmul", "bmm", "einsum") else "other", {})


def layer_module_options(module: nn.Module) -> dict[str, Any]:
    """The options of a Linear or convolution that runs as one piece."""
    weight: Any = module.weight
    options: dict[str, Any] = {"op": "linear", "fan_in": int(weight[0].numel()), "groups": 1, "weight_is_in_out": False}
    if isinstance(module, nn.modules.conv._ConvNd):
        options |= {
            "op": f"conv{weight.dim() - 2}d",
            "groups": module.groups,
            "stride": module.stride,
            "padding": module.padding,
            "dilation": module.dilation,
            "kernel": tuple(module.kernel_size),
        }
    return options


def _arguments(func: Any, name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments by name, as far as the names can be known."""
    if name in _SIGNATURES:
        return {**dict(zip(_SIGNATURES[name], args, strict=False)), **kwargs}
    try:
        bound = inspect.signature(func).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return dict(kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _phi(func: Any, name: str, given: dict[str, Any]) -> Activation | None:
    """φ of an activation that is called as a function."""
    if func in HUSH_ACTIVATIONS:
        return phi_of_function(name, given)
    kind = _MODULES.get(name)
    if kind is None:
        return None
    wanted = {key: value for key, value in given.items() if key in inspect.signature(kind).parameters}
    wanted.pop("inplace", None)
    try:
        return phi_of(kind(**wanted))
    except (TypeError, ValueError):
        return None


def _norm(name: str, given: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    return {
        "norm": _NORMS.get(name, "other"),
        "eps": given.get("eps"),
        "weight": _name(given.get("weight"), names),
        "bias": _name(given.get("bias"), names),
        "groups": given.get("num_groups"),
    }


def _linear_map(name: str, given: dict[str, Any], args: Any, names: dict[int, str]) -> dict[str, Any]:
    products = name in ("matmul", "mm", "bmm", "addmm", "baddbmm")
    if name in ("matmul", "mm", "bmm"):
        given = dict(zip(("input", "weight"), args, strict=False))
        if _name(given.get("input"), names) and not _name(given.get("weight"), names):
            given = {"input": given["weight"], "weight": given["input"].mT}
    weight, bias = given.get("weight"), given.get("bias")
    options: dict[str, Any] = {
        "op": name,
        "weight": _name(weight, names),
        "bias": _name(bias, names),
        "groups": int(given.get("groups", 1) or 1),
        # x @ W.T, where W is stored as a Linear's weight is, is not contiguous.
        "weight_is_in_out": products and isinstance(weight, Tensor) and weight.is_contiguous(),
        "fan_in": 0,
    }
    if isinstance(weight, Tensor):
        options["fan_in"] = int(weight.shape[-2] if products else weight[0].numel())
        if name.startswith("conv"):
            options["kernel"] = tuple(weight.shape[2:])
            options |= {key: given[key] for key in ("stride", "padding", "dilation") if key in given}
    return options


def _scale(name: str, others: list[Any], names: dict[int, str]) -> dict[str, Any]:
    """What a stream is multiplied with, or divided by."""
    value = others[0] if others else 1.0
    factor = math.sqrt(_square(value))
    if "div" in name and factor:
        factor = 1.0 / factor
    return {"factor": factor, "parameter": _name(value, names)}


def _square(value: Any) -> float:
    if isinstance(value, Tensor):
        return float(value.detach().double().square().mean()) if value.numel() else 0.0
    return float(value) ** 2 if isinstance(value, (int, float)) else 0.0


def _name(value: Any, names: dict[int, str]) -> str:
    return names.get(id(value), "") if isinstance(value, Tensor) else ""
