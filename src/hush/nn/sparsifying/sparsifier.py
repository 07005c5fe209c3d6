"""`hush.sparsify`: a trained model's activations get thresholds, from what they give out on some batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from hush.nn.activation_choice import Choice, Names, Types, choose, nothing_found
from hush.nn.activation_exchange import Exchange, note_on
from hush.nn.activation_places import Place
from hush.nn.activation_uses import OVERWROTE, function_uses, inplace_matters, watch_uses
from hush.nn.activations import Thresholded
from hush.nn.holding.targets import targets_by_name
from hush.nn.pretrained_config import update_configs
from hush.nn.quiet_run import Arguments
from hush.nn.sparsifying.batches import inputs_in, read_batches
from hush.nn.sparsifying.known_functions import KeepsLarge, thresholded_form
from hush.nn.sparsifying.measuring import (
    LayerChange,
    OutputDistance,
    leaving_no_trace,
    magnitudes,
    main_output,
    run,
    watched_changes,
)
from hush.nn.sparsifying.sparsify_report import OutputChange, SparsifiedLayer, SparsifyReport
from hush.nn.structure import listed
from hush.nn.swap_report import FunctionUse, LeftActivation, Swapped

__all__ = ["sparsify"]

_ROUNDS = 8  # of measuring at most; layers behind each other need two to four
_CLOSE = 0.002  # a share of zeros that near to its target needs no further round
_FAR = 0.01  # one that far off is remarked upon


def sparsify(
    model: nn.Module,
    batches: Any,
    sparsity: float | Mapping[str, float] = 0.9,
    *,
    types: Types = None,
    names: Names = None,
    skip: Names = (),
    max_batches: int = 50,
) -> SparsifyReport:
    """Give the ReLU, GELU and SiLU activations of a trained model thresholds, in place, so that a share of what they
    give out is exactly 0; report what that changes in each layer and in the model's outputs.

        report = hush.sparsify(model, batches, 0.9)
        hold = hush.hold(model, 0.9)                   # and fine-tune: the training loop as it was

    Each becomes φ(h) where |φ(h)| > τ, else 0 (`FATReLU`, `ThresholdedGELU`, `ThresholdedSiLU`), and computes what it
    did where it is not silenced. τ is the quantile of |φ(h)| over all units and inputs of the layer, measured in eval
    mode, again and again with the thresholds of all layers in place, until their zeros fit. Weights, buffers, modes
    and the random state stay as they are. The thresholds are part of the state_dict from now on.

    Arguments:
        batches: a tensor; or batches, each a tensor, a tuple of arguments, a mapping of keyword arguments, or a list
            that begins with the input (as of a DataLoader). None puts the thresholded forms in place at τ = 0, where
            they compute what the model did: then `load_state_dict` brings thresholds that were saved.
        sparsity: the share of zeros; or shares by name, {"blocks.0.*": 0.8, "*": 0.9}, of which the first pattern that
            matches a layer counts, and layers that none matches are left alone.
        types, names, skip: which activations, as in `hush.nn.swap_activations`; what belongs to a head, a pooler or a
            squeeze-excite gate is left unless `names` has it.
        max_batches: no more than so many are read.

    Raises:
        ValueError: if there is nothing to sparsify, a pattern matches nothing, an activation is held, or the model
            does not run on the batches or gives out what is not finite. The model is then as it was.
    """
    if isinstance(max_batches, bool) or not isinstance(max_batches, int) or max_batches < 1:
        raise ValueError(f"max_batches must be a whole number of batches, at least 1, got {max_batches!r}.")
    taken, more = (None, False) if batches is None else read_batches(model, batches, max_batches)
    plan, left = _plan(model, Choice(types, names, skip), sparsity, taken)
    exchange = Exchange(model, [step.place for step in plan], [step.module for step in plan])
    try:
        if taken is None:
            exchange.put()
            measured = _Measured({}, OutputDistance(), (), ())
        else:
            with leaving_no_trace(model):
                measured = _measure(model, plan, exchange, taken)
        for step in plan:
            step.module.train(step.place.parent.training)
        layers = tuple(_layer(step, measured.changes.get(step.module), taken) for step in plan)
    except BaseException:
        exchange.take_back()
        raise
    swapped = [Swapped(layer.name, layer.was, layer.now) for layer in layers]
    forms = {step.form for step in plan}
    notes = [*measured.notes, *update_configs(model, forms.pop() if len(forms) == 1 else "", swapped, left)]
    if more:
        notes.append(f"There were more batches; the first {max_batches} were read (max_batches).")
    distance = measured.distance
    output = OutputChange(distance.relative_error, distance.divergence, distance.agreement) if taken else None
    counts = len(taken or ()), sum(map(inputs_in, taken or ()))
    return SparsifyReport(layers, tuple(left), measured.functions, output, *counts, tuple(notes))


class _Step:
    """One place: what was there, what comes, and the share of zeros wanted."""

    def __init__(self, place: Place, form: str, module: KeepsLarge, target: float, note: str) -> None:
        self.place, self.form, self.module, self.target, self.note = place, form, module, target, note
        self.lowest = module.threshold  # thresholds only rise: below it the model has zeros already


class _Measured:
    """What the runs have told."""

    def __init__(
        self,
        changes: dict[KeepsLarge, LayerChange],
        distance: OutputDistance,
        functions: tuple[FunctionUse, ...],
        notes: tuple[str, ...],
    ) -> None:
        self.changes, self.distance, self.functions, self.notes = changes, distance, functions, notes


def _plan(
    model: nn.Module, choice: Choice, sparsity: float | Mapping[str, float], taken: Sequence[Arguments] | None
) -> tuple[list[_Step], list[LeftActivation]]:
    """What is to be done, nothing of which is done yet."""
    chosen, left = choose(model, choice)
    held = [p.name for p in chosen if isinstance(p.held, Thresholded) and p.held._gauge is not None]
    if held:
        raise ValueError(f"{listed(held)} is held; let go first with the remove() of what hush.hold returned.")
    forms = {}
    for place in chosen:
        form = thresholded_form(place.held)
        if form is None:
            left.append(LeftActivation(place.name, place.was, _why_unknown(place)))
        else:
            forms[place] = form
    if not forms:
        raise ValueError(f"nothing to sparsify in {nothing_found(model, left, taken[0] if taken else None)}")
    targets = targets_by_name(sparsity, [place.name for place in forms])
    plan = []
    for place, (form_name, module) in forms.items():
        if place.name in targets:
            plan.append(_Step(place, form_name, module, targets[place.name], note_on(place, list(forms))))
        else:
            left.append(LeftActivation(place.name, place.was, "no pattern of sparsity= matches it"))
    return plan, left


def _why_unknown(place: Place) -> str:
    if isinstance(place.held, Thresholded):
        return "it has a threshold already, which hush.hold moves"
    return "it computes neither ReLU nor GELU nor SiLU"


def _measure(model: nn.Module, plan: Sequence[_Step], exchange: Exchange, batches: Sequence[Arguments]) -> _Measured:
    modules = [step.module for step in plan]
    held = [step.place.held for step in plan if isinstance(step.place.held, nn.Module)]
    notes = (OVERWROTE,) if _overwrites(model, held, batches[0]) else ()
    exchange.put()
    functions = function_uses(model, watch_uses(model, batches[0]))
    _set_thresholds(model, plan, batches)
    distance = OutputDistance()
    with watched_changes(model, modules) as changes:
        for arguments in batches:
            exchange.take_back()
            before = main_output(run(model, arguments))
            exchange.put()
            after = main_output(run(model, arguments))
            if before is not None and after is not None and before.shape == after.shape:
                distance.add(before, after)
    return _Measured(changes, distance, functions, notes)


def _overwrites(model: nn.Module, held: Sequence[nn.Module], arguments: Arguments) -> bool:
    """Whether in-place activations mattered; it is the first run on a batch."""
    try:
        return inplace_matters(model, held, arguments)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{type(model).__name__} does not run on the first batch: {error}") from error


def _set_thresholds(model: nn.Module, plan: Sequence[_Step], batches: Sequence[Arguments]) -> None:
    """Each threshold to its quantile. What a layer reads depends on the thresholds of those before it, so all are
    measured anew with those in place until none is off; the first layer fits after one round, the next after two, …,
    and mostly all of them do after three."""
    for _ in range(_ROUNDS):
        found = magnitudes(model, [step.module for step in plan], batches)
        endless = [step.place.name for step in plan if not found[step.module].is_finite()]
        if endless:
            raise ValueError(f"what {listed(endless)} gives out on these batches is NaN or infinite: no quantile is.")
        if not any(found[step.module].total for step in plan):
            raise ValueError(f"none of {listed([step.place.name for step in plan])} ran on these batches.")
        close = True
        for step in plan:
            histogram = found[step.module]
            wanted = histogram.threshold_for(step.target, step.lowest)
            off = abs(histogram.share_up_to(wanted) - histogram.share_up_to(step.module.threshold))
            close &= not off > _CLOSE  # NaN, where it did not run, is as close as can be
            step.module.threshold = wanted
        if close:
            return


def _layer(step: _Step, change: LayerChange | None, batches: Sequence[Arguments] | None) -> SparsifiedLayer:
    change = change or LayerChange()
    notes = [step.note]
    if batches is not None:
        notes.append(_remark(step, change, len(batches)))
    return SparsifiedLayer(
        name=step.place.name,
        was=step.place.was,
        now=repr(step.module),
        target=step.target,
        threshold=step.module.threshold,
        zeros=change.share,
        error=change.error,
        reader=change.reader,
        reader_error=change.reader_error,
        note="; ".join(note for note in notes if note),
    )


def _remark(step: _Step, change: LayerChange, batches: int) -> str:
    """What the zeros of a layer need said of them."""
    if change.share is None:
        return "these batches never ran it"
    if change.share == 1.0:
        return "it gives out nothing but zeros"
    if change.share > step.target + _FAR and step.module.threshold == step.lowest:
        return "it had more zeros already"
    if abs(change.share - step.target) > _FAR:
        return "its values are alike: no threshold comes nearer"
    return f"called {change.calls // batches} times, with one threshold for all" if change.calls > batches else ""
