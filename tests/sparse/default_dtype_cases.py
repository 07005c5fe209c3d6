"""Models under other default dtypes and devices, fake and meta tensors: each case in a forked process of its own.

    python tests/sparse/default_dtype_cases.py     {"name": [exit status, what it said], …} as JSON

What goes wrong here goes wrong as a crash, so a case must not take the others with it. The parent only imports and
never computes: a fork of a process whose threads have run may hang.
"""

import copy
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import hush.nn as hn
from hush import sparse

CASES: dict[str, Callable[[], None]] = {}


def case(run: Callable[[], None]) -> Callable[[], None]:
    CASES[run.__name__] = run
    return run


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b, self.c = nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.Linear(40, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.act(self.a(x)))))


def models() -> list[nn.Module]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(12, 40)]
    for act in (nn.ReLU(), hn.CReLU(0.1, 0.9), hn.CST(0.1, 0.9), hn.FATReLU(0.1), hn.SoftThreshold(0.1)):
        layers += [act, nn.Linear(40, 40)]
    return [nn.Sequential(*layers, hn.ShiftedReLU(0.1), nn.Linear(40, 5)), Custom()]


def pairs() -> list[tuple[nn.Module, nn.Module]]:
    return [(model, sparse.accelerate(copy.deepcopy(model))) for model in models()]


def inputs() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape) for shape in ((33, 12), (2, 7, 12), (1, 12), (12,), (0, 12))]


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    out = model(x)
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters())]


def near(actual: list[Tensor], expected: list[Tensor]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert (a.shape, a.dtype, a.device) == (e.shape, e.dtype, e.device), (a.shape, a.dtype, a.device)
        if e.numel():
            worst, scale = (a - e).abs().max().item(), e.abs().max().item()
            assert worst <= 1e-4 * scale + 1e-7, (worst, scale)


def compare(made: list[tuple[nn.Module, nn.Module]], given: list[Tensor], engine: bool = True) -> None:
    before = sparse.engine_calls()
    for plain, fast in made:
        for x in given:
            for _ in range(3):
                near(gradients(fast, x), gradients(plain, x))
                with torch.no_grad():
                    near([fast(x)], [plain(x)])
    assert not engine or sparse.engine_calls() > before, "no kernel ran"


def what_it_says(model: nn.Module, x: Tensor) -> tuple[type | None, str]:
    try:
        return None, str(model(x).dtype)
    except Exception as error:
        return type(error), str(error)


@case
def nothing_unusual() -> None:
    compare(pairs(), inputs())


def _under(dtype: torch.dtype) -> None:
    made, given = pairs(), inputs()
    torch.set_default_dtype(dtype)
    compare(made, given)


@case
def default_dtype_float64() -> None:
    _under(torch.float64)


@case
def default_dtype_bfloat16() -> None:
    _under(torch.bfloat16)


@case
def default_dtype_float16() -> None:
    _under(torch.float16)


@case
def accelerated_under_default_dtype_float64() -> None:
    plain, given = models(), inputs()
    torch.set_default_dtype(torch.float64)
    compare([(m, sparse.accelerate(copy.deepcopy(m))) for m in plain], given)


@case
def made_under_default_dtype_float64() -> None:
    torch.set_default_dtype(torch.float64)
    compare(pairs(), inputs(), engine=False)
    floats = [m.float() for m in models()]
    compare([(m, sparse.accelerate(copy.deepcopy(m))) for m in floats], [x.float() for x in inputs()])


@case
def crossovers_measured_under_default_dtype_float64() -> None:
    plain, given = models(), inputs()
    torch.set_default_dtype(torch.float64)
    del os.environ["HUSH_CROSSOVER"]
    compare([(m, sparse.accelerate(copy.deepcopy(m))) for m in plain], given, engine=False)


@case
def fused_step_under_default_dtype_float64() -> None:
    for plain in models():
        fast = copy.deepcopy(plain)
        ours, theirs = (torch.optim.AdamW(m.parameters(), lr=0.01, eps=1e-3) for m in (fast, plain))
        sparse.accelerate(fast, optimizer=ours)
        x = inputs()[0]
        torch.set_default_dtype(torch.float64)
        for _ in range(4):
            sparse.step(fast, fast(x).square().mean())
            plain(x).square().mean().backward()
            theirs.step()
            theirs.zero_grad()
        torch.set_default_dtype(torch.float32)
        near([p.detach() for p in fast.parameters()], [p.detach() for p in plain.parameters()])


# A default device is a mode that sees every call, so the plain modules may run under one: nothing is said of kernels.
@case
def default_device_meta() -> None:
    made, given = pairs(), inputs()
    torch.set_default_device("meta")
    compare(made, given, engine=False)


@case
def inside_a_device_context() -> None:
    made, given = pairs(), inputs()
    with torch.device("meta"):
        compare(made, given, engine=False)
    compare(made, given)


@case
def accelerated_under_default_device_meta() -> None:
    plain, given = models(), inputs()
    torch.set_default_device("meta")
    made = [(m, sparse.accelerate(copy.deepcopy(m))) for m in plain]
    torch.set_default_device(None)
    compare(made, given)


@case
def casts() -> None:
    made = pairs()
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.float32):
        for plain, fast in made:
            plain.to(dtype), fast.to(dtype)
            for x in inputs():
                out, expected = fast(x.to(dtype)), plain(x.to(dtype))
                assert out.dtype == dtype
                assert (out - expected).abs().sum() <= 0.05 * expected.abs().sum() + 1e-7
                out.sum().backward()
    compare(made, inputs())


