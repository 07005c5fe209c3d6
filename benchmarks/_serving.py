"""The explorer as a user starts it, and the browser to look at it with; the browser tests use both."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

CHROMIUM = os.environ.get("HUSH_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 390, "height": 844}


@contextmanager
def serving() -> Iterator[str]:
    """The address of `hush explore`, on a port that was free; stopped at the end.

    Raises:
        RuntimeError: if it ends or does not answer within a minute; the message is what it printed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "hush", "explore", "--port", str(port), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).close()
                    break
                except OSError:
                    if server.poll() is not None:
                        raise RuntimeError(server.stdout.read() if server.stdout else "") from None
                    time.sleep(0.25)
            else:
                raise RuntimeError("hush explore did not answer within a minute")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(20)
