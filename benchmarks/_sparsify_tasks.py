"""The two dense networks of `benchmarks.sparsify`, and what they learn: a GELU transformer and a ReLU ResNet."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush
from hush.data.text import load_text, spread_windows, windows_at
from hush.nn import gpt, resnet

__all__ = ["TASKS", "Task", "dense_model", "judge", "loss_of"]


@dataclass(frozen=True)
class Task:
    """One network and its data.

    Attributes:
        make: the network as it begins.
        batch: inputs and labels of a training step, by the generator's draw.
        test: inputs and labels to judge by.
        steps, rate: of the dense training: AdamW, a warm-up of a tenth, then a cosine down to a tenth of the rate.
        tuning_rate: of the steps afterwards, which stays as it is.
    """

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    test: tuple[Tensor, Tensor]
    steps: int
    rate: float
    tuning_rate: float


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def _text() -> Task:
    data = load_text()
    context = 128

    def make() -> nn.Module:
        design = hush.design("gelu", width=128, depth=4, block="feedforward", norm="rms", hidden=512)
        model = gpt(nn.GELU, layers=4, width=128, context=context)
        example = spread_windows(data.train, context, 8).images
        hush.init_(model, design, example, generator=torch.Generator().manual_seed(0))
        return model

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(data.train) - context - 1, (16,), generator=generator)
        part = windows_at(data.train, starts, context)
        return part.images, part.labels

    test = spread_windows(data.test, context, 160)
    return Task("text", make, batch, (test.images, test.labels), 1800, 2e-3, 3e-4)


def _images() -> Task:
    data = hush.data.load("cifar10", flat=False, shrink=2)
    images, labels = data.train.images, data.train.labels

    def make() -> nn.Module:
        torch.manual_seed(0)
        return resnet(3, 10, nn.ReLU, blocks=3, channels=16)

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        part = torch.randint(len(images), (128,), generator=generator)
        chosen = images[part]
        flipped = torch.rand(len(part), generator=generator) < 0.5
        chosen[flipped] = chosen[flipped].flip(-1)
        return chosen, labels[part]

    test = data.test.images[:3000], data.test.labels[:3000]
    return Task("images", make, batch, test, 1000, 2e-3, 3e-4)


TASKS: dict[str, Callable[[], Task]] = {"text": _text, "images": _images}


@torch.no_grad()
def judge(model: nn.Module, task: Task) -> tuple[float, float]:
    """Loss and accuracy on the test data, in eval mode."""
    training = model.training
    model.eval()
    logits = torch.cat([model(part) for part in task.test[0].split(250)])
    model.train(training)
    right = (logits.argmax(-1) == task.test[1]).double().mean()
    return float(loss_of(logits, task.test[1])), float(right)


def dense_model(task: Task, file: Path) -> nn.Module:
    """The trained network: out of the file, or trained now, from where the file stopped, and kept there."""
    model = task.make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate)
    generator, first = torch.Generator().manual_seed(0), 0
    if file.exists():
        kept = torch.load(file)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        generator.set_state(kept["generator"])
        first = kept["step"]
    for step in range(first, task.steps):
        optimizer.param_groups[0]["lr"] = task.rate * _schedule(step / task.steps)
        inputs, labels = task.batch(generator)
        optimizer.zero_grad()
        loss = loss_of(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0 or step + 1 == task.steps:
            print(f"{task.name}: step {step + 1}, loss {float(loss.detach()):.4f}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".partial")
            torch.save({**state, "generator": generator.get_state()}, partial)
            partial.replace(file)
    return model


def _schedule(done: float) -> float:
    return done / 0.1 if done < 0.1 else 0.55 + 0.45 * math.cos(math.pi * (done - 0.1) / 0.9)
