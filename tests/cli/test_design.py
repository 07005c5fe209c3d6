"""`hush design` as a user types it."""

import json
import subprocess
import sys

import pytest

import hush


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hush", *arguments], capture_output=True, text=True, check=False)


def test_the_table_is_plain_when_piped() -> None:
    result = run("design", "crelu", "--sparsity", "0.85", "--width", "300", "--depth", "30")
    assert result.returncode == 0
    assert result.stdout.startswith("activation ")
    assert "\x1b" not in result.stdout
    assert result.stdout.rstrip().endswith("it should train.")


def test_json_is_the_design() -> None:
    result = run("design", "cst", "--sparsity", "0.85", "--v-prime", "0.9", "--width", "300", "--depth", "30", "--json")
    expected = hush.design("cst", 0.85, v_prime=0.9, width=300, depth=30)
    assert hush.Design.from_json(result.stdout) == expected
    assert json.loads(result.stdout)["clip"] == expected.clip


def test_unclipped_json_has_null_for_what_does_not_apply() -> None:
    plain = json.loads(run("design", "soft_threshold", "--sparsity", "0.5", "--json").stdout)
    assert plain["clip"] is plain["width"] is plain["odds"] is plain["gain_log10"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["design", "gelu", "--sparsity", "0.85"],
        ["design", "crelu", "--sparsity", "1.5", "--clip", "1"],
        ["design", "crelu", "--sparsity", "0.85", "--clip", "-1"],
        ["design", "crelu", "--sparsity", "nan", "--clip", "1"],
        ["design", "crelu", "--sparsity", "0.85", "--clip", "1", "--v-prime", "0.5"],
        ["design", "crelu", "--sparsity", "0.85", "--width", "300"],
        ["design", "crelu", "--sparsity", "many", "--clip", "1"],
        ["design", "crelu"],
        ["design", "crelu", "--sparsity", "0.85", "--colour", "red"],
        ["desing"],
    ],
)
def test_bad_values_are_one_sentence_and_exit_code_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("hush: ")
    assert len(result.stderr.strip().splitlines()) == 1


def test_version_and_help() -> None:
    assert run("--version").stdout == f"hush {hush.__version__}\n"
    for arguments in (["--help"], ["design", "--help"]):
        result = run(*arguments)
        assert result.returncode == 0
        assert "hush design crelu --sparsity 0.85 --width 300 --depth 100" in result.stdout


def test_a_feedforward_block() -> None:
    arguments = ["--sparsity", "0.95", "--width", "64", "--depth", "10", "--block", "feedforward", "--norm", "rms"]
    result = run("design", "crelu", *arguments, "--branch-scale", "1/depth", "--hidden", "96", "--json")
    expected = hush.design(
        "crelu", 0.95, width=64, depth=10, block="feedforward", norm="rms", branch_scale="1/depth", hidden=96
    )
    assert hush.Design.from_json(result.stdout) == expected
    assert expected.branch_scale == 0.1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["crelu", "--block", "blob"], "block must be one of chain, residual, feedforward, gated, got 'blob'"),
        (
            ["crelu", "--block", "gated", "--sparsity", "0.9", "--branch-scale", "x"],
            "branch_scale must be a number or one",
        ),
        (
            ["crelu", "--sparsity", "0.9", "--clip", "1", "--norm", "rms"],
            "norm = 'rms' is for blocks on a residual stream",
        ),
    ],
)
def test_refused_blocks_are_sentences(arguments: list[str], said: str) -> None:
    result = run("design", *arguments)
    assert result.returncode != 0
    assert said in " ".join(result.stderr.split())


def test_relative_thresholds() -> None:
    shown = run("design", "relative_crelu", "--sparsity", "0.95", "--constant-scale")
    assert shown.returncode == 0, shown.stderr
    assert "2 rms(h)" in shown.stdout
    assert "gradient through rms(h)  no" in shown.stdout
