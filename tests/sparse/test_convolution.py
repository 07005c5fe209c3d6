"""act_conv2d: every product against dense float64, beside the error that dense float32 has."""

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hush.sparse import Activation, act_conv2d, engine_calls, isa
from hush.sparse.convolution_form import form_from

CRELU = Activation.crelu(0.6, 1.1)


@dataclass(frozen=True)
class Case:
    """Sizes and form of a convolution; the seed is fixed, so that a failure replays."""

    images: int = 2
    inputs: int = 8
    outputs: int = 8
    size: tuple[int, int] = (6, 7)
    kernel: int | tuple[int, int] = 3
    stride: int | tuple[int, int] = 1
    padding: int | tuple[int, int] | str = 1
    mode: str = "zeros"
    bias: bool = True
    weights: torch.memory_format = torch.contiguous_format

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        torch.manual_seed(0)
        kernel = (self.kernel,) * 2 if isinstance(self.kernel, int) else self.kernel
        x = torch.randn(self.images, self.inputs, *self.size).contiguous(memory_format=torch.channels_last)
        weight = torch.randn(self.outputs, self.inputs, *kernel).contiguous(memory_format=self.weights)
        return x, weight, torch.randn(self.outputs) if self.bias else None


CASES = [
    Case(),
    Case(inputs=1, outputs=1, size=(5, 4), bias=False),
    Case(inputs=17, outputs=33, size=(9, 5), weights=torch.channels_last),
    Case(inputs=64, outputs=70, size=(4, 4), images=5),
    Case(inputs=5, outputs=300, kernel=1, padding=0),
    Case(inputs=20, outputs=31, kernel=5, padding=2),
    Case(inputs=20, outputs=31, kernel=5, padding=0),
    Case(kernel=3, padding=2),
    Case(kernel=3, padding=4),
    Case(kernel=3, padding="same"),
    Case(kernel=4, padding="same"),
    Case(kernel=2, padding="valid"),
    Case(kernel=3, stride=2, padding=1, size=(8, 7)),
    Case(kernel=5, stride=2, padding=2, size=(7, 8)),
    Case(kernel=1, stride=2, padding=0),
    Case(kernel=2, stride=3, padding=1, size=(9, 9)),  # one row in three is read by nobody
    Case(kernel=(1, 5), stride=(2, 1), padding=(0, 2), size=(5, 6)),
    Case(mode="circular"),
    Case(mode="circular", padding=2, bias=False),
    Case(mode="circular", kernel=5, padding=2, stride=2, size=(6, 8)),
    Case(mode="circular", kernel=4, padding="same"),
    Case(mode="circular", kernel=3, padding=3, size=(3, 4)),  # as wide as the image
]


def run(case: Case, phi: Activation, dtype: torch.dtype, sparse: bool) -> list[Tensor]:
    """The output and the gradients of x, weight and bias."""
    x, weight, bias = (None if t is None else t.to(dtype).requires_grad_() for t in case.tensors())
    if sparse:
        out = act_conv2d(x, weight, bias, phi, case.stride, case.padding, case.mode)
    else:
        form = form_from(case.stride, case.padding, case.mode, tuple(weight.shape[2:]))
        out = form.dense(phi(x), weight, bias)
    generator = torch.Generator().manual_seed(1)
    out.backward(torch.randn(out.shape, generator=generator).to(dtype))
    return [out.detach(), *(t.grad for t in (x, weight, bias) if t is not None)]


def check(case: Case, phi: Activation) -> None:
    before = engine_calls()
    sparse = run(case, phi, torch.float32, True)
    if case.inputs > 1:  # with one channel nobody can tell channels-last
        assert engine_calls() > before
    exact, dense = run(case, phi, torch.float64, False), run(case, phi, torch.float32, False)
    for ours, right, theirs in zip(sparse, exact, dense, strict=True):
        scale = right.abs().max().item()
        error, usual = (float((t.double() - right).abs().max()) for t in (ours, theirs))
        assert error <= max(4.0 * usual, 1e-6 * scale), (case, error, usual, scale)
        assert ours.shape == theirs.shape
        if case.mode == "zeros":  # torch's circular padding forgets how the images lie
            assert _strides(ours) == _strides(theirs)


def _strides(t: Tensor) -> list[int]:
    """Of the dimensions in which there is a step to make."""
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_product_is_that_of_dense_float64(case, threads):
    torch.set_num_threads(threads)
    check(case, CRELU)


def test_every_activation(phi):
    check(Case(inputs=12, outputs=9), phi)
    check(Case(inputs=12, outputs=9, mode="circular", stride=2), phi)


def test_the_form_is_that_of_torch():
    """The oracle above pads by hand: it is nn.Conv2d's own padding."""
    for case in CASES:
        x, weight, bias = case.tensors()
        kernel = tuple(weight.shape[2:])
        conv = torch.nn.Conv2d(
            case.inputs, case.outputs, kernel, case.stride, case.padding, bias=case.bias, padding_mode=case.mode
        )
        with torch.no_grad():
            conv.weight.copy_(weight)
            if bias is not None:
                conv.bias.copy_(bias)
        mine = form_from(case.stride, case.padding, case.mode, kernel).dense(x, weight, bias)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: an even kernel with padding "same" costs it a copy
            torch.testing.assert_close(mine, conv(x).detach(), rtol=1e-5, atol=1e-5)


def test_sums_do_not_depend_on_the_threads():
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(run(Case(inputs=40, outputs=20, images=7), CRELU, torch.float32, True))
    for one, two, three in zip(*found, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_another_instruction_set():
    """The set is chosen once in a process, so it needs one of its own. `make -C native sanitize` runs all of them."""
    other = "avx2" if isa() == "avx512" else "portable"
    code = (
        "import torch; torch.set_num_threads(2)\n"
        "from tests.sparse.test_convolution import CASES, CRELU, check\n"
        "from hush.sparse import isa\n"
        "for case in CASES: check(case, CRELU)\n"
        "print(isa())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HUSH_ISA": other}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, other), done.stderr


