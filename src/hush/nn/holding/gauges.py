"""What is measured of one held activation, and how its threshold moves.

A forward in training adds three things to tensors: how often each unit was active, how many values there were, and the
sum of squares of what came in. They are no buffers: DistributedDataParallel would overwrite the counts of every process
with those of the first one, and `.half()` would round them. Compiled code adds to them as eager code does.
"""

import math
import warnings
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hush.nn.holding.biases import move_biases
from hush.nn.holding.units import Units, Window

if TYPE_CHECKING:
    from hush.nn.activations import Thresholded
    from hush.nn.holding.holder import Hold

__all__ = ["Gauge"]

_FORMAT = 2.0  # of the state, its first number
_COUNTS = ("steps", "wait", "moves", "window_moves", "revived")
# Of these every one is at least 0; −1 stands for one that is not known yet, since no NaN equals itself.
_NUMBERS: tuple[str, ...] = (
    "first_threshold",
    "first_clip",
    "share",
    "scale",
    "at_bound",
    "window_active",
    "window_elements",
)
_NUMBERS += ("last_share", "last_dead", *_COUNTS)
_HEADER = 1 + len(_NUMBERS) + 3  # and the elements and squares since the last move, and the number of units
_SILENCE = 1000  # forwards without a step after which it is said that nothing moves


