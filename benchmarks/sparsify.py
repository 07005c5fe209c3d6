"""From dense checkpoints: what `hush.sparsify` costs at once, and how many steps under `hush.hold` bring the loss back.

    python -m benchmarks.sparsify --out docs/results/sparsify        some half an hour on one core

A GELU transformer over the bytes of Python's own text (4 layers x 128) and a ReLU ResNet of 8 layers on CIFAR-10
averaged to 16 x 16 are trained densely, sparsified on four training batches, and trained on, held, at a constant rate;
the dense network is trained on as well, with the same batches, since more steps alone lower a loss. Dense checkpoints
and finished rows are kept in --runs, and what is there is not computed again.
"""

import argparse
import copy
import csv
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hush
from benchmarks._origin import day_and_machine
from benchmarks._sparsify_tasks import TASKS, Task, dense_model, judge, loss_of
from hush.nn import FATReLU, ShiftedReLU, ThresholdedGELU
from hush.nn.activations import Thresholded

SPARSITIES = (0.8, 0.9, 0.95)
FIRST_STEPS = (5, 10, 20)
STEPS = 200


class ShrunkGELU(Thresholded):
    """sign(y) max(|y| − τ, 0) of y = GELU(x): the continuous form, for comparison."""

    two_sided = False  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        return F.softshrink(F.gelu(x), self.threshold)


def shrink(model: nn.Module) -> None:
    """Put the continuous form in the place of each that jumps, at the same threshold, so with the same zeros."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, (FATReLU, ThresholdedGELU)):
                kind = ShiftedReLU if isinstance(child, FATReLU) else ShrunkGELU
                setattr(module, name, kind(child.threshold))


def row(task: Task, dense: nn.Module, sparsity: float | None, form: str, steps: int, every: int) -> dict[str, Any]:
    """One network, changed or not, trained on for so many steps."""
    model = copy.deepcopy(dense)
    found: dict[str, Any] = {"task": task.name, "form": form, "sparsity": sparsity}
    if sparsity is not None:
        draw = torch.Generator().manual_seed(7)
        report = hush.sparsify(model, [task.batch(draw)[0] for _ in range(4)], sparsity)
        assert report.output is not None
        if form == "shrunk":
            shrink(model)
        else:
            found |= {"error": report.output.relative_error, "divergence": report.output.divergence}
            found |= {"agreement": report.output.agreement, "lowest_threshold": min(x.threshold for x in report.layers)}
    hold = None if sparsity is None else hush.hold(model, sparsity)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.tuning_rate)
    generator = torch.Generator().manual_seed(1)
    trace = [(0, *judge(model, task))]
    for step in range(1, steps + 1):
        inputs, labels = task.batch(generator)
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
        if step % every == 0 or step in FIRST_STEPS:
            trace.append((step, *judge(model, task)))
            print(task.name, form, sparsity, *trace[-1], flush=True)
    found["zeros"] = zeros_of(model, task.test[0][:250])
    if hold is not None:
        hold.remove()
    return {**found, "trace": trace}


@torch.no_grad()
def zeros_of(model: nn.Module, inputs: Tensor) -> float | None:
    """The mean share of zeros over the layers with a threshold, in eval mode; None where there is none."""
    shares: list[float] = []
    modules = [module for module in model.modules() if isinstance(module, Thresholded)]
    hooks = [
        m.register_forward_hook(lambda *given: shares.append(float((given[2] == 0).double().mean()))) for m in modules
    ]
    model.eval()
    model(inputs)
    for hook in hooks:
        hook.remove()
    return sum(shares) / len(shares) if shares else None


def back_after(trace: list[Any], reference: dict[int, float]) -> int | None:
    """The first step at which the loss is within 1 % of the reference's at that step."""
    return next((step for step, loss, _ in trace if loss <= 1.01 * reference[step]), None)


