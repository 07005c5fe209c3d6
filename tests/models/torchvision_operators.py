"""The two operators that importing torchvision, and so timm, expects of torchvision's compiled part.

torchvision's compiled part fits only the torch it was built beside, which is none of the CPU builds; so it is installed
without its dependencies here, and that part does not load. The models of timm and transformers need nothing of it, but
torchvision describes these two operators when it is imported and fails where nobody has declared them.
"""

import torch

__all__ = ["declare_operators"]


def declare_operators() -> None:
    """Before the first import of torchvision, timm or transformers' models."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
