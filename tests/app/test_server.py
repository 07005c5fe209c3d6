"""`hush explore` as far as it goes without a browser."""

import socket
import subprocess
import sys

import pytest

from hush.app.server import check_port


def test_a_port_in_use_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1 .* choose another with --port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_bad_places_are_sentences() -> None:
    with pytest.raises(ValueError, match="between 1 and 65535, got 70000"):
        check_port("127.0.0.1", 70000)
    with pytest.raises(ValueError, match="no host 'nowhere.invalid'"):
        check_port("nowhere.invalid", 8501)


def test_a_missing_extra_is_one_sentence() -> None:
    # As it is where the extra is not installed: the module cannot be found.
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'streamlit' else find(name, *a)\n"
        "sys.argv = ['hush', 'explore', '--no-browser']\n"
        "from hush.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install -e '.[app]'" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_command_line_loads_no_page() -> None:
    code = "import sys, hush.cli, hush.app; assert not {'streamlit', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
