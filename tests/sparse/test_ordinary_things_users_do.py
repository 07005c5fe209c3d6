"""What works on any torch model works on an accelerated one: optimizers, pruning, norms of weights, files, threads."""

import gc
import importlib.util
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, parametrizations, prune, vector_to_parameters
from torch.utils.checkpoint import checkpoint

import hush.nn as hn
from hush.sparse import accelerate

from .alike import assert_alike, assert_same_parameters, engine_runs, mlp, twins
from .conftest import assert_near


def test_lbfgs():
    models, x = twins(mlp()), torch.randn(16, 12)
    for model in models:
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

        def closure():
            optimizer.zero_grad()  # noqa: B023
            loss = model(x).square().mean()  # noqa: B023
            loss.backward()
            return loss

        with engine_runs() if model is models[1] else torch.enable_grad():
            optimizer.step(closure)
    assert_same_parameters(*models)


def test_parameters_as_one_vector_and_back():
    models, x = twins(mlp()), torch.randn(9, 12)
    vectors = [parameters_to_vector(m.parameters()) for m in models]
    assert torch.equal(*vectors)
    fresh = torch.randn_like(vectors[0].detach()) / 4
    for model in models:
        vector_to_parameters(fresh, model.parameters())
    with engine_runs():
        assert_alike(*models, x)


def test_weights_keep_torchs_layout():
    model = mlp()
    before = [(p.stride(), p.data_ptr()) for p in model.parameters()]
    accelerate(model)
    assert [(p.stride(), p.data_ptr()) for p in model.parameters()] == before
    model(torch.randn(9, 12)).sum().backward()
    for p in model.parameters():
        assert p.is_contiguous()
        assert p.grad.is_contiguous()
        p.view(-1), p.grad.view(-1)


@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("how", ["l1", "global", "custom"])
def test_pruning(how, early):
    plain, x = mlp(), torch.randn(9, 12)

    def cut(model):
        if how == "l1":
            prune.l1_unstructured(model[2], "weight", amount=0.5)
        elif how == "global":
            prune.global_unstructured([(model[2], "weight"), (model[4], "weight")], prune.L1Unstructured, amount=0.3)
        else:
            prune.custom_from_mask(model[2], "weight", torch.eye(24))

    if early:
        cut(plain)
    models = twins(plain) if not early else (plain, accelerate(_rebuilt(plain, cut)))
    if not early:
        assert_alike(*models, x)
        for model in models:
            cut(model)
    assert_alike(*models, x)
    for model in models:
        prune.remove(model[2], "weight")
    with engine_runs():
        assert_alike(*models, x)


def _rebuilt(model, edit):
    """A copy of a model that cannot be deep-copied once it has been edited."""
    twin = mlp()
    edit(twin)
    twin.load_state_dict(model.state_dict())
    return twin


WEIGHT_FORMS = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight_norm": lambda m: nn.utils.weight_norm(m),
    "old spectral_norm": lambda m: nn.utils.spectral_norm(m),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("form", WEIGHT_FORMS.values(), ids=WEIGHT_FORMS.keys())
@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
def test_weights_computed_from_something_else(form, early):
    def build():
        torch.manual_seed(0)
        return mlp()

    plain, fast, x = build(), build(), torch.randn(9, 12)
    if not early:
        accelerate(fast)
        assert_alike(plain, fast, x)
    for model in (plain, fast):
        torch.manual_seed(1)
        form(model[2])
    if early:
        accelerate(fast)
    for _ in range(2):  # spectral_norm's power iteration counts the forwards
        assert_alike(plain, fast, x)
    with torch.no_grad():
        for p, q in zip(plain.parameters(), fast.parameters(), strict=True):
            p.add_(0.1), q.add_(0.1)
    assert_alike(plain, fast, x)
    plain.eval(), fast.eval()
    assert_alike(plain, fast, x)


@pytest.mark.skipif(importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed")
def test_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    models, x = twins(mlp()), torch.randn(9, 12)
    save_file(models[1].state_dict(), tmp_path / "model.safetensors")
    fresh = mlp()
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert_alike(fresh, models[1], x)
    models[1].load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert_alike(*models, x)


@pytest.mark.parametrize("draw", ["reset", "kaiming", "orthogonal", "uniform", "normal"])
def test_the_same_seed_draws_the_same_numbers(draw):
    models = twins(mlp())
    models[1](torch.randn(9, 12)).sum().backward()
    draws = {
        "reset": lambda m: m.reset_parameters(),
        "kaiming": lambda m: nn.init.kaiming_normal_(m.weight),
        "orthogonal": lambda m: nn.init.orthogonal_(m.weight),
        "uniform": lambda m: m.weight.data.uniform_(),
        "normal": lambda m: m.weight.data.normal_(),
    }
    for model in models:
        torch.manual_seed(11)
        for module in model:
            if isinstance(module, nn.Linear):
                draws[draw](module)
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True))
    with engine_runs():
        assert_alike(*models, torch.randn(9, 12))


