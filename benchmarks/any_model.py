"""What `hush.init_` gives on models nobody here wrote, beside their own initialisation.

    python -m benchmarks.any_model --out docs/results/any_model        all models, 3 seeds, about 6 minutes on one core
    python -m benchmarks.any_model --only resnet18 gpt2 --seeds 1

Every model is built with random weights, its activations are replaced by the design's, and it is run on a batch of 16
(noise images of 64 × 64, random tokens): once as it is ("own"), once drawn by `hush.init_`. BatchNorm works by the
statistics of the batch, as in training. Worst of all seeds:

    sparsity   lowest and highest share of zeros over the layers, minus the design's; aimed at ± 0.02
    q          lowest and highest second moment of the pre-activations, in units of q*
    outside    how many of the layers (times seeds) have q outside 1 ± 4 √(2/units), the noise of a finite width
    gradient   decades between the largest and the smallest norm of the gradient, at the adds of the residual stream, or
               where there are none at the pre-activations; aimed at ≤ 1
    no worse   by each of the three, hush is within its aim or no worse than the model's own initialisation

It needs timm and transformers (the extra `models`); what is missing is left out.
"""

import argparse
import csv
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hush
from benchmarks._origin import day_and_machine
from hush.nn.graph.paths import Paths
from hush.nn.graph.patterns import graph_of
from hush.nn.graph.recorder import record
from hush.nn.quiet_run import tensors_in
from hush.nn.recognise import activations_of
from tests.models.torchvision_operators import declare_operators

DESIGNS = (("crelu", 0.8), ("crelu", 0.95))
BATCH = 16


class DenseBlock(nn.Module):
    def __init__(self, channels: int, growth: int, phi: Callable[[], nn.Module], layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                phi(),
                nn.Conv2d(channels + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet(phi: Callable[[], nn.Module]) -> nn.Module:
    """Two dense blocks of six layers with a transition between them."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2, 1),
        DenseBlock(64, 32, phi, 6),
        nn.BatchNorm2d(256),
        phi(),
        nn.Conv2d(256, 128, 1),
        nn.AvgPool2d(2),
        DenseBlock(128, 32, phi, 6),
        nn.BatchNorm2d(320),
        phi(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(320, 10),
    )


class UNet(nn.Module):
    """Three levels; two convolutions each, with or without BatchNorm; what was seen on the way down is concatenated."""

    def __init__(self, phi: Callable[[], nn.Module], norm: bool, width: int = 64) -> None:
        super().__init__()

        def double(inputs: int, outputs: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for i in (inputs, outputs):
                layers += [nn.Conv2d(i, outputs, 3, padding=1), *([nn.BatchNorm2d(outputs)] if norm else []), phi()]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList([double(3, width), double(width, 2 * width)])
        self.middle = double(2 * width, 4 * width)
        self.raise_ = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.up = nn.ModuleList([double(4 * width, 2 * width), double(2 * width, width)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for down in self.down:
            kept.append(down(x))
            x = nn.functional.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for raise_, up, skip in zip(self.raise_, self.up, reversed(kept), strict=True):
            x = up(torch.cat([skip, raise_(x)], 1))
        return self.head(x)


def swapped(model: nn.Module, phi: Callable[[], nn.Module]) -> nn.Module:
    """The model's hidden activations replaced; sigmoid and tanh, which are gates and heads, stay."""
    for name, module in list(activations_of(model)):
        if not isinstance(module, (nn.Sigmoid, nn.Tanh)):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, phi())
    return model


def timm_model(name: str, **options: Any) -> Callable[[Callable[[], nn.Module]], nn.Module]:
    def build(phi: Callable[[], nn.Module]) -> nn.Module:
        import timm

        made = {key: value() if callable(value) else value for key, value in options.items()}
        return swapped(timm.create_model(name, num_classes=10, **made), phi)

    return build


def hugging_face(kind: str, **options: Any) -> Callable[[Callable[[], nn.Module]], nn.Module]:
    def build(phi: Callable[[], nn.Module]) -> nn.Module:
        import transformers

        classes = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM", "Bert": "BertForMaskedLM"}
        special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 500}
        config = getattr(transformers, f"{kind}Config")(**special, **options)
        return swapped(getattr(transformers, classes[kind])(config), phi)

    return build


def encoder(norm_first: bool) -> Callable[[Callable[[], nn.Module]], nn.Module]:
    def build(phi: Callable[[], nn.Module]) -> nn.Module:
        layer = nn.TransformerEncoderLayer(128, 4, 512, activation=phi(), batch_first=True, norm_first=norm_first)
        return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    return build


