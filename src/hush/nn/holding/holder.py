"""`hold`: keep the share of zeros of every layer at a target while the model trains."""

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hush.nn.activations import Thresholded
from hush.nn.holding.biases import BiasSearch, bias_of
from hush.nn.holding.gauges import Gauge
from hush.nn.holding.hold_report import HeldLayer, HoldReport
from hush.nn.holding.optimizer_steps import listen, stop_listening
from hush.nn.holding.processes import Processes, windows_of_all
from hush.nn.holding.targets import Ramp, targets_by_name
from hush.nn.structure import listed

__all__ = ["Hold", "hold", "release"]


def hold(
    model: nn.Module,
    sparsity: float | Mapping[str, float] = 0.95,
    *,
    gain: float = 0.05,
    schedule: Ramp | None = None,
    clip: Literal["follow", "stay"] = "stay",
    revive: Literal["bias"] | None = None,
    window: int = 500,
    every: int = 1,
    sync: bool = True,
    process_group: Any = None,
) -> "Hold":
    """Move the threshold of every hush activation of `model` as it trains, until the share of its zeros is `sparsity`.

        hold = hush.hold(model, 0.95)
        ...                                # the training loop as it was
        print(hold.report())

    After each step of a `torch.optim` optimizer that has parameters of the model, each threshold takes a small step of
    its own, by the zeros of all training forwards since the last one. In eval mode nothing is counted and nothing
    moves: the model is a pure function. The thresholds and all that the hold counts are part of the model's
    state_dict from now on; to resume, hold the model first and load then.

    Arguments:
        sparsity: the share of zeros; or shares by name, {"blocks.0.*": 0.8, "*": 0.95}, of which the first pattern
            that matches a layer counts, and layers that none matches are left alone.
        gain: the share of the error that a step takes away (of Gaussian pre-activations).
        schedule: `hush.ramp(0.5, steps=2000)` begins at 0.5 and closes to `sparsity` over so many steps.
        clip: "stay" leaves the clips as they are, "follow" keeps their proportion to the thresholds.
        revive: "bias" moves the bias in front of each unit that was silent for a whole window, until the nearest of
            its inputs passes the threshold by a tenth of their rms; None leaves dead units as they are.
        window: the steps over which units are watched: one that is never active in so many is reported dead. About
            an epoch is a good choice.
        every: measure and move at every so many steps only. In between no hook is there, so that an accelerated chain
            of layers runs as one; blocks whose activations the engine does not fuse lose nothing at 1.
        sync: where torch.distributed is initialised, count the zeros of all processes, so that they agree.
        process_group: the processes that train this model together; by default all.

    Raises:
        ValueError: if the model has no activation of hush, or one is held already, or a pattern matches none.
    """
    return Hold(model, sparsity, gain, schedule, clip, revive, window, every, sync, process_group)


def release(model: nn.Module) -> None:
    """Let go of whatever in `model` is held: the thresholds stay where they are, and in the state_dict."""
    for module in model.modules():
        if isinstance(module, Thresholded) and module._gauge is not None and module._gauge.hold is not None:
            module._gauge.hold.remove()


