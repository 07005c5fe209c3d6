"""`hush explore`."""

from typing import Annotated

import typer


def explore_command(
    host: Annotated[str, typer.Option(help="Where to listen; 127.0.0.1 is this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.")] = 8501,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Move the theory by sliders in the browser: V(q), R(ρ), the bands, the odds and the verdict.

    Example:

    hush explore --port 8600 --no-browser
    """
    from hush.app.server import explore

    explore(host, port, browser=browser)
