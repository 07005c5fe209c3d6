"""Starting the page: Streamlit, bound to this machine, without its chrome and its statistics."""

import socket
from importlib.util import find_spec
from pathlib import Path
from threading import Thread, Timer

from hush._extras import how_to_install

__all__ = ["check_port", "explore"]

_PAGE = Path(__file__).with_name("page.py")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def explore(host: str = "127.0.0.1", port: int = 8501, *, browser: bool = True) -> None:
    """Serve the explorer until it is stopped; opens a browser unless told not to.

    Raises:
        ValueError: if the extra is not installed, or if nothing can listen there.
    """
    missing = [name for name in ("streamlit", "threadpoolctl") if find_spec(name) is None]
    if missing:
        raise ValueError(f"the explorer needs {' and '.join(missing)}: {how_to_install('app')}.")
    check_port(host, port)
    options = {
        "logger.hideWelcomeMessage": True,
        "logger.level": "warning",
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        # The verdict is green or red; the controls are neither.
        "theme.light.primaryColor": "#0072b2",
        "theme.dark.primaryColor": "#56b4e9",
    }
    from streamlit.web import bootstrap
    from threadpoolctl import threadpool_limits

    # The page's arrays are small: threads that wait for each other take more time than they save.
    threadpool_limits(1)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"hush: the explorer is at {address} (stop it with Ctrl-C)", flush=True)
    if host not in _LOOPBACK:
        print("hush: it is open to everybody who can reach this machine.", flush=True)
    Thread(target=_look_ahead, daemon=True).start()
    if browser:
        _open_soon(address)
    bootstrap.load_config_options(options)
    bootstrap.run(str(_PAGE), False, [], options)


def check_port(host: str, port: int) -> None:
    """Raise a ValueError unless a server can listen at host and port."""
    if not 1 <= port <= 65535:
        raise ValueError(f"a port lies between 1 and 65535, got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"there is no host {host!r} to listen at; 127.0.0.1 is this machine only.") from error
    with socket.socket(family, kind, protocol) as probe:
        # As the server itself does: an address that was left a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise ValueError(
                f"nothing can listen at port {port} of {host} ({(error.strerror or str(error)).lower()}); "
                f"choose another with --port."
            ) from error


def _look_ahead() -> None:
    """Compute what the page opens with and the figures of the paper, while the server and the browser start."""
    from hush.app.presets import PRESETS
    from hush.app.settings import Settings
    from hush.app.view_of import view_of

    for settings in (Settings(), *(preset.settings for preset in PRESETS)):
        view_of(settings)


def _open_soon(address: str) -> None:
    """Open a browser once the server has had a moment to start."""
    import webbrowser

    timer = Timer(1.5, webbrowser.open, [address])
    timer.daemon = True
    timer.start()
