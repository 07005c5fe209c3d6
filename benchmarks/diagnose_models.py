"""What `hush.diagnose` predicts of models that people use, from their own weights, beside what it measures.

    python -m benchmarks.diagnose_models                                  prints the table; about 5 minutes on one core
    python -m benchmarks.diagnose_models --output docs/results/diagnose_models.md
    python -m benchmarks.diagnose_models --only resnet18 llama

For every model, over several initialisations by the model's own rule:

    q in 99 % / 90 %   share of layers whose median q lies in the band that diagnose prints, and in its 90 % part
    p in 99 %          the same of the stream's variance, behind every sum
    sparsity, corr.    largest difference between measured and predicted over the layers
    gain               largest difference of log10 |δ_l|²/|δ_L|², in decades
    restarts           functions without a rule, behind which the prediction starts again from what was measured

timm and transformers come with the extra `models`; without them their rows are left out, and the table says so.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

import hush
from benchmarks._origin import day_and_machine
from tests.models.torchvision_operators import declare_operators

INPUTS = 16


class DenseNet(nn.Module):
    """Four layers that each read all before them, a transition, one more layer."""

    def __init__(self, start: int = 64, growth: int = 32) -> None:
        super().__init__()
        widths = [start + growth * n for n in range(5)]
        self.stem = nn.Conv2d(3, start, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, growth, 3, padding=1, bias=False))
            for n in widths[:-1]
        )
        last = widths[-1]
        self.transition = nn.Sequential(nn.BatchNorm2d(last), nn.ReLU(), nn.Conv2d(last, 128, 1), nn.AvgPool2d(2))
        self.last, self.head = nn.Conv2d(128, 128, 3, padding=1), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(F.relu(self.last(self.transition(x))).mean((2, 3)))


class UNet(nn.Module):
    """Two levels down by pooling, two up by transposed convolutions, skips concatenated."""

    def __init__(self, n: int = 64) -> None:
        super().__init__()
        sizes = ((3, n), (n, 2 * n), (2 * n, 4 * n), (4 * n, 2 * n), (2 * n, n))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in sizes)
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * k, k, 2, stride=2) for k in (2 * n, n))
        self.head = nn.Conv2d(n, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = F.relu(self.convs[0](x))
        two = F.relu(self.convs[1](F.max_pool2d(one, 2)))
        deep = F.relu(self.convs[2](F.max_pool2d(two, 2)))
        two = F.relu(self.convs[3](torch.cat([self.ups[0](deep), two], 1)))
        return self.head(F.relu(self.convs[4](torch.cat([self.ups[1](two), one], 1))))


def encoder(norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    # torch copies one layer six times; drawn anew, each has weights of its own.
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            module._reset_parameters()
        elif isinstance(module, nn.Linear):
            module.reset_parameters()
    return model


def timm_model(name: str, **options: object) -> nn.Module:
    declare_operators()
    import timm

    return timm.create_model(name, num_classes=10, **options)


def transformers_model(kind: str) -> nn.Module:
    import transformers

    small = {"vocab_size": 500, "bos_token_id": 0, "eos_token_id": 1}
    usual = {"hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 6, "num_attention_heads": 4, **small}
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=128, n_layer=6, n_head=4, **small))
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **usual))
    return transformers.BertModel(transformers.BertConfig(**usual))


def images(size: int = 64) -> Tensor:
    return torch.randn(INPUTS, 3, size, size)


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, 500, (INPUTS, 32))}


VIT = {"img_size": 64, "patch_size": 8}
MODELS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[], object]]] = {
    "resnet18": ("timm ResNet-18", lambda: timm_model("resnet18"), images),
    "resnet18-full": ("… no branch zero", lambda: timm_model("resnet18", zero_init_last=False), images),
    "resnetv2": ("timm ResNetV2-50, pre-activation", lambda: timm_model("resnetv2_50"), images),
    "vit": (
        "timm ViT-tiny, mean of tokens",
        lambda: timm_model("vit_tiny_patch16_224", global_pool="avg", **VIT),
        images,
    ),
    "vit-token": ("timm ViT-tiny, class token", lambda: timm_model("vit_tiny_patch16_224", **VIT), images),
    "mixer": ("timm Mixer-S/32", lambda: timm_model("mixer_s32_224", img_size=64), images),
    "convnext": ("timm ConvNeXt-atto", lambda: timm_model("convnext_atto"), images),
    "gpt2": ("GPT-2, 6 × 128", lambda: transformers_model("gpt2"), tokens),
    "llama": ("Llama, 6 × 128", lambda: transformers_model("llama"), tokens),
    "bert": ("BERT, 6 × 128", lambda: transformers_model("bert"), tokens),
    "encoder-pre": ("nn.TransformerEncoder, pre-norm", lambda: encoder(True), lambda: torch.randn(INPUTS, 32, 128)),
    "encoder-post": ("nn.TransformerEncoder, post-norm", lambda: encoder(False), lambda: torch.randn(INPUTS, 32, 128)),
    "densenet": ("DenseNet-like", DenseNet, lambda: images(32)),
    "unet": ("U-Net-like", UNet, lambda: images(32)),
}


@dataclass
class Tally:
    """What the diagnoses of one model add up to."""

    layers: int = 0
    wide: int = 0
    narrow: int = 0
    points: int = 0
    points_inside: int = 0
    sparsity: float = 0.0
    correlation: float = 0.0
    gain: float | None = None
    restarts: int = 0
    seconds: float = 0.0

    def add(self, diagnosis: hush.diagnose.Diagnosis) -> None:
        for layer in diagnosis.layers:
            self.layers += 1
            if layer.q_band is None:
                continue
            deviations = abs(math.log(layer.q / layer.q_predicted)) / math.log(layer.q_band[1] / layer.q_predicted)
            self.wide += deviations <= 1.0
            self.narrow += deviations <= 1.6449 / 2.5758
            self.sparsity = max(self.sparsity, abs(layer.sparsity - layer.sparsity_predicted))
            self.correlation = max(self.correlation, abs(layer.correlation - layer.correlation_predicted))
            if layer.gain_log10_predicted is not None and math.isfinite(layer.gain_log10):
                self.gain = max(self.gain or 0.0, abs(layer.gain_log10 - layer.gain_log10_predicted))
        for point in diagnosis.stream:
            self.points += 1
            self.points_inside += point.p_band[0] <= point.p <= point.p_band[1]
        self.restarts = max(self.restarts, len(diagnosis.restarts))


def row(name: str, seeds: int) -> str:
    title, build, inputs = MODELS[name]
    tally = Tally()
    for seed in range(seeds):
        torch.manual_seed(seed)
        model, x = build(), inputs()
        start = time.process_time()
        tally.add(hush.diagnose(model, x))
        tally.seconds += (time.process_time() - start) / seeds
    gain = "no gradient" if tally.gain is None else f"{tally.gain:.2f}"
    stream = f"{tally.points_inside / tally.points:.2f}" if tally.points else "no stream"
    return (
        f"| {title} | {tally.layers // seeds} | {tally.wide / tally.layers:.2f} | {tally.narrow / tally.layers:.2f} | "
        f"{stream} | {tally.sparsity:.3f} | {tally.correlation:.3f} | {gain} | {tally.restarts} | "
        f"{tally.seconds:.1f} |"
    )


def table(names: list[str], seeds: int) -> Iterator[str]:
    yield "| model | layers | q in 99 % | q in 90 % | p in 99 % | sparsity | corr. | gain | restarts | CPU s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in names:
        try:
            yield row(name, seeds)
        except ImportError as error:
            yield f"| {MODELS[name][0]} | left out: {error} | | | | | | | | |"


HEAD = """# diagnose on models that people use

