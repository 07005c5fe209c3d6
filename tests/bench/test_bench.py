"""Benchmarks run, and their rows are what is promised; no figure is tested here."""

import functools
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import hush
from hush import bench
from hush.bench.block_networks import random_bytes, random_feedforward, random_gpt
from hush.bench.image_networks import random_convolutions, random_images, random_resnet
from hush.bench.plain_torch import in_plain_torch
from hush.bench.readable import header_lines, line_of
from hush.bench.timing import Timed, compare
from hush.cli import main
from tests.helpers import digits

KEYS = [
    "work",
    "peer",
    "width",
    "depth",
    "batch",
    "sparsity",
    "threads",
    "median_ms",
    "spread_ms",
    "ratio_to_best_peer",
    "precision",
    "error",
]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("HUSH_CROSSOVER", "always")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_rows_have_exactly_the_promised_keys():
    rows, absent = bench.inference(width=20, depth=3, batch=1, threads=1, repeats=2, peers=["torch_eager", "torch_csr"])
    assert absent == []
    assert [list(row.to_dict()) for row in rows] == [KEYS] * 5
    ours = ["hush", "hush_input_major", "hush_frozen"]
    assert [row.peer for row in rows] == [*ours, "torch_eager", "torch_csr"]
    best = min(row.median_ms for row in rows[3:])
    assert rows[0].ratio_to_best_peer == pytest.approx(best / rows[0].median_ms)
    assert rows[0].ratio_to_bound == pytest.approx(rows[0].ratio_to_best_peer * 0.15)


@pytest.mark.parametrize("work", [bench.training, bench.layer])
def test_training_and_layer(work):
    rows, _ = work(width=20, batch=4, threads=1, repeats=2, peers=["torch_eager"])
    assert {row.setting.work for row in rows} == {work.__name__}
    assert [row.peer for row in rows] == ["hush", "hush_input_major", "hush_fused", "torch_eager"]


@pytest.mark.parametrize("work", [bench.inference, bench.training])
@pytest.mark.parametrize("arch", ["residual", "residual_two"])
def test_residual_networks(work, arch):
    rows, _ = work(width=20, depth=3, batch=4, threads=1, repeats=1, peers=["torch_eager"], arch=arch)
    assert all(row.error < 1e-5 for row in rows)
    assert rows[0].setting.depth == 3


@pytest.mark.parametrize("arch", ["feedforward", "gated", "gpt"])
def test_feed_forward_networks(arch):
    sizes = {"width": 16, "depth": 2, "batch": 3, "threads": 1, "repeats": 1, "peers": ["torch_eager"], "arch": arch}
    rows, _ = bench.training(sparsity=0.95, **sizes)
    assert all(row.error < 1e-4 for row in rows)
    assert rows[0].setting.depth == 2
    # The forward of the first Linear is dense; of a transformer much more is.
    whole = {"feedforward": 6 / (1 + 5 * 0.05), "gated": 9 / (1 + 8 * 0.05), "gpt": 2.0}[arch]
    assert rows[0].bound == pytest.approx(whole, rel=0.35)
    assert all(row.error < 1e-4 for row in bench.inference(**sizes)[0])


def test_the_blocks_have_their_sparsity():
    for model in (random_feedforward(64, 3, 0.9), random_feedforward(64, 3, 0.9, gated=True), random_gpt(64, 2, 0.9)):
        seen = []
        for module in model.modules():
            if isinstance(module, hush.nn.CReLU):
                module.register_forward_hook(lambda m, i, out, seen=seen: seen.append((out == 0).float().mean().item()))
        reads_bytes = hasattr(model[0], "token")
        model(random_bytes(2, torch.Generator().manual_seed(0)) if reads_bytes else torch.randn(64, 64))
        assert len(seen) >= 2
        assert seen == pytest.approx([0.9] * len(seen), abs=0.03)


def test_the_random_network_has_its_sparsity():
    for s in (0.5, 0.85, 0.95):
        assert bench.sparsity_of(bench.random_network(300, 10, s), torch.randn(64, 300)) == pytest.approx(s, abs=0.04)


def test_every_peer_is_compared_before_it_is_timed():
    for work in (bench.inference, bench.training):
        found, _ = work(width=20, depth=3, batch=4, threads=1, repeats=1, peers=["torch_eager", "hush_nn_dense"])
        for row in found:
            assert row.error is not None
            assert 0.0 < row.error < 1e-5


