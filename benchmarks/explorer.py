"""How long the explorer takes to redraw, in server time.

    python benchmarks/explorer.py

Each control is moved to values it has not had before, so nothing comes from a cache but what belongs to the other
controls; the time is that of one run of the page's script, pictures included. `look` alone is printed beside it.
"""

import logging
import statistics
import time

from streamlit.testing.v1 import AppTest
from threadpoolctl import threadpool_limits

from hush.app import outlook
from hush.app.settings import Clip, Settings, Sigmas
from hush.theory.finite_width import run_chains

MOVES = {
    "clip": [round(0.7 + 0.07 * i, 2) for i in range(15)],
    "sparsity": [round(0.7 + 0.01 * i, 2) for i in range(15)],
    "width": list(range(150, 450, 20)),
    "depth": list(range(40, 115, 5)),
    "deepest": list(range(106, 121)),
    "q_star": [round(0.5 + 0.1 * i, 1) for i in range(15) if i != 5],
    "sigma_w_factor": [round(0.86 + 0.02 * i, 2) for i in range(15) if i != 7],
}


def script() -> None:
    """One run of the page, timed."""
    import time

    import streamlit as st

    from hush.app.page import main

    start = time.perf_counter()
    main()
    st.session_state["seconds"] = time.perf_counter() - start


def redraws(control: str, values: list[float], safe: bool) -> list[float]:
    """Seconds of the page for each value of a control."""
    name = "depth" if control == "deepest" else control
    page = AppTest.from_function(script, default_timeout=60).run()
    if not safe:
        page.radio(key="clip_by").set_value(Clip.HEIGHT).run()
    if name == "sigma_w_factor":
        page.radio(key="sigmas").set_value(Sigmas.FACTOR).run()
    seconds = []
    for value in values:
        page.slider(key=name).set_value(value).run()
        assert not page.exception
        seconds.append(page.session_state["seconds"])
    return seconds


def computations(control: str, values: list[float], safe: bool) -> list[float]:
    """Seconds of `look` alone."""
    choice = {"clip_by": Clip.SAFE if safe else Clip.HEIGHT}
    if control == "sigma_w_factor":
        choice["sigmas"] = Sigmas.FACTOR
    outlook.look(Settings(**choice))
    name = "depth" if control == "deepest" else control
    seconds = []
    for value in values:
        run_chains.cache_clear()
        start = time.perf_counter()
        outlook.look(Settings(**choice, **{name: value}))
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    threadpool_limits(1)  # as hush explore does
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    print(f"{'control':15} {'clip':5} {'page, median':>13} {'longest':>9} {'look, median':>13}")
    for control, values in MOVES.items():
        for safe in (False,) if control == "clip" else (True,):
            outlook._unit_safe_clip.cache_clear()
            page = redraws(control, values, safe)
            outlook._unit_safe_clip.cache_clear()
            alone = computations(control, values, safe)
            print(
                f"{control:15} {'safe' if safe else 'm':5} {1e3 * statistics.median(page):10.0f} ms "
                f"{1e3 * max(page):6.0f} ms {1e3 * statistics.median(alone):10.0f} ms"
            )


if __name__ == "__main__":
    main()
