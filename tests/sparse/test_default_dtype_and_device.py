"""torch's default dtype and device, fake and meta tensors: none of them reaches the engine's memory.

Each case runs in a process of its own, for what goes wrong here goes wrong as a crash. The same cases run under
AddressSanitizer by `make sanitize`.
"""

import os
import subprocess
import sys

import pytest

PRELUDE = """
import copy, torch
from torch import nn
import hush.nn as hn
from hush.sparse import accelerate, engine_calls, step

torch.manual_seed(0)
torch.set_num_threads(2)

class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b, self.c = nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.Linear(40, 5)
    def forward(self, x):
        return self.c(torch.relu(self.b(self.act(self.a(x)))))

def models():
    layers = [nn.Linear(12, 40)]
    for make in (nn.ReLU, lambda: hn.CReLU(0.1, 0.9), lambda: hn.CST(0.1, 0.9), lambda: hn.FATReLU(0.1)):
        layers += [make(), nn.Linear(40, 40)]
    return [nn.Sequential(*layers, hn.ShiftedReLU(0.1), nn.Linear(40, 5)), Custom()]

def gradients(model, x):
    model.zero_grad()
    out = model(x)
    out.square().sum().backward()
    return [out.detach()] + [p.grad for p in model.parameters()]

def near(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype and a.device == e.device, (a.dtype, e.dtype, a.device, e.device)
        assert (a - e).abs().max() <= 1e-4 * e.abs().max() + 1e-7, (a - e).abs().max()

pairs = [(m, accelerate(copy.deepcopy(m))) for m in models()]
inputs = [torch.randn(33, 12), torch.randn(2, 7, 12), torch.randn(1, 12), torch.randn(12), torch.randn(0, 12)]
"""

COMPARE = """
before = engine_calls()
for plain, fast in pairs:
    for x in inputs:
        for _ in range(3):
            near(gradients(fast, x), gradients(plain, x))
            with torch.no_grad():
                near([fast(x)], [plain(x)])
assert engine_calls() > before
"""

