"""torch.export and ONNX: every activation, in every dtype and odd shape, gives what it gives in Python."""

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hush
from tests.nn.test_activations import CLIP, TAU, special

PHIS = [
    hush.nn.ShiftedReLU(TAU),
    hush.nn.SoftThreshold(TAU),
    hush.nn.CReLU(TAU, CLIP),
    hush.nn.CReLU(TAU, math.inf),
    hush.nn.CST(TAU, CLIP),
    hush.nn.CST(TAU, math.inf),
    hush.nn.FATReLU(TAU),
    hush.nn.ShiftedReLU(0.0),
    hush.nn.SoftThreshold(0.0),
    hush.nn.FATReLU(0.0),
]
DESIGN = hush.design("crelu", 0.85, v_prime=0.5)
# The exporters call things that torch has deprecated.
exports = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Every(nn.Module):
    """Every activation of some inputs of its own: one export instead of forty."""

    def __init__(self) -> None:
        super().__init__()
        self.phis = nn.ModuleList(PHIS)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        each = len(inputs) // len(PHIS)
        return tuple(self.phis[place // each](x) for place, x in enumerate(inputs))


def inputs(dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Of four shapes for each activation. Shared by several, the exporter to ONNX would lose track of their bounds."""
    odd = torch.randn(3, 1, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    shapes = special(dtype), torch.tensor(0.7, dtype=dtype), torch.empty(0, 3, dtype=dtype), odd
    return tuple(x.clone() for _ in PHIS for x in shapes)


def model() -> nn.Module:
    """A small model that was swapped: convolutions, a residual add, a transformer layer."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Flatten(2), nn.Linear(36, 16), nn.GELU())
    net = nn.Sequential(*body, nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 4)).eval()
    hush.nn.swap_activations(net, DESIGN)
    return net


def through_onnx(module: nn.Module, arguments: tuple[Tensor, ...], **options: Any) -> Any:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="needs onnx, onnxscript and onnxruntime, of the extra `bench`")
    import onnxruntime

    program = torch.onnx.export(module, arguments, dynamo=True, verbose=False, **options)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*given: Tensor) -> list[Tensor]:
        feed = {name: x.numpy() for name, x in zip(names, given, strict=True)}
        return [torch.as_tensor(y) for y in session.run(None, feed)]

    return run


def assert_identical(found: Tensor, expected: Tensor) -> None:
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0, equal_nan=True)


@exports
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_torch_export(dtype: torch.dtype) -> None:
    given = inputs(dtype)
    program = torch.export.export(Every().eval(), given)
    for found, expected in zip(program.module()(*given), Every()(*given), strict=True):
        assert_identical(found, expected)
        assert torch.equal(torch.signbit(found[found == 0]), torch.signbit(expected[expected == 0]))


@exports
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_an_exported_program_still_learns(strict: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    # A kink is hit with probability 0. What needs no gradient would be exported without a backward in any case.
    given = [torch.randn(9, 7, generator=generator).requires_grad_() for _ in PHIS]
    program = torch.export.export(Every(), tuple(given), strict=strict).module()
    results = []
    for module in (program, Every()):
        leaves = [x.detach().clone().requires_grad_() for x in given]
        outputs = module(*leaves)
        results.append([*outputs, *torch.autograd.grad([y.sum() for y in outputs], leaves)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@exports
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_onnx_runtime(dtype: torch.dtype) -> None:
    given = inputs(dtype)
    found = through_onnx(Every().eval(), given)(*given)
    expected = Every()(*given)
    for place, (y, exact) in enumerate(zip(found, expected, strict=True)):
        assert_identical(y, exact)
        # Adding 0.0, which is all that τ = 0 leaves to do, is dropped by the exporter: there −0.0 stays what it is.
        if PHIS[place // (len(given) // len(PHIS))].threshold > 0.0:
            assert not torch.signbit(y[y == 0]).any()


@exports
def test_a_swapped_model(tmp_path: Any) -> None:
    net, x = model(), torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    more = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    batch = torch.export.Dim("batch", min=2)
    file = io.BytesIO()
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: batch},)), file)
    file.seek(0)
    exported = torch.export.load(file).module()
    with torch.no_grad():
        torch.testing.assert_close(exported(more), net(more))
        (found,) = through_onnx(net, (x,), dynamic_shapes=({0: batch},))(more)
        torch.testing.assert_close(found, net(more), rtol=1e-4, atol=1e-5)
