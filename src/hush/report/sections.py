"""What the report says of runs and of designs: verdict first, then the comparison, the curves and the layers."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hush.report.html import Html, details, figures, heading, image, paragraph, table, verdict
from hush.report.run_origin import describe_origins, origin_of_run
from hush.theory import Design

if TYPE_CHECKING:
    from hush.train import Result, Run

__all__ = ["of_designs", "of_runs", "summary"]


def summary(runs: Sequence["Run"], designs: Sequence[Design]) -> Html:
    """The verdict in a sentence: on the one run, on all of them, or on the designs."""
    if len(runs) == 1:
        return verdict(_ended(runs[0]), _went_well(runs[0]))
    if runs:
        return _summary_of_many(runs)
    if len(designs) == 1:
        return verdict(designs[0].verdict, designs[0].trains)
    judged = [plan.trains for plan in designs]
    text = f"{len(designs)} designs: {judged.count(True)} should train, {judged.count(False)} will not"
    if None in judged:
        text += f", {judged.count(None)} cannot be judged without a width and depth"
    return verdict(f"{text}.", None if None in judged else all(judged))


def _summary_of_many(runs: Sequence["Run"]) -> Html:
    outcomes = Counter("not finished" if run.result is None else run.result.outcome for run in runs)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    done = [run.result for run in runs if run.result is not None]
    held = [result.prediction_held for result in done if result.prediction_held is not None]
    prediction = f" The prediction before training was right for {sum(held)} of {len(held)}." if held else ""
    return verdict(f"{len(runs)} runs: {counts}.{prediction}", None)


def of_runs(runs: Sequence["Run"]) -> list[Html]:
    """The comparison, the curves of all, then the layers of each."""
    if not runs:
        return []
    names = [short_name(run) for run in runs]
    parts = [heading(2, "Runs" if len(runs) > 1 else "The run"), _comparison(runs)]
    origins = [origin_of_run(run.directory) for run in runs if run.result is not None]
    if origins:
        parts.append(paragraph(describe_origins(origins)))
    parts.append(heading(2, "Curves"))
    parts.append(_curves(runs, names))
    parts.append(heading(2, "Layer by layer"))
    for run in runs:
        parts += _one(run, alone=len(runs) == 1)
    return parts


def short_name(run: "Run") -> str:
    """The directory's name without the hash: what tells it apart to a person."""
    parts = run.directory.name.rsplit("-", 2)
    return f"{parts[0]}, {parts[2]}" if len(parts) == 3 and parts[2].startswith("seed") else run.directory.name


def _comparison(runs: Sequence["Run"]) -> Html:
    columns = (
        "run", "sparsity s", "clip m", "V′(q*)", "outcome", "test accuracy", "sparsity at the end", "epochs", "seconds",
        "predicted",
    )  # fmt: skip
    rows = []
    for run in runs:
        plan, result = run.config.design(), run.result
        clip = "none" if plan.clip is None else f"{plan.clip:.3g}"
        slope = "" if run.config.architecture.residual else f"{plan.v_prime:.2f}"
        row = [short_name(run), f"{plan.sparsity:g}", clip, slope]
        if result is None:
            done = len(run.metrics["epoch"])
            row += ["not finished", "", "", f"{done} of {run.config.epochs}", "", _prediction(plan.trains)]
        else:
            row += [result.outcome, _score(result), f"{result.sparsity:.3f}", f"{result.epochs}"]
            row += [f"{result.seconds:.0f}", _prediction(result.predicted_trains)]
        rows.append(row)
    return table(columns, rows)


def _score(result: "Result") -> str:
    """The accuracy, or of a text the loss with its unit."""
    return result.score.removeprefix("test loss ") if result.per_byte else f"{result.test_accuracy:.3f}"


def _prediction(trains: bool | None) -> str:
    return "" if trains is None else "trains" if trains else "does not train"


def _curves(runs: Sequence["Run"], names: Sequence[str]) -> Html:
    from hush.report import charts

    accuracy = "validation_accuracy", "validation accuracy", "Accuracy on the held-out images.", True
    # Of a text the loss is what counts.
    text = "validation_loss", "validation loss", "Loss on the held-out files, in nats per byte.", False
    shown = (
        charts.Curve("losses", "step", "loss", "training loss", "Training loss; a run ends where it is not finite."),
        charts.Curve("metrics", "epoch", *(text if all(run.config.data == "text" for run in runs) else accuracy)),
        charts.Curve("metrics", "epoch", "sparsity", "sparsity", "Share of hidden units that are exactly zero.", True),
    )
    pictures = []
    for curve in shown:
        drawn = charts.draw_curve(runs, names, curve)
        if drawn is not None:
            pictures.append(image(charts.svg(drawn), "svg+xml", curve.caption))
    return figures(pictures) if pictures else paragraph("Nothing has been recorded yet.")


def _one(run: "Run", *, alone: bool) -> list[Html]:
    from hush.report import charts

    parts = []
    if not alone:
        parts = [heading(3, short_name(run)), verdict(_ended(run), _went_well(run))]
    predicted = run.result.predicted if run.result else run.config.design().verdict
    parts.append(paragraph(f"Predicted before training: {predicted}"))
    norms = "Norm of the gradient at every layer over training; white: zero or not finite."
    shown = (
        charts.HeatMap("sparsity", "sparsity", "Sparsity of every layer over training."),
        charts.HeatMap("gradient_norm", "gradient norm", norms, logarithmic=True),
    )
    pictures = []
    for kind in shown:
        drawn = charts.draw_heat_map(run, kind)
        if drawn is not None:
            pictures.append(image(charts.png(drawn), "png", kind.caption))
    parts.append(figures(pictures) if pictures else paragraph("No layer has been recorded yet."))
    settings = [(key, json.dumps(value)) for key, value in run.config.to_dict().items() if value is not None]
    parts.append(details("Every setting", table((), [("directory", str(run.directory)), *settings])))
    return parts


def _ended(run: "Run") -> str:
    if run.result is not None:
        text = str(run.result)
        return f"{text[0].upper()}{text[1:]}."
    return f"Not finished: {len(run.metrics['epoch'])} of {run.config.epochs} epochs are done."


def _went_well(run: "Run") -> bool | None:
    """None, which is neither green nor red, while that cannot be said."""
    if run.result is None or run.result.outcome == "not yet trained":
        return None
    return run.result.outcome == "trained"


def of_designs(designs: Sequence[Design]) -> list[Html]:
    """Each design: its verdict, its values, and V(q) with every fixed point."""
    from hush.report import charts

    parts = [heading(2, "Designs" if len(designs) > 1 else "The design")] if designs else []
    for plan in designs:
        if len(designs) > 1:
            parts.append(heading(3, f"{plan.activation}, s = {plan.sparsity:g}"))
        parts.append(verdict(plan.verdict, plan.trains))
        caption = "The variance map V(q); filled dots are stable fixed points, open ones are not."
        picture = image(charts.svg(charts.draw_variance_map(plan)), "svg+xml", caption)
        parts.append(figures([picture, table((), plan.rows())]))
    return parts