def group_norm() -> Any:
    from timm.layers import GroupNormAct

    return GroupNormAct


def images() -> Tensor:
    return torch.randn(BATCH, 3, 64, 64)


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 500, (BATCH, 32))}


MODELS: dict[str, tuple[Callable[[Callable[[], nn.Module]], nn.Module], Callable[[], Any]]] = {
    "timm resnet18": (timm_model("resnet18"), images),
    "timm resnet50": (timm_model("resnet50"), images),
    "timm resnetv2_50 (BatchNorm)": (timm_model("resnetv2_50"), images),
    "timm resnetv2_50 (GroupNorm)": (timm_model("resnetv2_50", norm_layer=group_norm), images),
    "timm vit_tiny, 12 layers": (timm_model("vit_tiny_patch16_224", img_size=64), images),
    "timm mixer_s16, 8 layers": (timm_model("mixer_s16_224", img_size=64), images),
    "timm convnext_atto": (timm_model("convnext_atto"), images),
    "HF GPT-2, 6 × 128": (hugging_face("GPT2", n_layer=6, n_embd=128, n_head=4, n_positions=64), tokens),
    "HF Llama, 6 × 128": (
        hugging_face(*("Llama",), num_hidden_layers=6, hidden_size=128, intermediate_size=384, num_attention_heads=4),
        tokens,
    ),
    "HF BERT, 6 × 128": (
        hugging_face("Bert", num_hidden_layers=6, hidden_size=128, intermediate_size=512, num_attention_heads=4),
        tokens,
    ),
    "TransformerEncoder, pre-norm": (encoder(True), lambda: torch.randn(BATCH, 32, 128)),
    "TransformerEncoder, post-norm": (encoder(False), lambda: torch.randn(BATCH, 32, 128)),
    "DenseNet-like": (densenet, images),
    "U-Net-like": (lambda phi: UNet(phi, norm=False), images),
    "U-Net-like, BatchNorm": (lambda phi: UNet(phi, norm=True), images),
}


@dataclass
class Figures:
    """Of one model, one way to initialise it, over all seeds."""

    sparsity: tuple[float, float] = (math.inf, -math.inf)
    q: tuple[float, float] = (math.inf, -math.inf)
    outside: int = 0
    layers: int = 0
    decades: float = 0.0

    def add(self, model: nn.Module, x: Any, design: hush.Design) -> None:
        torch.manual_seed(7)
        run = record(model, x, with_tensors=True)
        graph = graph_of(run)
        outputs = [each for each in tensors_in([run.tensors[index] for index in run.outputs]) if each.requires_grad]
        sum((each * torch.randn_like(each)).sum() for each in outputs).backward()  # type: ignore[union-attr]
        active = [node for node in graph.of_kind("activation") if node.phi == design.phi()]
        for node in active:
            zeros = float((run.tensors[node.index] == 0).double().mean()) - design.sparsity
            q = graph[node.inputs[0]].second_moment / design.q_star
            self.sparsity = min(self.sparsity[0], zeros), max(self.sparsity[1], zeros)
            self.q = min(self.q[0], q), max(self.q[1], q)
            self.outside += abs(q - 1.0) > 4.0 * math.sqrt(2.0 / (node.features or 1))
            self.layers += 1
        joins = [join.add for join in Paths(graph).joins.values() if join.stream is not None]
        places = joins if len(joins) > 2 else [node.inputs[0] for node in active]
        grads = [run.tensors[index].grad for index in places]
        norms = [0.0 if grad is None else float(grad.double().norm()) for grad in grads]
        decades = math.inf if min(norms) == 0.0 else math.log10(max(norms) / min(norms))
        self.decades = max(self.decades, decades)
        for parameter in model.parameters():
            parameter.grad = None

    def worst(self) -> tuple[float, float, float]:
        """How far off: sparsity, log q, decades."""
        low, high = (abs(math.log10(max(q, 1e-300))) for q in self.q)
        return max(abs(each) for each in self.sparsity), max(low, high), self.decades


def no_worse(hush_: Figures, own: Figures) -> bool:
    in_aim = hush_.worst()[0] <= 0.02, hush_.outside == 0, hush_.decades <= 1.0
    return all(aim or a <= b for aim, a, b in zip(in_aim, hush_.worst(), own.worst(), strict=True))