`python -m benchmarks.diagnose_models --seeds {seeds} --output docs/results/diagnose_models.md`, {origin}.
{seeds} initialisations of each model by its
own rule, {inputs} random inputs each; everything is predicted from the variances of the model's own weights.

"""
NOTES = """
*q in 99 %, 90 %*: share of the layers whose measured median q lies in the band that `diagnose` prints, and in the part
of it that should hold 90 %; the bands are for one input, and a median over inputs is steadier. *p*: the same of the
stream. *sparsity, corr., gain*: the largest difference between measured and predicted over all layers and
initialisations, the gain in decades of |δ|²; layers to which no gradient comes (branches and heads that start at zero)
have none. *CPU s*: of one call of `diagnose`.

A calibrated band would hold 90 % of the medians in its 90 % part. Most rows hold all of them: for a median these bands
are wider than they need be. BERT's rows and Mixer's stream fall short of theirs.

A class token differs from all other tokens: it starts near zero, where a norm passes a gradient many times as large,
and it alone carries the gradient of the head. The prediction takes all positions for alike, and is off there by the
gain in the table.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--output")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for line in table(options.only, options.seeds):
        print(line, flush=True)
        lines.append(line)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(
                HEAD.format(seeds=options.seeds, inputs=INPUTS, origin=day_and_machine())
                + "\n".join(lines)
                + "\n"
                + NOTES
            )


if __name__ == "__main__":
    main()
