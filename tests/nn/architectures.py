"""Models of every shape, each with what is to be seen in it: chains that look odd, and things that are no chain."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)


class Layers(nn.Module):
    """Three Linear layers of width 16 and an activation; what is done with them is up to a subclass."""

    def __init__(self, phi: nn.Module) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.phi = phi


class Chain(Layers):
    """Functions between the layers that change nothing, and an input that is prepared by hand."""

    def forward(self, x: Tensor) -> Tensor:
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        h = F.dropout(self.phi(self.a(x)), 0.5, self.training).view(-1, 4, 4).flatten(1)
        return self.c(self.phi(self.b(h)).clone())


class Residual(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.c(h + self.b(self.phi(h)))


class ResidualInPlace(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h += self.b(self.phi(h))
        return self.c(h)


class ResidualAroundAll(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return x + self.c(self.phi(self.b(self.phi(self.a(x)))))


class SkipsAnActivation(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.b(h + self.phi(h))


class Concatenated(Layers):
    """As in a U-Net; the wide layer reads both."""

    def __init__(self, phi: nn.Module) -> None:
        super().__init__(phi)
        self.wide = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.phi(self.a(x))
        return self.c(self.phi(self.wide(torch.cat([h, self.phi(self.b(h))], 1))))


class Assigned(Layers):
    """Two streams brought together by assignment to parts of one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.phi(self.a(x))
        both = torch.zeros_like(h)
        both[:, :8] = h[:, :8]
        both[:, 8:] = self.b(h)[:, 8:]
        return self.c(both)


class Gate(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = self.phi(self.a(x))
        return self.c(h * torch.sigmoid(self.b(h)))


class NormByHand(Layers):
    def forward(self, x: Tensor) -> Tensor:
        h = self.phi(self.a(x))
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)
        return self.c(self.phi(self.b(h)))


class NormByFunction(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.phi(self.b(F.layer_norm(self.phi(self.a(x)), (16,)))))


class AttentionByHand(Layers):
    """All three from one layer, as ViTs have it."""

    def __init__(self, phi: nn.Module) -> None:
        super().__init__(phi)
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.phi(self.a(x))).chunk(3, -1)
        return self.c(torch.softmax(q @ k.mT, -1) @ v)


class Recurrent(Layers):
    def __init__(self, phi: nn.Module) -> None:
        super().__init__(phi)
        self.lstm = nn.LSTM(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.phi(self.b(self.lstm(self.phi(self.a(x)))[0])))


class Heads(Layers):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.phi(self.a(x))
        return {"b": self.b(h), "c": self.c(h)}


class UsedTwice(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.phi(self.b(self.phi(self.b(self.phi(self.a(x)))))))


def with_norm(phi: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), phi, nn.Linear(16, 16), phi, nn.Linear(16, 4))


def norm_in_front(phi: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 16), phi, nn.Linear(16, 16), phi, nn.Linear(16, 4))


def torch_transformer(phi: nn.Module) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation=phi, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


# What is no chain, and what a refusal has to name.
NO_CHAINS = [
    (Residual, "an add in Residual.forward joins a with b"),
    (ResidualInPlace, "joins a with b"),
    (ResidualAroundAll, "joins the input with c"),
    (SkipsAnActivation, "joins a with something else made of it"),
    (Concatenated, "a cat in Concatenated.forward joins a with b"),
    (Assigned, "joins a with b"),
    (Gate, "a mul in Gate.forward joins a with b"),
    (NormByHand, "a mul in NormByHand.forward joins a with something else made of it"),
    (NormByFunction, "the function layer_norm in NormByFunction.forward"),
    (AttentionByHand, "a matmul in AttentionByHand.forward joins qkv"),
    (Recurrent, "LSTM at 'lstm'"),
    (with_norm, "BatchNorm1d at '1'"),
    (torch_transformer, "MultiheadAttention at 'layers.0.self_attn', 'layers.1.self_attn'"),
]
CHAINS = [Chain, Heads, UsedTwice, norm_in_front]


def example(model: nn.Module, count: int = 4) -> Tensor:
    shape = (count, 5, 16) if isinstance(model, nn.TransformerEncoder) else (count, 16)
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))
