"""Whatever goes wrong inside a command is one sentence, with an exit code that tells whose fault it is."""

import pytest
import typer

from hush.cli._output import run
from hush.train.errors import Interrupted, MissingExtraError


def outcome(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr("sys.argv", ["hush", "--"])
    with pytest.raises(SystemExit) as end:
        run(app)
    return int(end.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("a bad\n  value."), 2, "hush: a bad value.\n"),
        (MissingExtraError("something is missing."), 2, "hush: something is missing.\n"),
        (Interrupted("stopped there."), 130, "hush: stopped there.\n"),
        (KeyboardInterrupt(), 130, "hush: stopped.\n"),
        (MemoryError("60 GiB"), 1, "hush: there is not enough memory for this (60 GiB).\n"),
        (PermissionError(13, "Permission denied", "there"), 1, "hush: there: Permission denied.\n"),
        (ZeroDivisionError("by zero"), 1, "hush: something went wrong that should not (ZeroDivisionError: by zero); "),
    ],
)
def test_errors(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HUSH_TRACEBACK", raising=False)
    found, said = outcome(error, monkeypatch, capsys)
    assert found == code
    assert said.startswith(sentence)
    assert said.count("\n") == 1


def test_an_error_that_is_not_ours_can_be_seen_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUSH_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        outcome(ZeroDivisionError(), monkeypatch, capsys)
