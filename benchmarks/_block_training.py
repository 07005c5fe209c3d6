"""One short training of a residual network by the one recipe that all of them get, and what came of it."""

import math
import time
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

import hush
from benchmarks._block_networks import ResidualNetwork, Setting, figures_of
from hush.train.outcome import Outcome, judge_run

# Chosen on ReLU and GELU networks with rightly drawn weights only, before any other network was trained.
# 0.01 is the highest of 0.003, 0.01, 0.03 and 0.1 at which all fourteen of those trained.
RATE, MOMENTUM, BATCH, STEPS = 0.01, 0.9, 64, 300
# The second recipe, to see how far the rule depends on the first; torch's own default rate.
ADAMW_RATE = 1e-3
# The loss is averaged over so many steps, which stand for an epoch when the outcome is judged.
STRETCH = 50
# Training images taken of MNIST; of the digits all are.
IMAGES = 10_000
# Images of the batch on which the figures at initialisation are measured.
PROBED = 128


@cache
def data_of(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train on, images and labels to test on; variance 1 over the data set."""
    splits = hush.data.load(name)
    train, test = splits.train, splits.test
    return train.images[:IMAGES], train.labels[:IMAGES], test.images[:2000], test.labels[:2000]


def train(setting: Setting, optimizer_name: str = "sgd") -> dict[str, object]:
    """Outcome, accuracy, losses and sparsity after training, with no clipping of gradients and a constant rate."""
    began = time.perf_counter()
    images, labels, test_images, test_labels = data_of(setting.data)
    model = ResidualNetwork(setting, images.shape[1])
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        if optimizer_name == "sgd"
        else torch.optim.AdamW(model.parameters(), lr=ADAMW_RATE)
    )
    generator = torch.Generator().manual_seed(setting.seed)
    losses: list[float] = []
    diverged = False
    order = torch.empty(0, dtype=torch.long)
    for _ in range(STEPS):
        if len(order) < BATCH:
            order = torch.randperm(len(images), generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        loss = F.cross_entropy(model(images[chosen] * setting.input_scale), labels[chosen])
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            diverged = True
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        kept: list[Tensor] = []
        logits = model(test_images * setting.input_scale, None, kept)
        diverged = diverged or not bool(logits.isfinite().all())
        accuracy = float((logits.argmax(1) == test_labels).double().mean())
        pairs = zip(model.blocks, kept, strict=True)
        zeros = float(torch.stack([(block.activation(h) == 0).double().mean() for block, h in pairs]).mean())
    stretches = [sum(part) / len(part) for i in range(0, len(losses), STRETCH) if (part := losses[i : i + STRETCH])]
    outcome, why = judge_run(accuracy, 10, stretches, diverged=diverged)
    return {
        "outcome": outcome.value,
        "trained": outcome is Outcome.TRAINED,
        "why": why,
        "accuracy": accuracy,
        "losses": stretches,
        "sparsity_after": math.nan if diverged else zeros,
        "seconds": time.perf_counter() - began,
    }


def measure(setting: Setting) -> dict[str, float]:
    images, labels, _, _ = data_of(setting.data)
    return figures_of(setting, images[:PROBED], labels[:PROBED])
