"""One random model, plain and accelerated, through the same random edits and calls: never different.

    outcome = run_twins(seed)          raises Different, with what was done until then, where the two differ

The two sum in different orders, so they are compared to 1e-4 of the scale. A pre-activation that lands within that of
a kink may fall on either side of it; whether a difference is of that kind is decided by `sensitive`, which runs the
plain model against a plain model whose Linears are wrong in the sixth digit.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own custom)

import hush.sparse
from hush.nn.relative import Relative
from hush.sparse import crossover

from .conftest import only_by_gradient
from .random_calls import CALLS, FROZEN_CALLS, STEP_CALLS, Side
from .random_edits import COPIES, EDITS, LowRank
from .random_layers import WIDTHS
from .random_models import KINDS

__all__ = ["Different", "Outcome", "engine_calls", "run_twins", "sensitive"]

_RECOVERABLE = Exception  # a crash of the process is not among them


class Different(AssertionError):  # noqa: N818  (what it says, not an error of the tests)
    """The twins differ; `log` is what was done, the last entry is where it shows."""

    def __init__(self, outcome: "Outcome", log: list[str], what: str) -> None:
        self.outcome, self.log, self.what = outcome, log, what
        super().__init__(f"seed {outcome.seed}: {what}\n  " + "\n  ".join(log))


@dataclass
class Outcome:
    """What was tried on one model, and whether kernels ran."""

    seed: int
    kind: str = ""
    mode: str = ""
    edits: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    raised: int = 0  # calls and edits that raised alike
    compared: int = 0  # tensors
    engine: int = 0  # kernel calls of the accelerated twin


def engine_calls() -> int:
    """How often kernels ran in this process."""
    return hush.sparse.engine_calls()


def run_twins(
    seed: int,
    kinds: list[str] | None = None,
    without: tuple[str, ...] = (),
    noise: float | None = None,
) -> Outcome:
    """Draws a model from the seed and compares it with its accelerated twin, through two to six edits and calls.

    Arguments:
        kinds: of models to draw from, all if not given.
        without: names of calls and edits that are left out.
        noise: the twin is not accelerated, its Linears are wrong by this share instead.
    """
    with warnings.catch_warnings(), _environment(only_gradients=seed % 3 == 2):
        warnings.simplefilter("ignore")  # deprecated weight_norm, reentrant checkpoints, batches of one
        return _Scenario(seed, kinds, without, noise).run()


def sensitive(different: Different, **given: Any) -> bool:
    """Whether a plain model whose Linears are wrong in the sixth digit differs too, at the same step or before."""
    for share in (3e-7, -3e-7, 1e-6, -1e-6, 2e-6, -2e-6):
        try:
            run_twins(different.outcome.seed, noise=share, **given)
        except Different as also:
            if len(also.log) <= len(different.log):
                return True
    return False


@contextmanager
def _environment(only_gradients: bool) -> Iterator[None]:
    """No timing decides whether a kernel runs. Without zeros in the inputs, those of the gradients are left out."""
    before, limit = os.environ.get("HUSH_CROSSOVER"), crossover.limit
    os.environ["HUSH_CROSSOVER"] = "always"
    if only_gradients:
        crossover.limit = only_by_gradient
    try:
        yield
    finally:
        crossover.limit = limit
        if before is None:
            del os.environ["HUSH_CROSSOVER"]
        else:
            os.environ["HUSH_CROSSOVER"] = before


@contextmanager
def _wrong_by(share: float) -> Iterator[None]:
    """Every F.linear and F.conv2d off by that share, and 0 where it is next to nothing: a sum of terms that cancel is 0
    in one order and 1e-9 in another, and a unit that is exactly 0 is silent. Its gradients are right."""
    linear, convolution = F.linear, F.conv2d

    def wrong(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*args: Any, **given: Any) -> Tensor:
            out = right(*args, **given)
            if out.dtype != torch.float32:
                return out
            still = torch.nan_to_num(out.detach()).clamp(-1e6, 1e6)
            off = share * (1.0 + still.abs()) * torch.sin(1000.0 * still)
            return out + torch.where(still.abs() < abs(share), -still, off)

        return run

    F.linear, F.conv2d = wrong(linear), wrong(convolution)
    try:
        yield
    finally:
        F.linear, F.conv2d = linear, convolution


class _Scenario:
    def __init__(self, seed: int, kinds: list[str] | None, without: tuple[str, ...], noise: float | None) -> None:
        self.seed, self.dice, self.without, self.noise = seed, Random(seed), without, noise
        self.outcome, self.log = Outcome(seed), []
        dice = self.dice
        self.outcome.kind = dice.choice(kinds or list(KINDS))
        self.outcome.mode = dice.choice(["plain"] * 8 + ["frozen", "optimizer"])
        transformer = self.outcome.kind in ("attention", "transformer")
        self.dims = dice.choice([2, 3, 3] if transformer else [1, 2, 2, 2, 2, 3])
        self.width = dice.choice(WIDTHS)
        self.bad = False  # whether the input of this call is
        self.singular = False  # whether this call asks for derivatives that there are none of
        self.over = False
        self.eval, self.double = dice.random() < 0.3, dice.random() < 0.05

    def _build(self) -> nn.Module:
        """The model again at each call: not every plain model can be copied."""
        torch.manual_seed(self.seed)
        model = KINDS[self.outcome.kind](Random(self.seed), self.width, self.dims).train(not self.eval)
        return model.double() if self.double else model

    def run(self) -> Outcome:
        plain, fast = Side(self._build()), Side(self._build(), fused=self.noise is None)
        self.second = fast
        self.before = engine_calls()
        self._accelerate(plain, fast)
        self._compare_state(plain, fast)
        for _ in range(self.dice.randint(2, 4)):
            for _ in range(self.dice.choice([0, 1, 1, 2])):
                self._edit(plain, fast)
            self._call(plain, fast)
            if self.bad or self.singular or self.over:  # what a NaN has reached is broken in both, and stays so
                break
        self.outcome.engine = engine_calls() - self.before
        return self.outcome

    def _accelerate(self, plain: Side, fast: Side) -> None:
        given: dict[str, Any] = {"adaptive": self.dice.random() < 0.5, "frozen": self.outcome.mode == "frozen"}
        if self.outcome.mode == "optimizer":
            make = self.dice.choice(
                [
                    lambda p: torch.optim.SGD(p, lr=0.02),
                    lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=0.01),
                    lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-2),
                ]
            )
            for side in (plain, fast):
                side.optimizer = make(side.model.parameters())
            given["optimizer"] = fast.optimizer
        self.log.append(f"{self.outcome.kind}, width {self.width}, {self.dims}-d, accelerate({given}): {plain.model}")
        if self.noise is None:
            hush.sparse.accelerate(fast.model, **given)

    def _edit(self, plain: Side, fast: Side) -> None:
        names = [n for n in EDITS if n not in self.without]
        if self.outcome.mode == "optimizer":
            names = [n for n in names if n not in COPIES]
        if self.outcome.mode == "frozen":  # promises to notice every change but one, of which torch keeps no record
            names.remove("edit weight.data")
        name, number = self.dice.choice([*names, "accelerate again"]), self.dice.randrange(2**31)
        again = self.dice.random() < 0.5
        self.log.append(f"edit {name!r}")
        self.outcome.edits.append(name)
        if name == "accelerate again":
            # Accelerated once more, or plain for a while; a fused optimizer and frozen=True would be lost by either.
            if self.noise is None and self.outcome.mode == "plain" and not _patched(fast.model):
                hush.sparse.decelerate(fast.model)
                if again:
                    hush.sparse.accelerate(fast.model)
        else:
            results = [self._do(lambda s: _edited(s, name, Random(number)), side, number) for side in (plain, fast)]
            self._compare_results(*results)
        self._compare_state(plain, fast)

    def _call(self, plain: Side, fast: Side) -> None:
        calls = {**(FROZEN_CALLS if self.outcome.mode == "frozen" else CALLS)}
        if self.outcome.mode == "optimizer" and self.dice.random() < 0.6:
            calls = STEP_CALLS
        name = self.dice.choice([n for n in calls if n not in self.without])
        number, make = self.dice.randrange(2**31), self._input(finite=name in STEP_CALLS or name == "optimizer")
        self.log.append(f"call {name!r} with {self.described}")
        self.outcome.calls.append(name)
        results = []
        for side in (plain, fast):
            x = make(_dtype(side.model))
            results.append(self._do(lambda s: calls[name](s, x, Random(number)), side, number))  # noqa: B023
        # A root mean square has no second derivative at 0, so there torch gives what 0/0 and 0 · NaN happen to be.
        self.singular = name == "double backward" and any(isinstance(m, Relative) for m in plain.model.modules())
        self._compare_results(*results)
        if isinstance(results[0][0], Exception):  # how far a backward came before it failed is nobody's promise
            for side in (plain, fast):
                side.model.zero_grad()
            if name in STEP_CALLS:  # hush.sparse.step has updated the layers its backward had reached
                self.over = True
                return
        self._compare_state(plain, fast)
        if self.bad:
            # 0 · NaN: where a dense product meets a NaN or an infinity, the engine may leave out the zero. So the
            # gradients of such a call are broken in plain wherever they are in accelerated, though not the other way.
            broken = [_broken(side, result) for side, result in zip((plain, fast), results, strict=True)]
            if broken[1] and not broken[0]:
                self._fail("a gradient is NaN or infinite in accelerated only")

    def _do(self, act: Callable[[Side], Any], side: Side, number: int) -> Any:
        """The results and the random state it leaves, or the exception."""
        torch.manual_seed(number)
        noisy: AbstractContextManager[None] = nullcontext()
        if self.noise is not None and side is self.second:
            noisy = _wrong_by(self.noise)
        try:
            with noisy:
                return act(side), torch.random.get_rng_state()
        except _RECOVERABLE as error:
            return error, None

    def _input(self, finite: bool) -> Callable[[torch.dtype], Tensor]:
        dice, width = self.dice, self.width
        batch = dice.choice([0, 1, 2, 5, 16, 33])
        shape = {1: (width,), 2: (batch, width), 3: (dice.choice([1, 2, 3]), batch, width)}[self.dims]
        form = dice.choice(["contiguous"] * 5 + ["strided", "transposed", "expanded", "zeros", "bad"])
        form = "contiguous" if form == "bad" and finite else form
        self.bad = form == "bad"
        values = torch.randn(*shape, generator=torch.Generator().manual_seed(dice.randrange(2**31)))
        bad = dice.choice([float("nan"), float("inf"), -float("inf")])
        if form == "zeros":
            values = values * (values > 1.0)
        elif form == "bad" and values.numel():
            values[..., 1] = bad
        elif form == "expanded" and values.numel():
            values = values[:1].expand(shape).clone() if self.dims > 1 else values
        self.described = f"{form} {tuple(shape)}"

        def make(dtype: torch.dtype) -> Tensor:
            x = values.to(dtype)
            if form == "strided":
                wide = torch.zeros(*shape[:-1], 2 * width, dtype=dtype)
                wide[..., ::2] = x
                return wide[..., ::2]
            if form == "transposed":
                return x.transpose(0, -1).contiguous().transpose(0, -1)
            if form == "expanded" and self.dims > 1 and x.numel():
                return x[:1].expand(shape)
            return x.clone()

        return make

    def _compare_results(self, expected: Any, actual: Any) -> None:
        (expected, after), (actual, after_too) = expected, actual
        if isinstance(expected, Exception) or isinstance(actual, Exception):
            if type(expected) is not type(actual):
                self._fail(f"plain gives {_said(expected)}, accelerated gives {_said(actual)}")
            self.outcome.raised += 1
            return
        if not torch.equal(after, after_too):
            self._fail("torch's generator is left in another state")
        if list(expected) != list(actual):
            self._fail(f"results {list(actual)} instead of {list(expected)}")
        self._compare(expected, actual)

    def _compare_state(self, plain: Side, fast: Side) -> None:
        for what in (_names, _flags):
            if what(plain.model) != what(fast.model):
                self._fail(f"the models' modules, parameters or flags differ: {what(fast.model)}")
        self._compare(*({k: p.grad for k, p in s.model.named_parameters()} for s in (plain, fast)), what="gradient of ")
        self._compare(dict(plain.model.named_parameters()), dict(fast.model.named_parameters()), what="parameter ")
        self._compare(dict(plain.model.named_buffers()), dict(fast.model.named_buffers()), what="buffer ")

    def _compare(self, expected: dict[str, Tensor | None], actual: dict[str, Tensor | None], what: str = "") -> None:
        gradients = {k for k in expected if "gradient" in what + k}
        largest = max((_largest(expected[k]) for k in gradients), default=0.0)
        for name, e in expected.items():
            a = actual[name]
            if (e is None) != (a is None):
                self._fail(f"{what}{name} is {_shape(a)}, plain {_shape(e)}")
            if e is None or a is None:
                continue
            if (a.shape, a.dtype, a.device, a.requires_grad) != (e.shape, e.dtype, e.device, e.requires_grad):
                self._fail(f"{what}{name} is {_shape(a)}, plain {_shape(e)}")
            self.outcome.compared += 1
            if name in gradients and (self.bad or self.singular) and not (_finite(e) and _finite(a)):
                continue
            tolerance = self._tolerance(e.dtype)
            if not _near(a.detach(), e.detach(), tolerance, 0.05 * largest if name in gradients else 0.0):
                worst = (a.detach().double() - e.detach().double()).abs().max().item()
                self._fail(f"{what}{name} differs by {worst:.3g}, plain is at most {_largest(e):.3g}")

    def _tolerance(self, dtype: torch.dtype) -> float:
        if dtype == torch.bfloat16 or "autocast" in self.outcome.calls:
            return 3e-2
        always_double = self.double and not {"cast", "double and back"} & set(self.outcome.edits)
        return 1e-9 if dtype == torch.float64 and always_double else 1e-4

    def _fail(self, what: str) -> None:
        self.outcome.engine = engine_calls() - self.before
        raise Different(self.outcome, self.log, what)


def _edited(side: Side, name: str, dice: Random) -> dict[str, Tensor | None]:
    side.model = EDITS[name](side.model, dice)
    return {}


def _near(actual: Tensor, expected: Tensor, tolerance: float, scale: float) -> bool:
    if expected.numel() == 0 or expected.device.type == "meta":
        return True
    actual, expected = actual.double(), expected.double()
    scale = max(_largest(expected), scale)
    return torch.allclose(actual, expected, rtol=0.0, atol=tolerance * scale + 1e-6, equal_nan=True)


def _largest(t: Tensor | None) -> float:
    if t is None or t.device.type == "meta":
        return 0.0
    finite = t.detach()[t.detach().isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def _finite(t: Tensor) -> bool:
    return t.device.type == "meta" or bool(t.detach().isfinite().all())


def _broken(side: Side, result: Any) -> bool:
    """Whether any gradient of the call is NaN or infinite."""
    given = {} if isinstance(result[0], Exception) else {k: t for k, t in result[0].items() if "gradient" in k}
    gradients = [*given.values(), *(p.grad for p in side.model.parameters())]
    return any(g is not None and not _finite(g) for g in gradients)


def _shape(t: Tensor | None) -> str:
    return "None" if t is None else f"{tuple(t.shape)} {t.dtype} on {t.device}, requires_grad={t.requires_grad}"


def _said(result: Any) -> str:
    return f"{type(result).__name__}: {result}" if isinstance(result, Exception) else "a result"


def _names(model: nn.Module) -> list[str]:
    named = [*model.named_modules(), *model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    return [*(name for name, _ in named), *model.state_dict()]


def _flags(model: nn.Module) -> list[tuple[str, bool]]:
    modules = [(name, m.training) for name, m in model.named_modules()]
    return modules + [(name, p.requires_grad) for name, p in model.named_parameters()]


def _dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _patched(model: nn.Module) -> bool:
    return any(isinstance(m.__dict__.get("forward"), LowRank) for m in model.modules())
