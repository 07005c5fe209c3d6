"""The embedded digits, as the command line and the examples use them."""

import numpy as np
import torch
from torch import Tensor

__all__ = ["digits"]


def digits(count: int = 256, variance: float = 1.0) -> tuple[Tensor, Tensor]:
    """(inputs of 64 pixels, labels): the first `count` digits, standardised over the data set to this variance.

    Raises:
        ImportError: without scikit-learn, which the extra `train` brings.
    """
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'hush[train]'.") from error
    images, labels = load_digits(return_X_y=True)
    if not 1 <= count <= len(images):
        raise ValueError(f"there are {len(images)} digits, got a count of {count}.")
    images = (images - images.mean()) / images.std() * np.sqrt(variance)
    return torch.tensor(images[:count], dtype=torch.float32), torch.tensor(labels[:count])