def test_accelerate_draws_no_numbers():
    torch.manual_seed(0)
    model = mlp()
    state = torch.random.get_rng_state()
    accelerate(model)
    model(torch.randn(0, 12))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_shared_modules_in_functional_call():
    """torch leaves the wrapper of a finished transform in the place of a shared module's parameter; models go on."""

    def build():
        torch.manual_seed(0)
        layer = nn.Linear(12, 12)
        return nn.Sequential(nn.ReLU(), layer, nn.ReLU(), layer)

    x, results = torch.randn(9, 12), []
    for model in (build(), accelerate(build())):
        given = {k: p.detach() for k, p in model.named_parameters()}
        torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).square().sum())(given)  # noqa: B023
        results.append(model(x).detach())
    assert_near(results[1], results[0])


def test_a_bias_changed_before_the_backward():
    """autograd keeps no bias, so it may change; a weight may not (see test_step)."""
    models, x = twins(mlp()), torch.randn(9, 12)

    def run(model, x):
        out = model(x)
        with torch.no_grad():
            model[2].bias.mul_(2.0)
        return out

    assert_alike(*models, x, run)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_block(reentrant):
    models, x = twins(mlp()), torch.randn(9, 12)
    with engine_runs():
        assert_alike(*models, x, lambda m, x: checkpoint(m, x, use_reentrant=reentrant))


def test_saved_tensors_go_elsewhere_and_come_back():
    models, x, packed = twins(mlp()), torch.randn(9, 12), []

    def run(model, x):
        # What comes back is other memory than what was packed: a kernel that kept an address would read nonsense.
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t.clone(), lambda t: t.clone()):
            return model(x)

    with engine_runs():
        assert_alike(*models, x, run)
    assert packed


def test_no_graph_is_kept_alive_by_a_forward():
    model = accelerate(mlp())
    x = torch.randn(9, 12, requires_grad=True)
    out = model(x * 1.0)
    gone = weakref.ref(out)
    out.sum().backward()
    del out
    gc.collect()
    assert gone() is None


def test_threads_share_a_model():
    plain, fast = twins(mlp(5, 60))
    xs = [torch.randn(7 + k, 12) for k in range(4)]
    expected = [plain(x).detach() for x in xs]
    wrong = []

    def work(k):
        for turn in range(30):
            if turn % 2:
                with torch.no_grad():
                    out = fast(xs[k])
            else:
                out = fast(xs[k])
                torch.autograd.grad(out.sum(), list(fast.parameters()))
            if not torch.allclose(out, expected[k], atol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    with engine_runs():
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_threads_that_look_inside_do_not_disturb_those_that_do_not():
    """One thread keeps a hook coming and going while the other trains."""
    plain, fast = twins(mlp(4, 40))
    x = torch.randn(9, 12)
    expected = plain(x).detach()
    wrong, stop = [], threading.Event()

    def disturb():
        while not stop.is_set():
            handle = fast[3].register_forward_hook(lambda m, i, o: None)
            handle.remove()

    other = threading.Thread(target=disturb)
    other.start()
    try:
        for _ in range(200):
            out = fast(x)
            out.sum().backward()
            if not torch.allclose(out, expected, atol=1e-5):
                wrong.append(out)
    finally:
        stop.set()
        other.join()
    assert not wrong


class Net(nn.Module):
    """Not a Sequential: the same through data flow."""

    def __init__(self):
        super().__init__()
        self.a, self.act, self.b, self.c = nn.Linear(12, 24), hn.CReLU(0.1, 0.9), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        return self.c(self.act(self.b(self.act(self.a(x)))))


@pytest.mark.parametrize("make", [mlp, Net])
def test_training_ends_at_the_same_weights(make):
    models, x = twins(make()), torch.randn(64, 12)
    y = torch.randint(0, 5, (64,))
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with engine_runs() if model is models[1] else torch.enable_grad():
            for _ in range(30):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    for e, a in zip(*(m.parameters() for m in models), strict=True):
        assert_near(a.detach(), e.detach(), 1e-3)
