"""All 1,797 embedded digits in their own order, standardised; the splits of hush.data are for training."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor


def digits(count: int, variance: float = 1.0) -> tuple[Tensor, Tensor]:
    """(inputs of 64 pixels, labels): the first `count` digits, of this variance over the data set."""
    images, labels = load_digits(return_X_y=True)
    images = (images - images.mean()) / images.std() * variance**0.5
    return torch.tensor(images[:count], dtype=torch.float32), torch.tensor(labels[:count])
