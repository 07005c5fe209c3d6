import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import hush
from hush.cli.app import app

SMALL = ["diagnose", "--activation", "crelu", "--sparsity", "0.85", "--v-prime", "0.6", "--depth", "6", "--width", "50"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_table() -> None:
    text = run(*SMALL)
    assert "phi6" in text
    assert "it should train." in text


def test_json_and_plot(tmp_path) -> None:
    fields = json.loads(run(*SMALL, "--json", "--plot", str(tmp_path / "out.png"), "--inputs", "20"))
    assert fields["inputs"] == 20
    assert len(fields["layers"]) == 6
    assert (tmp_path / "out.png").stat().st_size > 10_000


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_checkpoint(network: str, tmp_path) -> None:
    design = hush.design("cst", 0.7, v_prime=0.6, width=24, depth=4)
    model = hush.nn.mlp(64, 10, design) if network == "mlp" else hush.nn.cnn(1, 10, design)
    hush.init_(model, design)
    hush.nn.checkpoint.save(model, design, tmp_path / "run.pt")
    assert "phi4" in run("diagnose", "--checkpoint", str(tmp_path / "run.pt"), "--every", "1")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give --activation and --sparsity, or --checkpoint"),
        (["--checkpoint", "x.pt", "--activation", "cst"], "brings its own design"),
        (["--checkpoint", "missing.pt"], "there is no checkpoint at missing.pt"),
        (["--checkpoint", "."], "there is no checkpoint at checkpoint"),
        ([*SMALL[1:], "--network", "rnn"], "network must be mlp or cnn, got 'rnn'"),
        ([*SMALL[1:], "--weights", "uniform"], "weights must be one of gaussian, orthogonal, delta_orthogonal"),
        ([*SMALL[1:], "--inputs", "9999"], "there are 1293 digits to learn from, got a count of 9999"),
        ([*SMALL[1:], "--inputs", "0"], "got a count of 0"),
        ([*SMALL[1:], "--seed", "99999999999999999999"], "seed must fit into 64 bits"),
        ([*SMALL[1:], "--every", "-1"], "--every must be 0, which chooses, or more, got -1"),
        ([*SMALL[1:], "--width", "30000", "--depth", "90000"], "90000 layers of width 30000 have .* GB of weights"),
        (["--activation", "cst", "--sparsity", "1.5"], "sparsity of cst lies in"),
    ],
)
def test_bad_values(arguments: list[str], sentence: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        run("diagnose", *arguments)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere/out.png", "there is no folder nowhere to draw out.png into"),
        (".", ". is a folder; give the name of a file"),
        ("out.xyz", r"a picture cannot be written as \.xyz; use one of .*png"),
    ],
)
def test_a_picture_that_could_not_be_written_is_refused_before_the_work(
    path: str, sentence: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hush.diagnose.on_digits.diagnose_new", lambda *_: pytest.fail("the work was done"))
    with pytest.raises(ValueError, match=sentence):
        run(*SMALL, "--plot", path)


def test_no_traceback_at_the_door(tmp_path) -> None:
    call = [sys.executable, "-m", "hush", *SMALL, "--plot", str(tmp_path / "nowhere" / "out.png")]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"hush: there is no folder {tmp_path / 'nowhere'} to draw out.png into.\n"


def test_help_and_theory_do_not_load_torch() -> None:
    check = "import sys, hush, hush.theory, hush.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
