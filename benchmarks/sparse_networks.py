"""Networks people use, from dense to 98 % zeros, held there from the first step to the last.

    python -m benchmarks.sparse_networks                                     # train what is still missing
    python -m benchmarks.sparse_networks --methods fixed relative --only text_gpt
    python -m benchmarks.sparse_networks --table docs/results/sparse_networks     # .md, .csv and .png of what is there
    python -m benchmarks.sparse_networks --steps 2350 --runs runs/sparse_networks_long    # MLPs to their plateau
    python -m benchmarks.sparse_networks --only text_gpt --seeds 1 --rate 4e-3 --runs runs/rates    # to choose a rate

Each network has one recipe, chosen on its dense form; every activation gets the same. A run is one file in the folder
of runs: what is there is not trained again, and several of these commands may share the work.
"""

import argparse
import json
import math
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hush
from benchmarks._origin import day_and_machine
from benchmarks._sparse_networks import LARGE, NETWORKS, Network
from benchmarks._sparse_networks_table import read_runs, write_figure, write_table
from hush.nn.activations import Thresholded

SPARSITIES = (0.8, 0.9, 0.95, 0.98)
WARM_UP = 0.1
# "large": held, at q* = 100 instead of 1.
METHODS = ("dense", "held", "large", "fixed", "relative")


@dataclass(frozen=True)
class Case:
    """One run: a network, how its zeros come about, and a seed."""

    network: str
    method: str
    activation: str
    sparsity: float | None
    seed: int

    @property
    def file(self) -> str:
        zeros = "" if self.sparsity is None else f"_{self.sparsity:g}"
        return f"{self.network}-{self.method}-{self.activation}{zeros}-{self.seed}.json"


def cases(methods: tuple[str, ...], seeds: int, thresholded: str = "crelu") -> list[Case]:
    """All of the first seed before any of the next, so that a table can be had early."""
    return [
        Case(network.name, method, activation, sparsity, seed)
        for seed in range(seeds)
        for network in NETWORKS.values()
        for method in methods
        for activation, sparsity in _settings(network, method, thresholded)
    ]


def _settings(network: Network, method: str, thresholded: str) -> list[tuple[str, float | None]]:
    if method == "dense":
        return [(name, None) for name in network.dense]
    name = "relative_relu" if method == "relative" else thresholded
    return [(name, sparsity) for sparsity in SPARSITIES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[*NETWORKS], default=[*NETWORKS], metavar="NETWORK")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=["dense", "held"], metavar="METHOD")
    parser.add_argument("--sparsities", nargs="*", type=float, default=SPARSITIES, metavar="S")
    parser.add_argument("--activation", default="crelu", help="Of the methods held and fixed.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/sparse_networks"), help="One file for each run.")
    parser.add_argument("--rate", type=float, help="Instead of the recipe's, to choose it.")
    parser.add_argument("--steps", type=int, help="Instead of the recipe's, to see whether more would help.")
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--table", type=Path, help="Train nothing; write the table and the figure of what is there.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.runs.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print(write_table(read_runs(arguments.runs), arguments.table))
        write_figure(read_runs(arguments.runs), arguments.table)
        return
    for case in cases(tuple(arguments.methods), arguments.seeds, arguments.activation):
        wanted = case.sparsity is None or case.sparsity in arguments.sparsities
        if case.network not in arguments.only or not wanted:
            continue
        path = arguments.runs / case.file
        if path.exists() or not _claim(path):
            continue
        network = NETWORKS[case.network]
        network = replace(network, rate=arguments.rate or network.rate, steps=arguments.steps or network.steps)
        result = {**asdict(case), **_train(network, case, arguments.precision == "bf16"), "origin": day_and_machine()}
        path.write_text(json.dumps(result) + "\n")
        path.with_suffix(".claim").unlink()
        print(path.stem, f"accuracy {result['accuracy']:.4f}, loss {result['loss']:.4f}", flush=True)


def _claim(path: Path) -> bool:
    """Whether this process may train the run: no other one that is still alive does."""
    claim = path.with_suffix(".claim")
    try:
        with claim.open("x") as file:
            file.write(str(os.getpid()))
        return True
    except FileExistsError:
        try:
            os.kill(int(claim.read_text() or 0), 0)
            return False
        except (ProcessLookupError, ValueError):
            claim.write_text(str(os.getpid()))
            return True


def _train(network: Network, case: Case, bf16: bool) -> dict[str, Any]:
    batches = network.data()
    model = network.build(case.activation, case.sparsity, case.seed, LARGE if case.method == "large" else 1.0)
    if case.method in ("held", "large"):
        hush.hold(model, case.sparsity)
    optimizer = network.optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share_of_rate(step / network.steps))
    began, recent = time.process_time(), 0.0
    model.train()
    for step, (inputs, labels) in enumerate(batches.train(network.batch, network.steps, case.seed)):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = _loss(model(inputs), labels)
        if not math.isfinite(float(loss.detach())):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        recent = float(loss.detach()) if step == 0 else 0.98 * recent + 0.02 * float(loss.detach())
    seconds = time.process_time() - began
    return {"steps": step + 1, "core_seconds": seconds, "train_loss": recent, **_score(model, *batches.test)}


def _share_of_rate(done: float) -> float:
    """A straight rise over the first tenth of the steps, then a cosine down to zero."""
    if done < WARM_UP:
        return done / WARM_UP + 1e-3
    return 0.5 + 0.5 * math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())


@torch.no_grad()
def _score(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
    """In float32, in eval mode: accuracy, loss, the zeros of each layer, the units active for no input at all."""
    model.eval()
    layers: dict[str, list[Tensor]] = {}

    def look(name: str) -> Any:
        def hook(_module: nn.Module, _arguments: Any, output: Tensor) -> None:
            # Units are the channels of an image, and the last axis of everything else.
            zero = (output == 0).movedim(1, -1) if output.dim() == 4 else output == 0
            layers.setdefault(name, []).append(zero.flatten(0, -2).double().mean(0) * len(output))

        return hook

    kinds = (nn.ReLU, nn.GELU, Thresholded)
    handles = [m.register_forward_hook(look(name)) for name, m in model.named_modules() if isinstance(m, kinds)]
    correct, loss = 0.0, 0.0
    for part in torch.arange(len(inputs)).split(250):
        logits = model(inputs[part])
        loss += float(_loss(logits, labels[part])) * len(part)
        correct += float((logits.argmax(-1) == labels[part]).double().mean()) * len(part)
    for handle in handles:
        handle.remove()
    zeros = {name: torch.stack(parts).sum(0) / len(inputs) for name, parts in layers.items()}
    return {
        "accuracy": correct / len(inputs),
        "loss": loss / len(inputs),
        "zeros": {name: round(float(share.mean()), 5) for name, share in zeros.items()},
        "dead": {name: round(float((share == 1).double().mean()), 5) for name, share in zeros.items()},
    }


if __name__ == "__main__":
    main()
