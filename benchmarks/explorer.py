"""How long the explorer takes to redraw.

    python benchmarks/explorer.py              in server time
    python benchmarks/explorer.py --browser    from a key press to the last change on the page, in Chromium

Each control is moved to values it has not had before, so nothing comes from a cache but what belongs to the other
controls. Server time is that of one run of the page's script, pictures included; beside it the
processor's, which a busy machine stretches less, and that of the computation alone. In
the browser every control is moved: sliders and choices by presses of an arrow key, a step each, both lists to each of
their entries. Chromium draws without a GPU, on the same cores as the server (make test-browser installs what it needs).
"""

import argparse
import logging
import re
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from _serving import CHROMIUM, DESKTOP, FLAGS, serving
from streamlit.testing.v1 import AppTest
from threadpoolctl import threadpool_limits

from hush.app import from_address, stream_view, view
from hush.app.presets import PRESETS
from hush.app.settings import Clip, Sigmas
from hush.app.view_of import view_of
from hush.theory import activation_names, entry_of
from hush.theory.chain_run import run_chains

MOVES = {
    "clip": [round(0.7 + 0.07 * i, 2) for i in range(15)],
    "sparsity": [round(0.7 + 0.01 * i, 2) for i in range(15)],
    "width": list(range(150, 450, 20)),
    "depth": list(range(40, 115, 5)),
    "deepest": list(range(106, 121)),
    "q_star": [round(0.5 + 0.1 * i, 1) for i in range(15) if i != 5],
    "sigma_w_factor": [round(0.86 + 0.02 * i, 2) for i in range(15) if i != 7],
}
# Of residual networks: what the page is opened with, and the control that is moved. The last of each block are as large
# as the sliders go.
STREAMS: dict[str, tuple[dict[str, str], list[float]]] = {
    "ff sparsity": ({"block": "feedforward", "depth": "30"}, MOVES["sparsity"]),
    "ff width": ({"block": "feedforward", "depth": "30"}, MOVES["width"]),
    "ff depth": ({"block": "feedforward"}, list(range(86, 101))),
    "ff no norm depth": ({"block": "feedforward", "norm": "none"}, list(range(86, 101))),
    "gated depth": ({"block": "gated"}, list(range(86, 101))),
    "residual sparsity": ({"block": "residual", "depth": "30"}, MOVES["sparsity"]),
    "residual depth": ({"block": "residual"}, list(range(86, 101))),
    "no norm sparsity": ({"block": "residual", "norm": "none", "depth": "30"}, MOVES["sparsity"]),
    "no norm depth": ({"block": "residual", "norm": "none", "width": "400"}, list(range(86, 101))),
}


def script() -> None:
    """One run of the page, timed."""
    import time

    import streamlit as st

    from hush.app.page import main

    start, work = time.perf_counter(), time.thread_time()
    main()
    st.session_state["seconds"] = time.perf_counter() - start
    st.session_state["work"] = time.thread_time() - work


def redraws(name: str, values: list[float], safe: bool, address: dict[str, str]) -> tuple[list[float], list[float]]:
    """Seconds of the page for each value of a control, by the clock and of the processor."""
    page = AppTest.from_function(script, default_timeout=60)
    for parameter, text in address.items():
        page.query_params[parameter] = text
    page.run()
    if not safe:
        page.radio(key="clip_by").set_value(Clip.HEIGHT).run()
    if name == "sigma_w_factor":
        page.radio(key="sigmas").set_value(Sigmas.FACTOR).run()
    seconds, work = [], []
    for value in values:
        page.slider(key=name).set_value(value).run()
        assert not page.exception
        seconds.append(page.session_state["seconds"])
        work.append(page.session_state["work"])
    return seconds, work


def computations(name: str, values: list[float], safe: bool, address: dict[str, str]) -> list[float]:
    """Seconds of `view_of` alone."""
    settings, _ = from_address({parameter: [text] for parameter, text in address.items()})
    settings = replace(settings, clip_by=Clip.SAFE if safe else Clip.HEIGHT)
    if name == "sigma_w_factor":
        settings = replace(settings, sigmas=Sigmas.FACTOR)
    view_of(settings)
    seconds = []
    for value in values:
        run_chains.cache_clear()
        view.compute_view.cache_clear()
        stream_view.compute_stream_view.cache_clear()
        start = time.perf_counter()
        view_of(replace(settings, **{name: value}))
        seconds.append(time.perf_counter() - start)
    return seconds