def test_a_peer_that_computes_something_else_is_not_timed(monkeypatch):
    def wrong(model):
        return lambda x: model(x) * 1.01

    def never(*_):
        pytest.fail("it was timed")

    monkeypatch.setattr("hush.bench.peers.with_csr_activations", wrong)
    monkeypatch.setattr("hush.bench.timing.interleaved", never)
    with pytest.raises(ValueError, match="torch_csr does not compute what plain torch does: .* error is 0.01"):
        bench.inference(width=20, depth=3, threads=1, repeats=1, peers=["torch_csr"])


def test_a_step_that_does_not_go_down_the_gradient_is_not_timed(monkeypatch):
    real = torch.optim.SGD.step

    def twice(self, closure=None):
        real(self)
        return real(self)

    monkeypatch.setattr(torch.optim.SGD, "step", twice)
    with pytest.raises(ValueError, match="does not compute what plain torch does"):
        bench.training(width=20, depth=2, batch=4, threads=1, repeats=1, peers=["torch_eager"])


def test_what_the_peers_run_is_the_clamp_that_the_modules_are():
    model = bench.random_network(20, 3, 0.85)
    plain, x = in_plain_torch(model), torch.randn(16, 20)
    assert not any("hush.nn" in type(m).__module__ for m in plain)
    torch.testing.assert_close(plain(x), model(x), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="SoftThreshold.* is not clamp"):
        in_plain_torch(nn.Sequential(hush.nn.SoftThreshold(1.0)))
    with pytest.raises(ValueError, match="GELU.* has no threshold"):
        in_plain_torch(nn.Sequential(nn.GELU()))


def test_the_header_says_what_is_timed_and_what_a_ratio_is():
    machine = bench.Machine("avx2", 100.0, 10.0, "Some EPYC, 2 cores")
    text = "\n".join(header_lines("inference", machine, 2, 15, [0.85]))
    for words in ("a forward pass without gradients", "Some EPYC, 2 cores, avx2", "2 threads", "ms ", "×best", "bf16"):
        assert words in text


def test_bf16_is_marked_and_has_no_f32_baseline():
    setting = bench.Setting("inference", 8, 2, 1, 0.85, 1)
    works = {"hush_bf16_weights": Timed("bf16", lambda turn: None), "torch_eager": Timed("f32", lambda turn: None)}
    half, full = compare(setting, works, 1, 1.0)
    assert half.ratio_to_best_peer is None
    assert half.to_dict()["precision"] == "bf16"
    assert line_of(half).split()[:2] == ["hush_bf16_weights*", "bf16"]
    assert line_of(full).split()[:2] == ["torch_eager", "f32"]


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("hush.bench.peers.importlib.util.find_spec", lambda name: None)
    _, absent = bench.inference(width=8, depth=2, threads=1, repeats=1, peers=["onnxruntime", "openvino_f32"])
    assert absent == ["onnxruntime", "openvino_f32"]


def test_masks_of_a_trained_network():
    images, labels = digits(256)
    model, accuracy = bench.train_network(images, labels, sparsity=0.6, width=24, depth=2, epochs=40)
    assert accuracy > 0.3  # ten classes: it has learnt
    rows, _ = bench.inference(threads=1, repeats=1, peers=["torch_eager"], model=model, samples=images)
    assert rows[0].setting.work == "inference-trained"
    assert rows[0].setting.width == 24
    assert rows[0].setting.sparsity == round(bench.sparsity_of(model, images), 3)


