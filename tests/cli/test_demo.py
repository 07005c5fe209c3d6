import json
import sys
from pathlib import Path

import pytest

from hush.cli.demo import print_demo
from hush.reproduce.demo import Demo, claims_of
from tests.reproduce.demo.rows import good_rows, good_steps


def demo(accelerated_ms: float = 10.0) -> Demo:
    rows, steps = tuple(good_rows().values()), good_steps(accelerated_ms)
    return Demo(0.95, 2, rows, steps, claims_of(rows, steps, 0.95, 360), Path("demo.png"), Path("report.html"))


def test_plain_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    print_demo(demo())
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert lines[1:6] == [
        "network              before training  test accuracy  zeros  lowest layer",
        "ReLU                 should train     0.980 0.990    0.550  0.400",
        "CReLU, held          should train     0.990 0.980    0.950  0.948",
        "CReLU, fixed         should train     0.980 0.980    0.925  0.900",
        "shifted ReLU, chain  will not train   0.100 0.100    0.150  0.000",
    ]
    assert lines[7:11] == [
        "step of       on torch  accelerated",
        "ReLU          20.0 ms   –",
        "CReLU, held   22.0 ms   10.0 ms (×2.20)  60 of 62 Linears fused",
        "CReLU, chain  16.0 ms   4.0 ms (×4.00)   30 of 31 Linears fused",
    ]
    assert sum(line.startswith("Holds: ") for line in lines) == 6
    assert lines[-2:] == ["The figure: demo.png", "Every run with its plots: report.html"]


def test_a_claim_that_fails_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_demo(demo(accelerated_ms=25.0))
    out = capsys.readouterr().out
    assert "Does not hold here: The zeros become speed" in out
    assert "  0.80 times: 25.0 ms accelerated" in out


def test_tables_in_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    print_demo(demo())
    out = capsys.readouterr().out
    assert "│ CReLU, held" in out
    assert "10.0 ms (×2.20)" in out


def test_json_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning")
    import hush.reproduce.demo
    from hush.cli import main

    def pretend(root: Path, *, seeds: int, say: object, progress: bool) -> Demo:
        say("a line of the story")  # type: ignore[operator]
        assert (root, seeds, progress) == (tmp_path, 1, False)
        return demo()

    monkeypatch.setattr(hush.reproduce.demo, "run_demo", pretend)
    monkeypatch.setattr(sys, "argv", ["hush", "demo", "--json", "--seeds", "1", "--root", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    values = json.loads(capsys.readouterr().out)
    assert values["sparsity"] == 0.95
    assert values["networks"][3]["gradient_growth"] == [10.1, None]


def test_no_seed_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from hush.cli import main

    monkeypatch.setattr(sys, "argv", ["hush", "demo", "--seeds", "0"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "Invalid value for '--seeds'" in capsys.readouterr().err