PRESSES = 12
# Where each slider is found, by address.
SLIDERS = {
    "": ("Sparsity s", "Width N", "Depth L", "q*", "Cobweb starts"),
    "?clip=1.3": ("Clip m", "Sparsity s"),
    "?v_prime=0.7": ("V′(q*)", "Sparsity s"),
    "?activation=cst": ("Sparsity s", "Width N", "Depth L"),
    "?activation=shifted_relu&sparsity=0.7": ("Sparsity s", "Width N", "Depth L"),
    "?block=feedforward&depth=30": ("Sparsity s", "Width N", "Depth L", "Hidden units"),
    "?block=residual&norm=none&branch_scale=0.5&depth=30": ("Sparsity s", "Width N", "Depth L", "β"),
    "?sigma_w_factor=1.1": ("Weights' σ as a multiple", "Sparsity s"),
    "?activation=cst&sparsity=0.75&clip=1.5&sigma_w=5&sigma_b=1.5": (
        "σ of the weights", "σ of the biases", "Clip m", "Sparsity s", "Depth L",
    ),
}  # fmt: skip
CHOICES = ("Clip by", "σ of weights and biases")
LISTS = {
    "Activation": tuple(entry_of(name).title for name in activation_names()),
    "A figure of the paper, or an example": tuple(preset.label for preset in PRESETS),
}
# The time of the last key press and of the last change of the page, but for the control itself. What is announced to a
# screen reader stands outside of the page, and is taken away again some seconds later.
WATCH = """() => {
    window.seen = {key: 0, last: 0};
    const apart = "[data-testid=stSlider], [data-testid=stSelectbox], [data-testid=stStatusWidget]";
    const ours = node => node.closest && node.closest("[data-testid=stApp]") && !node.closest(apart);
    new MutationObserver(changes => {
        if (changes.some(c => ours(c.target.nodeType === 1 ? c.target : c.target.parentElement || document.body)))
            window.seen.last = performance.now();
    }).observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
    document.addEventListener("keydown", () => { window.seen = {key: performance.now(), last: 0}; }, true);
}"""


def in_the_browser() -> None:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        sys.exit("no Chromium here; make test-browser installs it as root.")
    everything = []

    def press(page: Any, key: str) -> float:
        page.keyboard.press(key)
        page.wait_for_timeout(1000)
        seen = page.evaluate("window.seen")
        return seen["last"] - seen["key"]

    def report(control: str, times: list[float], address: str) -> None:
        everything.extend(times)
        print(f"{control:22} {statistics.median(times):6.0f} ms {max(times):6.0f} ms  {address}", flush=True)

    with serving() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport=DESKTOP)
        print(f"{'control':22} {'median':>9} {'longest':>9}")
        for address, sliders in SLIDERS.items():
            page.goto(f"{server}/{address}")
            page.locator(".drawing").nth(5).wait_for()
            page.locator("summary", has_text="Scale").click()
            page.wait_for_timeout(3000)
            page.evaluate(WATCH)
            for slider in sliders:
                page.get_by_role("slider", name=re.compile(f"^{re.escape(slider)}")).focus()
                report(slider, [press(page, "ArrowRight") for _ in range(PRESSES)], address)
        for choice in CHOICES:
            page.get_by_role("radiogroup", name=choice).get_by_role("radio", checked=True).focus()
            report(choice, [press(page, "ArrowRight") for _ in range(PRESSES)], address)
        for choice, entries in LISTS.items():
            times = []
            for entry in entries:
                page.get_by_role("combobox", name=choice).fill(entry)
                page.wait_for_timeout(500)
                times.append(press(page, "Enter"))
            report(choice, times, "")
    print(f"{len(everything)} moves, the longest {max(everything):.0f} ms")


def in_server_time() -> None:
    threadpool_limits(1)  # as hush explore does
    logging.disable(logging.WARNING)  # Streamlit's, that no server is running
    print(
        f"{'control':18} {'clip':5} {'page, median':>13} {'longest':>9} {'processor, longest':>19} {'view, median':>13}"
    )
    chains = {control: ({}, values) for control, values in MOVES.items()}
    for control, (address, values) in {**chains, **STREAMS}.items():
        name = "depth" if control == "deepest" else control if control in MOVES else control.split()[-1]
        safe = control != "clip"
        view._unit_safe_clip.cache_clear()
        page, work = redraws(name, values, safe, address)
        view._unit_safe_clip.cache_clear()
        alone = computations(name, values, safe, address)
        print(
            f"{control:18} {'safe' if safe else 'm':5} {1e3 * statistics.median(page):10.0f} ms "
            f"{1e3 * max(page):6.0f} ms {1e3 * max(work):16.0f} ms {1e3 * statistics.median(alone):10.0f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browser", action="store_true", help="measure in Chromium")
    in_the_browser() if parser.parse_args().browser else in_server_time()


if __name__ == "__main__":
    main()
