"""How a network of this package was built, read off its layers: plain values that build it again."""

from typing import Any

from torch import nn

from hush.nn.models.residual_mlps import OneMatrixBlock, ResidualMLP, TwoMatrixBlock
from hush.nn.models.resnets import ResNet, ResNetBlock
from hush.nn.models.transformers import GPT, GatedFeedForward, TransformerLayer

__all__ = ["describe_network"]

_NORMS = {nn.RMSNorm: "rms", nn.LayerNorm: "layer", nn.GroupNorm: "layer", nn.BatchNorm2d: "batch", nn.Identity: None}


def describe_network(model: nn.Module) -> dict[str, Any]:
    """Its `kind`, the name of the function of `hush.nn` that made it, and the arguments beside the activation.

    Raises:
        ValueError: if none of them made it.
    """
    match model:
        case ResidualMLP():
            return {"kind": "residual_mlp", **_residual_mlp(model)}
        case ResNet():
            return {"kind": "resnet", **_resnet(model)}
        case GPT():
            return {"kind": "gpt", **_gpt(model)}
        case nn.Sequential():
            return _chain(model)
    raise _not_ours()


def _residual_mlp(model: ResidualMLP) -> dict[str, Any]:
    block = model.blocks[0]
    assert isinstance(block, (OneMatrixBlock, TwoMatrixBlock))
    return {
        "in_features": model.stem.in_features,
        "out_features": model.head.out_features,
        "blocks": len(model.blocks),
        "width": model.stem.out_features,
        "hidden": block.up.out_features if isinstance(block, TwoMatrixBlock) else None,
        "norm": _NORMS[type(model.norm)],
        "branch_scale": _scale(block.scale),
    }


def _resnet(model: ResNet) -> dict[str, Any]:
    block = model.blocks[0]
    assert isinstance(block, ResNetBlock)
    return {
        "in_channels": model.stem.in_channels,
        "out_features": model.head.out_features,
        "blocks": len(model.blocks),
        "channels": model.stem.out_channels,
        "norm": _NORMS[type(model.norm)],
        "branch_scale": _scale(block.scale),
        "padding": model.stem.padding_mode,
    }


def _gpt(model: GPT) -> dict[str, Any]:
    layer = model.layers[0]
    assert isinstance(layer, TransformerLayer)
    return {
        "layers": len(model.layers),
        "width": model.head.in_features,
        "heads": layer.attention.heads,
        "hidden": layer.feed_forward.up.out_features,
        "context": model.context,
        "gated": isinstance(layer.feed_forward, GatedFeedForward),
        "norm": _NORMS[type(model.norm)],
        "branch_scale": _scale(layer.attention_scale),
    }


def _scale(scale: float | nn.Parameter) -> float | str:
    return "learned" if isinstance(scale, nn.Parameter) else scale


def _chain(model: nn.Sequential) -> dict[str, Any]:
    names = [name for name, _ in model.named_children()]
    first, head = getattr(model, "layer1", None), getattr(model, "head", None)
    depth = sum(name.startswith("layer") for name in names)
    if not isinstance(first, (nn.Linear, nn.Conv1d, nn.Conv2d)) or not isinstance(head, nn.Linear):
        raise _not_ours()
    if isinstance(first, nn.Linear):
        sizes = {"in_features": first.in_features, "out_features": head.out_features, "width": first.out_features}
        return {"kind": "mlp", "depth": depth, **sizes}
    pooled = "pool" in names
    return {
        "kind": "cnn",
        "depth": depth,
        "in_channels": first.in_channels,
        "out_features": head.out_features,
        "channels": first.out_channels,
        "kernel": first.kernel_size[0],
        "dims": len(first.kernel_size),
        "padding": first.padding_mode,
        "pool": "average" if pooled else "none",
        "positions": None if pooled else head.in_features // first.out_channels,
    }


def _not_ours() -> ValueError:
    return ValueError(
        "only networks made by hush.nn.mlp, cnn, residual_mlp, resnet or gpt can be saved so; "
        "keep others by state_dict."
    )
