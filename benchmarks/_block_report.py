"""The rule for residual networks tried in every way, as Markdown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from benchmarks._block_rule import Judged, choose_bounds, majority, misjudged, share_right, sparsity_right
from hush.theory.training_rule import BlockBounds, judge_blocks


def report(networks: Sequence[Judged]) -> str:
    a, b, second = ([n for n in networks if n.half == half] for half in "ABC")
    first = a + b
    bounds = choose_bounds(first)
    lines = [
        "## Residual networks: the rule at initialisation beside what came of training",
        "",
        f"{len(networks)} networks, {len(first)} in the first half and {len(second)} in the second. Each is trained "
        "once: SGD at 0.01, momentum 0.9, 300 steps of 64 images. Trained means: at least half of the test set right, "
        "and a training loss below that of guessing.",
        "",
        f"Chosen on the first half: {_in_words(bounds)}.",
        "The library has these bounds." if bounds == BlockBounds() else f"**The library has others**: {BlockBounds()}.",
        "",
        "| chosen on | tried on | networks | right | always the more frequent answer |",
        "|---|---|---|---|---|",
        _row("first half", "first half (in-sample)", first, bounds),
        _row("first half", "**second half (held out)**", second, bounds),
        _row("second half", "first half", first, choose_bounds(second)),
        _row("A, one half of the first half", "B, the other", b, choose_bounds(a)),
        _row("B", "A", a, choose_bounds(b)),
        _row("first half", "the first half, trained at any loss", _by_accuracy(first), bounds),
        _row("first half", "the second half, trained at any loss", _by_accuracy(second), bounds),
        _row("A, trained at any loss", "B, trained at any loss", _by_accuracy(b), choose_bounds(_by_accuracy(a))),
    ]
    if again := _by_adamw(first):
        lines.append(_row("first half", "the first half trained with AdamW at 0.001", again, bounds))
    lines += ["", _verdicts("first", first, bounds), _verdicts("second", second, bounds), ""]
    lines += [_sparsity("first", first, bounds), _sparsity("second", second, bounds), ""]
    lines += [
        "Misjudged:",
        "",
        "| half | network | gain | output | 1 − ρ | rule | outcome | accuracy |",
        "|" + "---|" * 8,
    ]
    lines += [_misjudged("first", n, bounds) for n in misjudged(first, bounds)]
    lines += [_misjudged("second", n, bounds) for n in misjudged(second, bounds)]
    return "\n".join(lines)


def _in_words(bounds: BlockBounds) -> str:
    return (
        f"the squared gradient at the pre-activations grows by at most 10^{bounds.highest_gain_log10:g}, the outputs "
        f"have a mean square of at most 10^{bounds.output_log10:g}, and 1 − ρ of what the head reads is at least "
        f"10^{bounds.difference_log10:g} (besides, by convention, the gradient at the first block is at least "
        f"10^{bounds.first_gain_log10:g} of that at the last); sparsity is lost if it is more than {bounds.sparsity:g} "
        f"off its target"
    )


def _row(chosen: str, tried: str, networks: Sequence[Judged], bounds: BlockBounds) -> str:
    share = share_right(networks, bounds)
    right = round(share * len(networks))
    return f"| {chosen} | {tried} | {len(networks)} | {right} ({share:.1%}) | {majority(networks):.1%} |"


def _by_accuracy(networks: Sequence[Judged]) -> list[Judged]:
    return [replace(network, trained=network.half_right) for network in networks]


def _by_adamw(networks: Sequence[Judged]) -> list[Judged]:
    return [replace(n, trained=n.trained_with_adamw) for n in networks if n.trained_with_adamw is not None]


def _verdicts(name: str, networks: Sequence[Judged], bounds: BlockBounds) -> str:
    """How often each verdict was given, and how often rightly: a network may have several."""
    given: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for network in networks:
        verdict = judge_blocks(network.figures, bounds)
        kinds = {
            "trains": verdict.trains,
            "explodes": verdict.explodes,
            "vanishes": verdict.vanishes,
            "indistinguishable": verdict.indistinguishable,
        }
        for kind, said in kinds.items():
            given[kind] += said
            right[kind] += said and network.trained is verdict.trains
    outcomes = Counter(network.outcome for network in networks)
    trained = sum(network.trained for network in networks)
    return (
        f"The {name} half: {trained} trained; by `hush.train.outcome` "
        + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        + ". Verdicts, right of given: "
        + ", ".join(f"{kind} {right[kind]} of {given[kind]}" for kind in given)
        + "."
    )


def _sparsity(name: str, networks: Sequence[Judged], bounds: BlockBounds) -> str:
    right, count = sparsity_right(networks, bounds)
    return (
        f"Sparsity, the {name} half: of {count} sparse networks that trained, the rule said of {right} "
        f"({right / count:.0%}) rightly whether they are within 0.1 of their target afterwards; "
        f"{_lost(networks)} are not."
    )


def _lost(networks: Sequence[Judged]) -> int:
    return sum(network.holds_sparsity is False for network in networks)


def _misjudged(half: str, network: Judged, bounds: BlockBounds) -> str:
    figures, verdict = network.figures, judge_blocks(network.figures, bounds)
    kinds = ("explodes", "vanishes", "indistinguishable")
    apart = network.half_right and not network.trained
    outcome = "half right, at a loss above that of guessing" if apart else network.outcome
    said = ", ".join(kind for kind in kinds if getattr(verdict, kind)) or "trains"
    return (
        f"| {half} | {network.name} | 10^{figures.highest_gain_log10:.1f} | 10^{figures.output_log10:.1f} "
        f"| 10^{figures.difference_log10:.1f} | {said} | {outcome} | {network.accuracy:.2f} |"
    )