def table(rows: list[dict[str, Any]], steps: int) -> list[str]:
    heads = ["network", "form", "sparsity", "loss at once", "accuracy at once", "output's error, KL"]
    heads += [f"loss after {steps} steps", "accuracy", "zeros, test"]
    heads += ["back to the checkpoint after", "to the dense one trained on after"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for each in rows:
        dense = next(r for r in rows if r["task"] == each["task"] and r["sparsity"] is None)
        trace = each["trace"]
        start = {step: dense["trace"][0][1] for step, *_ in trace}
        along = {step: loss for step, loss, _ in dense["trace"]}
        of_output = f"{each['error']:.3f}, {each['divergence']:.4f}" if "error" in each else ""
        back = ("", "") if each is dense else (_steps(back_after(trace, start)), _steps(back_after(trace, along)))
        cells = [
            each["task"], each["form"], "dense" if each["sparsity"] is None else str(each["sparsity"]),
            f"{trace[0][1]:.4f}", f"{trace[0][2]:.4f}", of_output, f"{trace[-1][1]:.4f}", f"{trace[-1][2]:.4f}",
            "" if each["sparsity"] is None else f"{each['zeros']:.4f}", *back,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _steps(found: int | None) -> str:
    return "not yet" if found is None else f"{found} steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--steps", type=int, default=STEPS, help="Of training on.")
    parser.add_argument("--sparsities", nargs="+", type=float, default=list(SPARSITIES))
    parser.add_argument("--every", type=int, default=20, help="Steps between two looks at the test data.")
    parser.add_argument("--runs", type=Path, default=Path("runs/sparsify"))
    parser.add_argument("--out", type=Path, help="Where to write .csv and .md, without the suffix.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in arguments.tasks:
        task = TASKS[name]()
        dense = dense_model(task, arguments.runs / f"{name}.pt")
        wanted: list[tuple[float | None, str]] = [(None, "dense")]
        wanted += [(sparsity, "kept") for sparsity in arguments.sparsities]
        wanted += [(0.9, "shrunk")] if arguments.sparsities == list(SPARSITIES) else []
        for sparsity, form in wanted:
            file = arguments.runs / f"{name}-{form}-{sparsity}-{arguments.steps}.json"
            if not file.exists():
                done = row(task, dense, sparsity, form, arguments.steps, arguments.every)
                file.write_text(json.dumps({**done, "when": day_and_machine()}), encoding="utf-8")
            rows.append(json.loads(file.read_text(encoding="utf-8")))
    lines = table(rows, arguments.steps)
    print("\n".join(lines))
    if arguments.out:
        _write(arguments, rows, lines)


_WHAT = (
    "text: a GELU byte transformer, 4 layers x 128, 1800 steps of 16 x 128 bytes of Python's own text, judged on 20,480"
    " bytes of its test files. images: a ReLU ResNet of 8 layers, 16 channels, 1000 steps of 128 images of CIFAR-10 "
    "averaged to 16 x 16, judged on 3,000 test images. Trained on with AdamW at a constant 3e-4. kept: φ(h) where "
    "|φ(h)| > τ, else 0, which is what `hush.sparsify` puts in place; shrunk: |φ(h)| less τ, at the same τ. Back is "
    "the first look (0, 5, 10, 20, 40, …) at a loss within 1 % of the dense checkpoint's, or of the dense network's "
    "that was trained on for as many steps."
)


def _write(arguments: argparse.Namespace, rows: list[dict[str, Any]], lines: list[str]) -> None:
    with arguments.out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "form", "sparsity", "step", "loss", "accuracy"])
        for each in rows:
            for step, loss, accuracy in each["trace"]:
                writer.writerow([each["task"], each["form"], each["sparsity"], step, f"{loss:.5f}", f"{accuracy:.5f}"])
    options = "" if arguments.tasks == list(TASKS) else f" --tasks {' '.join(arguments.tasks)}"
    if arguments.sparsities != list(SPARSITIES):
        options += f" --sparsities {' '.join(f'{s:g}' for s in arguments.sparsities)}"
    options += "" if arguments.steps == STEPS else f" --steps {arguments.steps}"
    text = [
        "# Dense checkpoints, sparsified and trained on under hold",
        "",
        f"`python -m benchmarks.sparsify{options} --out {arguments.out}`, {rows[0]['when']}; one seed.",
        "",
        _WHAT,
        "",
        *lines,
    ]
    thresholds = [r["lowest_threshold"] for r in rows if r["task"] == "text" and "lowest_threshold" in r]
    if thresholds:
        text += [
            "",
            f"The lowest threshold of the transformer is {min(thresholds):.2f}, above 0.17: |GELU(h)| > τ is "
            "GELU(h) > τ there, and a threshold on the positive side alone would be the same.",
        ]
    arguments.out.with_suffix(".md").write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
