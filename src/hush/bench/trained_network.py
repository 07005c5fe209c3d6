"""A really trained network: the masks of random weights are not those of learnt ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import hush.nn as hn
from hush import sparse
from hush.theory import design

__all__ = ["train_network"]


def train_network(
    images: Tensor, labels: Tensor, sparsity: float = 0.85, width: int = 300, depth: int = 30, epochs: int = 1
) -> tuple[nn.Sequential, float]:
    """A CReLU network after some epochs of SGD (batch 64, lr 1e-2, V′ = 0.7), of Linear and hush's own modules.

    And its accuracy on the last thousand training images, to show that it has learnt.
    """
    plan = design("crelu", sparsity, width=width, depth=depth, v_prime=0.7)
    torch.manual_seed(0)
    model = hn.mlp(images.shape[1], int(labels.max()) + 1, plan)
    hn.init_(model, plan)
    sparse.accelerate(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels)), 64):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(images[rows]), labels[rows]))
            optimizer.step()
    with torch.no_grad():
        right = float((model(images[-1000:]).argmax(1) == labels[-1000:]).float().mean())
    sparse.decelerate(model)
    return nn.Sequential(*(m for m in model if not isinstance(m, nn.Flatten))), right
