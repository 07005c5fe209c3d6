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
        ([*SMALL[1:], "--network", "rnn"], "network must be mlp or cnn, got 'rnn'"),
        ([*SMALL[1:], "--inputs", "9999"], "there are 1293 digits to learn from, got a count of 9999"),
    ],
)
def test_bad_values(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run("diagnose", *arguments)


def test_help_and_theory_do_not_load_torch() -> None:
    check = "import sys, hush, hush.theory, hush.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