def test_wrong_values_are_sentences():
    with pytest.raises(ValueError, match="batch must be at least 1"):
        bench.inference(batch=0)
    with pytest.raises(ValueError, match="no peer here"):
        bench.training(width=8, depth=1, peers=["onnxruntime"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        bench.layer(sparsity=1.0)


def test_the_command_prints_json_and_draws(tmp_path):
    figure = tmp_path / "speed.png"
    command = [sys.executable, "-m", "hush", "bench", "layer", "--width", "16", "--batch", "2", "--repeats", "1"]
    command += ["--sparsity", "0.5", "--peer", "torch_eager", "--json", "--plot", str(figure)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [list(row) for row in json.loads(done.stdout)] == [KEYS] * 4
    assert "sgemm peak" in done.stderr
    assert "×best" in done.stderr
    assert figure.stat().st_size > 1000


@pytest.mark.parametrize("arch", ["conv", "resnet"])
def test_networks_of_images(arch):
    given = {"width": 8, "depth": 3, "batch": 2, "sparsity": 0.8, "threads": 1, "repeats": 1, "arch": arch}
    rows, _ = bench.training(**given, peers=["torch_eager", "torch_nchw"], adaptive=False)
    assert [row.peer for row in rows] == ["hush", "torch_eager", "torch_nchw"]
    assert all(row.error < 1e-2 for row in rows)
    rows, _ = bench.inference(**given, peers=["torch_eager", "torch_nchw", "hush_nn_dense"], adaptive=False)
    assert [row.peer for row in rows] == ["hush", "torch_eager", "hush_nn_dense", "torch_nchw"]
    assert all(row.error < 1e-4 for row in rows)


@torch.no_grad()
@pytest.mark.parametrize("training", [True, False])
def test_a_resnet_has_the_sparsity_asked_for(training):
    model = random_resnet(16, 3, 0.9).train(training)
    seen = []
    for module in model.modules():
        if isinstance(module, hush.nn.CReLU):
            module.register_forward_hook(lambda m, i, out: seen.append(float((out == 0).float().mean())))
    model(random_images("resnet", 32, 16, torch.Generator().manual_seed(5)))
    assert seen == pytest.approx([0.9] * len(seen), abs=0.04)


@torch.no_grad()
def test_a_stack_of_convolutions_has_the_sparsity_asked_for():
    x = random_images("conv", 8, 32, torch.Generator().manual_seed(5))
    for module in random_convolutions(32, 4, 0.9):
        x = module(x)
        if not isinstance(module, nn.Conv2d):
            assert float((x == 0).float().mean()) == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--masks", "pretty"], "--masks is random or trained, got 'pretty'."),
        (["--width", "0"], "width must be at least 1, got 0."),
        (["--batch", "-1"], "batch must be at least 1, got -1."),
        (["--depth", "0"], "depth must be at least 1, got 0."),
        (["--width", "1000000"], "2 layers × 1000000 have more than 1073741824 weights; take fewer of them."),
        (["--batch", "99999999999"], "a batch of 99999999999 × 300 has more than 1073741824 numbers; take fewer."),
        (["--threads", "100000"], "threads must be at most 1024, got 100000."),
        (["--threads", "0"], "threads must be at least 1, got 0."),
        (["--repeats", "0"], "repeats must be at least 1, got 0."),
        (["--sparsity", "0.9", "--sparsity", "1"], "The sparsity is 1.0; it must lie between 0 and 1."),
        (["--plot", "nowhere/speed.png"], "--plot is 'nowhere/speed.png', whose folder does not exist."),
        (["--masks", "trained", "--data", "nowhere"], "--data is 'nowhere', which is no folder; give the one with the"),
        (["--peer", "tensorrt"], "'tensorrt' is no peer here; the peers are torch_eager, torch_nchw, hush_"),
    ],
)
def test_the_command_refuses_in_a_sentence_before_it_measures(options, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hush", "bench", "inference", *options])
    monkeypatch.setattr(bench, "machine", lambda threads: pytest.fail("the machine was measured first"))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"hush: {sentence}")


def test_dense_hush_modules_count_as_a_peer():
    names = ["torch_eager", "hush_nn_dense"]
    for work in (bench.inference, bench.training):
        rows, _ = work(width=20, depth=2, batch=4, threads=1, repeats=3, peers=names)
        median = {row.peer: row.median_ms for row in rows}
        best = min(median[name] for name in names)
        for row in rows:
            assert row.ratio_to_best_peer == pytest.approx(best / row.median_ms)
            assert row.ratio_to_eager == pytest.approx(median["torch_eager"] / row.median_ms)


@pytest.fixture
def no_inductor(monkeypatch):
    """Graphs are captured and differentiated as ever, but not turned into C++, which takes many seconds."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))


@pytest.mark.usefixtures("no_inductor")
def test_torch_compile_is_a_peer_in_training():
    rows, _ = bench.training(width=8, depth=1, batch=2, threads=1, repeats=1, peers=["torch_compile"])
    assert [row.peer for row in rows] == ["hush", "hush_input_major", "hush_fused", "torch_compile"]


@pytest.mark.usefixtures("no_inductor")
def test_torch_compile_compiles_at_each_setting():
    from torch._dynamo.utils import counters

    with torch._dynamo.config.patch(recompile_limit=1):
        for width in (8, 12, 16):
            counters.clear()
            bench.inference(width=width, depth=2, batch=4, threads=1, repeats=1, peers=["torch_compile"])
            assert counters["stats"]["unique_graphs"] >= 1