class Hold:
    """The thresholds of a model, held; made by `hush.hold`. As a context manager it lets go at the end."""

    def __init__(
        self,
        model: nn.Module,
        sparsity: float | Mapping[str, float],
        gain: float,
        schedule: Ramp | None,
        clip: str,
        revive: str | None,
        window: int,
        every: int,
        sync: bool,
        process_group: Any,
    ) -> None:
        _check(gain, schedule, clip, revive, window, every)
        self.model, self.gain, self.schedule, self.clip, self.window = model, float(gain), schedule, clip, window
        self.revive, self.every, self.processes = revive, every, Processes(sync, process_group)
        # The optimizer whose steps count, and the one that stepped last.
        self.leader: weakref.ref[torch.optim.Optimizer] | None = None
        self.latest: weakref.ref[torch.optim.Optimizer] | None = None
        modules = _thresholded(model)
        goals = targets_by_name(sparsity, list(modules))
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        axes = _unit_axes(model)
        revives = revive is not None
        self.gauges = [Gauge(modules[name], name, goal, axes[name], device, revives) for name, goal in goals.items()]
        self._search = BiasSearch(model, self.gauges) if revives else None
        for gauge in self.gauges:
            module = gauge.module
            gauge.hold = self
            module._gauge = gauge
            module.in_state_dict = True
        listen(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy of the model, or one out of a file, is held by a copy of this.
        self.__dict__.update(state)
        listen(self)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has an optimizer of its own.
        return {**self.__dict__, "leader": None, "latest": None}

    @torch.no_grad()
    def step(self) -> None:
        """Move the thresholds by what was counted since the last call; without new counts nothing happens.

        An ordinary loop need not call it: the step of a `torch.optim` optimizer does. Any other update calls for it.
        """
        if self.processes.are_several and not self.processes.have_met:
            self.processes.meet()
            self._begin_as_the_first()
        if self._search is not None and self._search.finish():
            self._search = None
        measured = [gauge for gauge in self.gauges if gauge.wait == 0]
        for gauge in self.gauges:
            if gauge.wait:
                gauge.steps += 1
                gauge.wait -= 1
                gauge.listen()
        if measured:
            self._move(measured)

    def _move(self, gauges: Sequence[Gauge]) -> None:
        for gauge, totals in zip(gauges, self._totals(gauges), strict=True):
            if totals[1]:
                clip_follows = self.clip == "follow" and not math.isnan(gauge.first_clip)
                gauge.move(totals, self._target(gauge), self.gain, clip_follows)
                gauge.steps += 1
                gauge.wait = self.every - 1
                gauge.listen()
        full = [gauge for gauge in gauges if gauge.window_moves * self.every >= self.window]
        if full:
            self._close_windows(full)

    def _totals(self, gauges: Sequence[Gauge]) -> list[tuple[float, float, float]]:
        """(active, elements, squares) since the last move of each, over all processes."""
        device = gauges[0].elements.device
        counts = torch.stack([gauge.totals().to(device) for gauge in gauges]).cpu().double()
        if self.processes.are_several:
            steps = torch.tensor([[gauge.steps, gauge.steps**2] for gauge in gauges], dtype=torch.float64)
            counts, steps = self.processes.sum(torch.cat([counts, steps], 1)).tensor_split([3], 1)
            self._check_steps(gauges, steps)
        return [(active, elements, squares) for active, elements, squares in counts.tolist()]

    def report(self) -> HoldReport:
        """Each layer's target, zeros, threshold, clip and dead units."""
        return HoldReport(tuple(self._row(gauge) for gauge in self.gauges), self.window)

    def remove(self) -> None:
        """Let go: the thresholds stay where they are, and in the state_dict."""
        stop_listening(self)
        if self._search is not None:
            self._search.leave()
            self._search = None
        for gauge in self.gauges:
            module = gauge.module
            gauge.leave()
            if getattr(module, "_gauge", None) is gauge:
                module._gauge = None

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _target(self, gauge: Gauge) -> float:
        return gauge.goal if self.schedule is None else self.schedule.at(gauge.steps, gauge.goal)

    def _begin_as_the_first(self) -> None:
        """All processes take on what the first one knows: from then on the same totals move them the same way."""
        known = torch.stack([gauge.numbers() for gauge in self.gauges])
        for gauge, numbers in zip(self.gauges, self.processes.from_first(known).tolist(), strict=True):
            gauge.take_numbers(numbers)

    def _check_steps(self, gauges: Sequence[Gauge], sums: Tensor) -> None:
        """`sums` are those of the steps k and of their squares over n processes: n Σk² = (Σk)² where all are equal."""
        for gauge, (steps, squares) in zip(gauges, sums.tolist(), strict=True):
            count = self.processes.count
            if steps != count * gauge.steps or count * squares != steps**2:
                raise RuntimeError(
                    f"{count} processes hold {gauge.name!r} together, this one has taken {gauge.steps} steps and they "
                    f"{steps / count:g} on average: one of them left a step out, or alone loaded a state. Let all of "
                    "them take the same optimizer steps and load the same state, or hold with sync=False."
                )

    def _close_windows(self, gauges: Sequence[Gauge]) -> None:
        windows = [gauge.units.window for gauge in gauges]
        helps = [self.revive is not None and bias_of(gauge) is not None for gauge in gauges]
        if self.processes.are_several:
            windows, helps = windows_of_all(self.processes, windows, helps)
        for gauge, window, help_it in zip(gauges, windows, helps, strict=True):
            gauge.close_window(window, help_it)

    def _row(self, gauge: Gauge) -> HeldLayer:
        now = 1.0 - gauge.window_active / gauge.window_elements if gauge.window_elements else math.nan
        module = gauge.module
        return HeldLayer(
            name=gauge.name,
            goal=gauge.goal,
            target=self._target(gauge),
            zeros=_known(gauge.share),
            zeros_of_window=_known(now if math.isnan(gauge.last_share) else gauge.last_share),
            threshold=float(module.threshold),
            clip=_known(float(getattr(module, "clip", math.nan))),
            dead=_known(gauge.last_dead),
            revived=gauge.revived if self.revive is not None else None,
            has_bias=bias_of(gauge) is not None if self.revive is not None and gauge.moves else None,
            moves=gauge.moves,
            off_target=abs(gauge.last_share - self._target(gauge)) > 0.01,  # no NaN is
            at_bound=gauge.at_bound,
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _check(gain: float, schedule: Ramp | None, clip: str, revive: str | None, window: int, every: int) -> None:
    if isinstance(gain, bool) or not isinstance(gain, int | float) or not 0.0 < gain <= 1.0:
        raise ValueError(f"gain is the share of the error that a step takes away, above 0 and up to 1, got {gain!r}.")
    if schedule is not None and not isinstance(schedule, Ramp):
        raise ValueError(f"schedule must be a ramp, such as hush.ramp(0.5, steps=2000), got {schedule!r}.")
    if clip not in ("follow", "stay"):
        raise ValueError(f'clip must be "follow" or "stay", got {clip!r}.')
    if revive not in ("bias", None):
        raise ValueError(f'revive must be "bias" or None, got {revive!r}.')
    for name, count in (("window", window), ("every", every)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be a whole number of steps, at least 1, got {count!r}.")


def _thresholded(model: nn.Module) -> dict[str, Thresholded]:
    """The activations that can be held, by name."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, Thresholded)}
    relative = [name for name, module in found.items() if module.entry.relative]
    if relative:
        raise ValueError(
            f"the threshold of {listed(relative)} is relative to the layer's own size and moves with it already; "
            "hush.hold moves those of the other activations, such as CReLU."
        )
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no activation of hush, so there is no threshold to move; put a design's in "
            "the place of its own first: hush.nn.swap_activations(model, design)."
        )
    held = [name for name, module in found.items() if module._gauge is not None]
    if held:
        raise ValueError(f"{listed(held)} is held already; let go first with the remove() of what hush.hold returned.")
    learnt = [name for name, module in found.items() if isinstance(module.threshold, Tensor)]
    if learnt:
        raise ValueError(f"the threshold of {listed(learnt)} is a tensor, perhaps a learned one, and cannot be held.")
    return found


def _unit_axes(model: nn.Module) -> dict[str, int]:
    """Which axis of an activation's output counts its units: 1 behind a convolution, by order of registration."""
    axes, axis = {}, -1
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            axis = 1
        elif isinstance(module, nn.Linear):
            axis = -1
        axes[name] = axis
    return axes