def measure(name: str, activation: str, sparsity: float, seeds: range) -> tuple[Figures, Figures]:
    build, inputs = MODELS[name]
    design = hush.design(activation, sparsity, width=256, depth=12)
    own, drawn = Figures(), Figures()
    for seed in seeds:
        torch.manual_seed(seed)
        model, x = build(design.module), inputs()
        own.add(model, x, design)
        generator = torch.Generator().manual_seed(seed)
        hush.init_(model, design, calibrate=x, allow=(nn.Tanh, nn.Sigmoid), generator=generator)
        drawn.add(model, x, design)
    return own, drawn


HEADER = ("model", "s", "init", "sparsity − s", "q/q*", "outside", "gradient, decades", "no worse")


def rows(name: str, sparsity: float, own: Figures, drawn: Figures) -> list[tuple[str, ...]]:
    found = []
    for kind, figures in (("own", own), ("hush", drawn)):
        found.append(
            (
                name,
                f"{sparsity:g}",
                kind,
                f"{figures.sparsity[0]:+.3f} … {figures.sparsity[1]:+.3f}",
                f"{figures.q[0]:.2f} … {figures.q[1]:.2f}",
                f"{figures.outside}/{figures.layers}",
                "∞ (some are 0)" if figures.decades == math.inf else f"{figures.decades:.2f}",
                "" if kind == "own" else "yes" if no_worse(drawn, own) else "**no**",
            )
        )
    return found


def quiet_imports() -> None:
    """So that timm and transformers can be imported, and their warnings stay away."""
    declare_operators()
    warnings.filterwarnings("ignore")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="models whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.csv")
    options = parser.parse_args()
    quiet_imports()
    table: list[tuple[str, ...]] = []
    for activation, sparsity in DESIGNS:
        for name in MODELS:
            if options.only and not any(part.lower() in name.lower() for part in options.only):
                continue
            try:
                own, drawn = measure(name, activation, sparsity, range(options.first, options.first + options.seeds))
            except ImportError as error:
                print(f"{name}: left out, {error}", file=sys.stderr)
                continue
            for row in rows(name, sparsity, own, drawn):
                table.append(row)
                print(
                    "  ".join(
                        f"{cell:<{width}}" for cell, width in zip(row, (30, 5, 5, 17, 14, 8, 15, 6), strict=True)
                    ),
                    flush=True,
                )
    if options.out:
        write(table, options.out, options.seeds, options.first)


def write(table: list[tuple[str, ...]], out: Path, seeds: int, first: int) -> None:
    with out.with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *table])
    lines = [f"| {' | '.join(row)} |" for row in (HEADER, ("---",) * len(HEADER), *table)]
    missed = [f"- {row[0]} at {row[1]}: {', '.join(misses(row))}." for row in table if row[2] == "hush" and misses(row)]
    tail = ["", "Where an aim is missed by `hush.init_`:", "", *missed] if missed else []
    out.with_suffix(".md").write_text(
        "\n".join([INTRODUCTION.format(seeds=seeds, first=first, origin=day_and_machine()), *lines, *tail]) + "\n"
    )


def misses(row: tuple[str, ...]) -> list[str]:
    """Which aims a row of the table misses, in words."""
    found = []
    if max(abs(float(cell)) for cell in row[3].split(" … ")) > 0.02:
        found.append(f"sparsity {row[3]}")
    if not row[5].startswith("0/"):
        found.append(f"q outside its band in {row[5]} layers")
    if row[6].startswith("∞") or float(row[6]) > 1.0:
        found.append(f"gradient over {row[6]} decades")
    return found


INTRODUCTION = """# `hush.init_` on any model

`python -m benchmarks.any_model --first {first} --out docs/results/any_model`, {origin}.

{seeds} seeds, worst of all; batch of 16, CReLU designs. *Own* is the model's own initialisation with its activations
replaced, *hush* the same model after `hush.init_(model, design, calibrate=x)`. Sparsity is aimed at ± 0.02 of the
design in every layer, q at 1 ± 4 √(2/units) (*outside*: how many are not), the gradient at one decade over the depth.
*No worse*: by each of the three hush is within its aim, or no worse than own; where own is ∞, that says little.

The share of a norm's shift (0, 0.5, 0.7 and 0.85 were tried behind BatchNorm, 0, 0.5 and 0.7 behind GroupNorm) and the
gain aimed at in blocks that end in an activation (1, 10^0.5 and 10^1.5 over all blocks) were chosen on these models
with seeds 0 to 2. Weights and inputs of other seeds are fresh; the models are not.
"""


if __name__ == "__main__":
    main()
