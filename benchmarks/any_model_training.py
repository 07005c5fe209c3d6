"""Does a ResNet of timm's train after `hush.init_`, where its own initialisation meets activations with a threshold?

    python -m benchmarks.any_model_training --out docs/results/any_model_training.md     some eight minutes on one core

The digits, enlarged to 32 × 32 and three channels; AdamW 1e-3, batches of 32, three epochs, one seed. "ReLU" is
the network as timm makes it; "own" has its activations replaced and nothing else; "hush" is then drawn by
`hush.init_(model, design, calibrate=x)`. It needs timm (the extra `models`) and scikit-learn.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush
from benchmarks._origin import day_and_machine
from benchmarks.any_model import quiet_imports, swapped

MODELS = ("resnet18", "resnet50")
SPARSITIES = (0.8, 0.95)
EPOCHS, BATCH, RATE = 3, 32, 1e-3


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels, to train and to test."""
    data = hush.data.load("digits")
    parts = []
    for part in (data.train, data.test):
        images = F.interpolate(part.images.reshape(-1, 1, 8, 8), size=32).repeat(1, 3, 1, 1)
        parts += [images, part.labels]
    return parts[0], parts[1], parts[2], parts[3]


def train(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The mean training loss of the last epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(1)
    losses: list[float] = []
    for _ in range(EPOCHS):
        losses.clear()
        for batch in torch.randperm(len(images), generator=generator).split(BATCH):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def run(name: str, sparsity: float | None, drawn: bool) -> str:
    import timm

    images, labels, test_images, test_labels = digits()
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10)
    if sparsity is not None:
        design = hush.design("crelu", sparsity, width=256, depth=12)
        swapped(model, design.module)
        if drawn:
            hush.init_(model, design, calibrate=images[:BATCH], generator=torch.Generator().manual_seed(0))
    loss = train(model, images, labels)
    model.eval()
    with torch.no_grad():
        accuracy = float((model(test_images).argmax(1) == test_labels).double().mean())
        shares = hush.sparsity(model, test_images).layers.values()
    init = "ReLU" if sparsity is None else "hush" if drawn else "own"
    return (
        f"| {name} | {'' if sparsity is None else sparsity} | {init} | {loss:.3f} | {accuracy:.3f} "
        f"| {sum(shares) / len(shares):.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    quiet_imports()
    lines = [
        "# ResNets with thresholds, trained",
        "",
        f"`python -m benchmarks.any_model_training --out {options.out}`, {day_and_machine()}.",
        "",
        "The digits at 32 × 32, AdamW 1e-3, three epochs, one seed. *ReLU*: as timm makes it; *own*: its activations",
        "replaced; *hush*: then drawn by `hush.init_`. Loss of the last epoch, accuracy on the test set, zeros there.",
        "",
        "| model | s | init | training loss | test accuracy | zeros |",
        "|---|---|---|---|---|---|",
    ]
    for name in MODELS:
        for sparsity, drawn in ((None, False), *((s, way) for s in SPARSITIES for way in (False, True))):
            lines.append(run(name, sparsity, drawn))
            print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
