import subprocess
import sys

import pytest

WITHOUT_LIGHTNING = "import sys; sys.modules['lightning'] = None; from hush.cli import main; main()"


@pytest.mark.parametrize("command", [["train", "--epochs", "1"], ["demo"], ["reproduce", "fig5"]])
def test_a_missing_extra_is_one_sentence(command: list[str], tmp_path) -> None:
    call = [sys.executable, "-c", WITHOUT_LIGHTNING, *command]
    done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == "hush: training needs Lightning: pip install 'hush[train]'."


def test_bad_values_are_one_sentence(tmp_path) -> None:
    call = [sys.executable, "-c", "from hush.cli import main; main()", "train", "--depth", "0"]
    done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (2, "hush: depth must be a whole number of at least 1, got 0.")
