"""torch.compile: the hook is compiled with the model, and the mean that is kept comes out of the graph."""

import copy

import torch
from torch import nn

import hush


def test_a_compiled_model_takes_the_same_steps() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    other = copy.deepcopy(plain)
    for model in (plain, other):
        hush.center_gradients(model)
    # The backend runs the graph as it was captured; what matters here is that it can be.
    compiled = torch.compile(other, backend="eager")
    for model, run in ((plain, plain), (other, compiled)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step)) + 1.0
            optimizer.zero_grad()
            run(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
