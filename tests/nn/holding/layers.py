"""Small things to hold."""

import torch
from torch import nn

import hush.nn as hn

WIDTH = 256

ACTIVATIONS = {
    "crelu": lambda: hn.CReLU(1.0, 1.0),
    "cst": lambda: hn.CST(1.0, 1.0),
    "shifted_relu": lambda: hn.ShiftedReLU(1.0),
    "soft_threshold": lambda: hn.SoftThreshold(1.0),
    "fatrelu": lambda: hn.FATReLU(1.0),
}


class Gaussian(nn.Module):
    """An activation on its own, with a parameter beside it so that an optimizer has something to step."""

    def __init__(self, act):
        super().__init__()
        self.act = act
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.act(x) + self.offset


def network(act=ACTIVATIONS["crelu"], seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 48), act(), nn.Linear(48, 40), act(), nn.Linear(40, 3))
    for p in model.parameters():
        p.data.normal_(0.0, 1.0 / p.shape[-1] ** 0.5, generator=generator)
    return model


def batches(count, size=32, seed=1, features=12):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, features, generator=generator) for _ in range(count)]


def take_step(model, optimizer, *parts):
    """One optimizer step over some batches."""
    optimizer.zero_grad()
    for x in parts:
        (model(x).square().mean() / len(parts)).backward()
    optimizer.step()


def sgd(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def thresholds(model):
    return [m.threshold for m in model.modules() if hasattr(m, "threshold")]