CASES = {
    "nothing unusual": COMPARE,
    "default dtype float64": "torch.set_default_dtype(torch.float64)\n" + COMPARE,
    "default dtype bfloat16": "torch.set_default_dtype(torch.bfloat16)\n" + COMPARE,
    "default dtype float16": "torch.set_default_dtype(torch.float16)\n" + COMPARE,
    # The plain modules may run here: a default device is a mode that sees every call. So nothing is said of kernels.
    "default device meta": "torch.set_default_device('meta')\n" + COMPARE.replace("assert engine_calls() > before", ""),
    "with torch.device('meta')": """
with torch.device("meta"):
    for plain, fast in pairs:
        for x in inputs:
            near(gradients(fast, x), gradients(plain, x))
""",
    "accelerate under default dtype float64": """
torch.set_default_dtype(torch.float64)
pairs = [(plain, accelerate(copy.deepcopy(plain))) for plain, _ in pairs]
"""
    + COMPARE,
    "accelerate under default device meta": """
torch.set_default_device("meta")
pairs = [(plain, accelerate(copy.deepcopy(plain))) for plain, _ in pairs]
torch.set_default_device(None)
"""
    + COMPARE,
    "fused step under default dtype float64": """
plain = models()[0]
fast = copy.deepcopy(plain)
ours = torch.optim.AdamW(fast.parameters(), lr=0.01, eps=1e-3)
theirs = torch.optim.AdamW(plain.parameters(), lr=0.01, eps=1e-3)
accelerate(fast, optimizer=ours)
torch.set_default_dtype(torch.float64)
for _ in range(4):
    step(fast, fast(inputs[0]).square().mean())
    theirs.zero_grad()
    plain(inputs[0]).square().mean().backward()
    theirs.step()
near(list(fast.parameters()), list(plain.parameters()))
""",
    "a model made under default dtype float64": """
torch.set_default_dtype(torch.float64)
for model in models():
    x = torch.randn(9, 12)
    near(gradients(accelerate(copy.deepcopy(model)), x), gradients(model, x))
    mixed = accelerate(copy.deepcopy(model).float())
    near(gradients(mixed, x.float()), gradients(copy.deepcopy(model).float(), x.float()))
""",
    "crossovers are measured under default dtype float64": """
import os
os.environ.pop("HUSH_CROSSOVER")
torch.set_default_dtype(torch.float64)
for plain, _ in pairs:
    fast = accelerate(copy.deepcopy(plain))
    for x in inputs:
        near(gradients(fast, x), gradients(plain, x))
""",
    "casts": """
for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.float32):
    for plain, fast in pairs:
        plain.to(dtype), fast.to(dtype)
        for x in inputs:
            x = x.to(dtype)
            out, expected = fast(x), plain(x)
            assert out.dtype == dtype
            assert (out - expected).abs().sum() <= 0.05 * expected.abs().sum() + 1e-7
            out.sum().backward()
""",
    "FakeTensorMode": """
from torch._subclasses.fake_tensor import FakeTensorMode
for plain, fast in pairs:
    with FakeTensorMode(allow_non_fake_inputs=True):
        for shape in ((33, 12), (12,), (2, 3, 12)):
            out = fast(torch.randn(shape))
            assert out.shape == (*shape[:-1], 5)
            out.sum().backward()
""",
    "FakeTensorMode over a whole model": """
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    for model in models():
        accelerate(model)
        model(torch.randn(33, 12)).sum().backward()
        assert all(p.grad.shape == p.shape for p in model.parameters())
""",
    "FakeTensorMode(allow_non_fake_inputs) and a real input": """
from torch._subclasses.fake_tensor import FakeTensorMode
for plain, fast in pairs:
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert fast(inputs[0]).shape == (33, 5)
    near(gradients(fast, inputs[0]), gradients(plain, inputs[0]))
""",
    "meta tensors": """
for plain, fast in pairs:
    fast.to("meta")
    out = fast(torch.randn(33, 12, device="meta"))
    assert out.shape == (33, 5) and out.device.type == "meta"
    out.sum().backward()
    try:
        fast(inputs[0])
    except Exception as ours:
        try:
            plain.to("meta")(inputs[0])
        except Exception as theirs:
            assert type(ours) is type(theirs), (ours, theirs)
    else:
        plain.to("meta")(inputs[0])  # whatever the plain model does with tensors of two devices
""",
    "a meta model that is filled": """
for plain, fast in pairs:
    fast.to("meta").to_empty(device="cpu").load_state_dict(plain.state_dict())
    near(gradients(fast, inputs[0]), gradients(plain, inputs[0]))
""",
    "wrong dtypes of inputs": """
for plain, fast in pairs:
    for x in (inputs[0].double(), inputs[0].half(), inputs[0].bfloat16(), inputs[0].long(), inputs[0].bool()):
        said = []
        for model in (plain, fast):
            try:
                model(x)
                said.append(None)
            except Exception as error:
                said.append((type(error), str(error)))
        assert said[0] == said[1], said
""",
    "one parameter of another dtype": """
for plain, fast in pairs:
    for name in ("0.weight", "2.bias", "2.weight", "a.weight", "b.bias"):
        for dtype in (torch.float64, torch.bfloat16):
            said = []
            for model in (copy.deepcopy(plain), copy.deepcopy(fast)):
                if name not in dict(model.named_parameters()):
                    continue
                layer, _, attribute = name.rpartition(".")
                layer = model.get_submodule(layer)
                setattr(layer, attribute, nn.Parameter(getattr(layer, attribute).detach().to(dtype)))
                try:
                    said.append((None, str(model(inputs[0]).dtype)))
                except Exception as error:
                    said.append((type(error), str(error)))
            assert len(said) == 0 or said[0] == said[1], said
""",
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_defaults_and_foreign_tensors(case):
    done = subprocess.run(
        [sys.executable, *(["-S"] if sys.flags.no_site else []), "-c", PRELUDE + case],
        env={**os.environ, "HUSH_CROSSOVER": "always", "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"