def test_what_is_kept_for_the_backward_is_compact():
    kept = {}
    x = torch.randn(8, 64, 16, 16).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(64, 64, 3, 3, requires_grad=True)
    for sparsity, most in ((0.85, 0.35), (0.95, 0.15)):
        phi = Activation.shifted_relu(float(torch.quantile(x.detach().flatten()[:100_000], sparsity)))
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, to=sizes: (to.append(t.nbytes), t)[1], lambda t: t):
            act_conv2d(x, weight, None, phi, padding=1)
        kept[sparsity] = (sum(sizes) - weight.nbytes) / x.nbytes - (x.nbytes if x.nbytes in sizes else 0) / x.nbytes
        assert kept[sparsity] <= most, kept


@pytest.mark.parametrize("which", range(3))
def test_only_some_gradients(which):
    """Of x, the weight or the bias alone."""
    case = Case(inputs=12)
    tensors = [t.requires_grad_(i == which) for i, t in enumerate(case.tensors())]
    act_conv2d(*tensors, CRELU, 1, 1).square().sum().backward()
    found = tensors[which].grad
    oracle = [t.detach().double().requires_grad_() for t in tensors]
    F.conv2d(CRELU(oracle[0]), oracle[1], oracle[2], 1, 1).square().sum().backward()
    assert float((found - oracle[which].grad).abs().max()) < 1e-5 * float(oracle[which].grad.abs().max())
    assert all(t.grad is None for i, t in enumerate(tensors) if i != which)


def test_what_lies_otherwise_runs_on_torch():
    x, weight, bias = Case().tensors()
    before = engine_calls()
    usual = act_conv2d(x.contiguous(), weight, bias, CRELU, 1, 1)
    every_other = act_conv2d(x[:, :, ::2], weight, bias, CRELU, 1, 1)
    nobody = act_conv2d(x[:0], weight, bias, CRELU, 1, 1)
    act_conv2d(x.double(), weight.double(), bias.double(), CRELU, 1, 1)
    assert engine_calls() == before
    assert usual.is_contiguous()
    assert nobody.shape == (0, 8, 6, 7)
    torch.testing.assert_close(every_other, F.conv2d(CRELU(x[:, :, ::2]), weight, bias, 1, 1))


def test_a_gradient_that_lies_otherwise():
    case = Case(inputs=12, outputs=10)
    x, weight, bias = (t.requires_grad_() for t in case.tensors())
    out = act_conv2d(x, weight, bias, CRELU, 1, 1)
    grad = torch.randn(out.shape[2:]).expand(out.shape)  # strides 0
    out.backward(grad)
    oracle = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    F.conv2d(CRELU(oracle[0]), oracle[1], oracle[2], 1, 1).backward(grad.double())
    for mine, right in zip((x, weight, bias), oracle, strict=True):
        torch.testing.assert_close(mine.grad.double(), right.grad, rtol=0, atol=1e-5 * float(right.grad.abs().max()))


def test_second_derivatives():
    def penalty(function, dtype):
        x, weight, bias = (t.to(dtype).requires_grad_() for t in Case(inputs=12).tensors())
        loss = function(x, weight, bias).sin().sum()
        first = torch.autograd.grad(loss, (x, weight, bias), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, weight, bias))

    mine = penalty(lambda x, w, b: act_conv2d(x, w, b, CRELU, 1, 1), torch.float32)
    right = penalty(lambda x, w, b: F.conv2d(CRELU(x), w, b, 1, 1), torch.float64)
    for m, r in zip(mine, right, strict=True):
        torch.testing.assert_close(m.double(), r, rtol=0, atol=2e-5 * float(r.abs().max()))


def test_a_weight_that_changes_before_the_backward_is_noticed():
    x, weight, bias = (t.requires_grad_() for t in Case().tensors())
    loss = act_conv2d(x, weight, bias, CRELU, 1, 1).sum()
    with torch.no_grad():
        weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_nan_and_infinity_in_the_images_spread_as_in_torch():
    x, weight, bias = Case(inputs=12).tensors()
    x[0, 3, 2, 2], x[1, 5, 4, 4] = float("nan"), float("inf")
    unclipped = Activation.shifted_relu(0.6)
    mine, right = act_conv2d(x, weight, bias, unclipped, 1, 1), F.conv2d(unclipped(x), weight, bias, 1, 1)
    torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.randn(8, 6, 7)}, "The input has shape"),
        ({"weight": torch.randn(8, 7, 3, 3)}, "with 8 channels it must be"),
        ({"bias": torch.randn(7)}, r"The bias has shape \(7,\); it must be \(8,\)"),
        ({"weight": torch.randn(8, 8, 3, 3).double()}, "they must agree"),
        ({"stride": 0}, "The stride is 0"),
        ({"padding": "some"}, "The padding is 'some'"),
        ({"padding": -1}, "The padding is -1"),
        ({"padding": "same", "stride": 2}, "goes with stride 1"),
        ({"padding_mode": "reflect"}, "'zeros' or 'circular'"),
        ({"weight": torch.randn(8, 8, 9, 9)}, "at least as large"),
        ({"padding_mode": "circular", "padding": 8}, "more than once"),
    ],
)
def test_wrong_arguments_are_told_in_words(change, message):
    x, weight, bias = Case().tensors()
    given = {"x": x, "weight": weight, "bias": bias, "activation": CRELU, "stride": 1, "padding": 1, **change}
    with pytest.raises(ValueError, match=message):
        act_conv2d(**given)