class Gauge:
    """One activation's counts, in the place `_gauge` of the module; it is the module's forward hook too.

    Attributes:
        goal: the share of zeros to hold.
        unit_axis: of the outputs; 1 for channels, −1 for features.
        threshold, clip: the module's own as tensors, which compiled code reads, since it would take a number as a
            constant and compile anew at every move.
        steps: how many optimizer steps it has seen.
        wait: how many steps go by before it measures again.
        moves: how many steps have moved the threshold.
        share: of zeros in the last step; NaN before the first.
        scale: the root mean square of what came in, in the last step.
        at_bound: whether the last move would have gone below 0.
        revived: how many units have been active again after a whole window without, and after help.
        source: the layer whose output comes in, if `hush.nn.holding.biases` has found it.
        last_share, last_dead: the share of zeros and of units that were never active, over the last full window.
    """

    def __init__(
        self, module: "Thresholded", name: str, goal: float, unit_axis: int, device: torch.device, revives: bool
    ) -> None:
        self.module, self.name, self.goal, self.unit_axis = module, name, goal, unit_axis
        self.hold: Hold | None = None
        self.first_threshold = float(module.threshold)
        self.first_clip = float(getattr(module, "clip", math.nan))
        self.threshold = torch.tensor(self.first_threshold, dtype=torch.float64, device="cpu")
        self.clip = torch.tensor(float(getattr(module, "clip", math.inf)), dtype=torch.float64, device="cpu")
        self.elements = torch.zeros((), dtype=torch.int64, device=device)
        self.squares = torch.zeros((), dtype=torch.float32, device=device)
        self.units = Units(0 if not revives else 2 if module.two_sided else 1)
        self.source: nn.Module | None = None
        self._reads = 0
        self.reset()

    def reset(self) -> None:
        """As at the beginning, at the threshold that the module has now."""
        self.steps = self.wait = self.moves = self.window_moves = self.revived = 0
        self.share = self.scale = self.last_share = self.last_dead = math.nan
        self.at_bound = False
        self.window_active = self.window_elements = 0.0
        self.clear()
        self.units.forget()
        self.follow_module()
        self.listen()

    def listen(self) -> None:
        """Be the module's hook while it is to be measured, and none at all while not: the engine fuses no hooks."""
        module = self.module
        there = self in module._forward_hooks.values()
        if self.wait == 0 and not there:
            module.register_forward_hook(self, with_kwargs=True)
        elif self.wait > 0 and there:
            self.leave()

    def leave(self) -> None:
        for key, hook in list(self.module._forward_hooks.items()):
            if hook is self:
                del self.module._forward_hooks[key]
                self.module._forward_hooks_with_kwargs.pop(key, None)

    def follow_module(self) -> None:
        """The tensors take on what the module has."""
        self.threshold.fill_(self.module.threshold)
        self.clip.fill_(getattr(self.module, "clip", math.inf))

    def clear(self) -> None:
        """Nothing has been counted since the last move."""
        self.elements.zero_()
        self.squares.zero_()
        self.units.clear()

    # ----------------------------------------------------------------------------------------------------- measuring

    def __call__(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        """The forward hook. Evaluation, forwards without gradients and torch.func's transforms leave no trace."""
        if not module.training or not torch.is_grad_enabled() or torch.compiler.is_exporting():
            return
        if not torch.compiler.is_compiling():
            if torch._C._are_functorch_transforms_active() or torch._C._get_tracing_state() is not None:
                return
            self._say_when_nothing_steps()
        self.count((args[0] if args else next(iter(named.values()))).detach(), output.detach())

    def count(self, x: Tensor, y: Tensor) -> None:
        """Add what one forward tells."""
        if self.elements.device != y.device:
            self.elements, self.squares = self.elements.to(y.device), self.squares.to(y.device)
        self.units.count(x, y, self.unit_axis)
        self.elements.add_(y.numel())
        half = x.dtype in (torch.float16, torch.bfloat16)
        self.squares.add_(torch.linalg.vector_norm(x, dtype=torch.float32 if half else None).square())

    def _say_when_nothing_steps(self) -> None:
        self._reads += 1
        if self._reads == _SILENCE and self.moves == 0:
            warnings.warn(
                f"the sparsity of {self.name!r} is to be held, but its threshold has not moved in {_SILENCE} forwards: "
                "no torch.optim optimizer of this model has stepped. Call hold.step() after each update.",
                stacklevel=2,
            )

    def totals(self) -> Tensor:
        """(active, elements, squares) since the last move, on the device of the counts."""
        kind = torch.float32 if self.elements.device.type == "mps" else torch.float64
        counted = self.units.active
        active = self.elements.new_zeros((), dtype=kind) if counted is None else counted.sum(dtype=kind)
        return torch.stack([active, self.elements.to(kind), self.squares.to(kind)])

    # ------------------------------------------------------------------------------------------------------- moving

    def move(self, totals: tuple[float, float, float], target: float, gain: float, clip_follows: bool) -> None:
        """One step of the controller, from the totals of all processes: τ ← max(0, τ + gain · rms · (s − ŝ)/n_s).

        n_s is how fast the share of zeros grows with τ/rms at s where pre-activations are Gaussian: so `gain` is the
        share of the error that a step takes away. A layer that is nearly silent takes that share off its threshold,
        since steps of a vanishing rms would never get there. The integral of the error is τ itself, so a bound winds
        nothing up.
        """
        active, elements, squares = totals
        if not all(map(math.isfinite, totals)):
            self.clear()  # inf or NaN came in: nothing to learn from
            return
        self.share, self.scale = 1.0 - active / elements, math.sqrt(squares / elements)
        wanted = self.module.threshold + gain * self.scale * (target - self.share) / self._growth_at(target)
        if 1.0 - self.share < 0.25 * (1.0 - target):
            wanted = min(wanted, (1.0 - gain) * self.module.threshold)
        self.at_bound = wanted < 0.0
        self.module.threshold = max(0.0, wanted)
        if clip_follows and self.first_threshold > 0.0:
            # In the proportion of the beginning, and never below a quarter of it: a clip near 0 would end the signal.
            setattr(self.module, "clip", self.first_clip * max(0.25, self.module.threshold / self.first_threshold))  # noqa: B010
        self.follow_module()
        self.moves += 1
        self.window_moves += 1
        self.window_active += active
        self.window_elements += elements
        self.units.after_move()
        self.clear()

    def _growth_at(self, share: float) -> float:
        """d P(φ = 0)/dτ of a standard Gaussian where that share is zero; not below that at 0.995, so that steps end."""
        sides = 2.0 if self.module.two_sided else 1.0
        quantile = NormalDist().inv_cdf(1.0 - (1.0 - share) / sides)
        return sides * max(NormalDist().pdf(quantile), 0.0145)

    def close_window(self, window: Window, helps: bool) -> None:
        """A window ends, of which all processes know what `window` says; `helps`: whether dead units get help."""
        if self.window_elements:
            self.last_share = 1.0 - self.window_active / self.window_elements
        if window.seen is not None and window.seen.numel() > 1:
            silent = window.seen == 0
            self.last_dead = float(silent.double().mean())
            if self.units.raised is not None:
                self.revived += int((self.units.raised.bool().to(silent.device) & ~silent).sum())
                moved = torch.zeros_like(silent)
                if helps and window.highest is not None:
                    moved = move_biases(self, silent, window.highest, window.lowest)
                self.units.raised.copy_(moved)
        self.window_moves = 0
        self.window_active = self.window_elements = 0.0
        self.units.begin_window()

    # ------------------------------------------------------------------------------------------------------- saving

    def numbers(self) -> Tensor:
        """The threshold, the clip and all numbers that a move goes by, in float64."""
        known = [float(getattr(self, name)) for name in _NUMBERS]
        own = [self.module.threshold, getattr(self.module, "clip", -1.0)]
        return torch.tensor(
            [*own, *(-1.0 if math.isnan(value) else value for value in known)], dtype=torch.float64, device="cpu"
        )

    def take_numbers(self, numbers: Sequence[float]) -> None:
        """What `numbers` of another process gave."""
        self.module.threshold = numbers[0]
        if hasattr(self.module, "clip"):
            setattr(self.module, "clip", numbers[1])  # noqa: B010
        for name, value in zip(_NUMBERS, numbers[2:], strict=True):
            setattr(self, name, int(value) if name in _COUNTS else math.nan if value == -1.0 else value)
        self.at_bound = bool(self.at_bound)
        self.follow_module()
        self.listen()

    def state(self) -> Tensor:
        """All of it as one float64 tensor, which goes into the module's own state."""
        units = 0 if self.units.active is None else self.units.active.numel()
        numbers = [_FORMAT, *self.numbers().tolist()[2:], float(self.elements), float(self.squares), float(units)]
        return torch.cat([torch.tensor(numbers, dtype=torch.float64, device="cpu"), self.units.state()])

    def load(self, state: Tensor) -> None:
        """What `state` gave; an empty one begins anew.

        Raises:
            ValueError: if it is none.
        """
        if not state.numel():
            self.reset()
            return
        numbers, rest = state[:_HEADER].tolist(), state[_HEADER:]
        units = int(numbers[-1]) if len(numbers) == _HEADER else -1
        fits = units == len(rest) == 0 or (units > 0 and len(rest) in (2 * units, 4 * units, 5 * units))
        if numbers[0] != _FORMAT or not fits:
            raise ValueError(f"the state of {self.name!r} has {len(state)} numbers that no hold of this version wrote.")
        clip = getattr(self.module, "clip", -1.0)
        self.take_numbers([self.module.threshold, clip, *numbers[1 : 1 + len(_NUMBERS)]])
        self.elements.fill_(int(numbers[-3]))
        self.squares.fill_(numbers[-2])
        self.units.load(rest, units, self.elements.device)