@case
def fake_inputs_to_a_real_model() -> None:
    for plain, fast in pairs():
        with FakeTensorMode(allow_non_fake_inputs=True):
            for shape in ((33, 12), (12,), (2, 3, 12)):
                out = fast(torch.randn(shape))
                assert out.shape == (*shape[:-1], 5)
                out.sum().backward()
            assert fast(inputs()[0]).shape == (33, 5)
        fast.zero_grad()
        compare([(plain, fast)], inputs())


@case
def real_inputs_under_a_fake_mode() -> None:
    made, given = pairs(), inputs()
    for plain, fast in made:
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert fast(given[0]).shape == plain(given[0]).shape == (33, 5)
            assert type(fast(given[0])) is type(plain(given[0]))
    compare(made, given)


@case
def a_fake_model() -> None:
    with FakeTensorMode():
        for model in models():
            sparse.accelerate(model)
            model(torch.randn(33, 12)).sum().backward()
            assert all(p.grad.shape == p.shape for p in model.parameters())


@case
def meta_models_and_inputs() -> None:
    for plain, fast in pairs():
        plain.to("meta"), fast.to("meta")
        out = fast(torch.randn(33, 12, device="meta"))
        assert out.shape == (33, 5)
        assert out.device.type == "meta"
        out.sum().backward()
        assert what_it_says(fast, inputs()[0])[0] is what_it_says(plain, inputs()[0])[0]


@case
def meta_inputs_to_a_real_model() -> None:
    for plain, fast in pairs():
        x = torch.randn(33, 12, device="meta")
        assert what_it_says(fast, x) == what_it_says(plain, x)


@case
def a_meta_model_that_is_filled() -> None:
    made = pairs()
    for plain, fast in made:
        fast.to("meta").to_empty(device="cpu").load_state_dict(plain.state_dict())
    compare(made, inputs())


@case
def inputs_of_other_dtypes() -> None:
    for plain, fast in pairs():
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
            x = inputs()[0].to(dtype)
            assert what_it_says(fast, x) == what_it_says(plain, x)


@case
def one_parameter_of_another_dtype() -> None:
    for plain, fast in pairs():
        for name in dict(plain.named_parameters()):
            for dtype in (torch.float64, torch.bfloat16, torch.float16):
                said = []
                for model in (copy.deepcopy(plain), copy.deepcopy(fast)):
                    layer, _, attribute = name.rpartition(".")
                    owner = model.get_submodule(layer)
                    setattr(owner, attribute, nn.Parameter(getattr(owner, attribute).detach().to(dtype)))
                    said.append(what_it_says(model, inputs()[0]))
                assert said[0] == said[1], (name, dtype, said)


def run(work: Callable[[], None]) -> tuple[int, str]:
    """The case in a child: its exit status (negative: the signal that killed it) and what it said."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
            status = 1
            try:
                torch.set_num_threads(2)
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read().decode(errors="replace")[-4000:]


if __name__ == "__main__":
    os.environ["HUSH_CROSSOVER"] = "always"
    wanted = sys.argv[1:] or list(CASES)
    print(json.dumps({name: run(CASES[name]) for name in wanted}))
