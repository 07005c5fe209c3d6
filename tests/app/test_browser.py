"""The explorer in a real browser: Chromium, driven by Playwright from the keyboard.

    make test-browser

Screenshots go to $HUSH_SCREENSHOTS where that is set.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks._serving import CHROMIUM, DESKTOP, FLAGS, PHONE, serving
from hush.app import Settings, compute_view

pytestmark = pytest.mark.browser
for _module in ("streamlit", "playwright"):
    pytest.importorskip(_module, reason=f"no browser test without {_module} (make test-browser installs it)")

if CHROMIUM is None:
    pytest.skip("no browser test without Chromium (make test-browser installs it as root)", allow_module_level=True)

TIMEOUT = 60_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of `hush explore`, running as a user starts it."""
    with serving() as where:
        yield where


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


class Visit:
    """One window on the explorer; what goes wrong in it is kept."""

    def __init__(self, browser: Any, address: str, size: dict[str, int], scheme: str = "light") -> None:
        self.context = browser.new_context(viewport=size, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        self.address, self.errors = address, []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._stays_here)

    def _stays_here(self, request: Any) -> None:
        if not request.url.startswith((self.address, self.address.replace("http", "ws"), "data:", "blob:")):
            self.errors.append(f"asked for {request.url}")

    def open(self, query: str = "") -> "Visit":
        self.page.goto(f"{self.address}/{query}")
        self.page.get_by_text("The same design").wait_for()
        return self

    def wait_for_verdict(self, words: str) -> None:
        self.page.locator(".st-key-verdict h2", has_text=words).wait_for()

    def slide(self, slider: str, to: float) -> None:
        """By the arrow keys, a press for each step, whatever is being redrawn meanwhile; none may be lost."""
        thumb = self.page.get_by_role("slider", name=slider)
        thumb.focus()
        steps = round((to - float(thumb.input_value())) / float(thumb.get_attribute("step")))
        for _ in range(abs(steps)):
            self.page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")
        assert float(thumb.input_value()) == pytest.approx(to)

    def shoot(self, name: str) -> None:
        folder = os.environ.get("HUSH_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.wait_for_timeout(1500)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))

    def close(self) -> None:
        self.context.close()
        assert self.errors == []


def test_the_verdict_turns_as_the_slider_passes_the_safe_clip(browser: Any, address: str) -> None:
    visit = Visit(browser, address, DESKTOP).open("?clip=1.3")
    visit.wait_for_verdict("It should train.")
    safe = compute_view(Settings()).safe_clip
    assert safe is not None
    assert safe.value is not None
    assert safe.value > 1.3
    visit.shoot("trains")
    visit.slide("Clip m", 1.75)
    visit.wait_for_verdict("It will not train: gradients explode.")
    visit.page.wait_for_url("**clip=1.75**")
    visit.shoot("explodes")
    visit.slide("Clip m", 1.3)
    visit.wait_for_verdict("It should train.")
    visit.close()


def test_a_bookmark_restores_the_page(browser: Any, address: str) -> None:
    first = Visit(browser, address, DESKTOP, "dark").open("?activation=cst&sparsity=0.8&v_prime=0.89&depth=60")
    first.slide("V′(q*)", 0.9)
    first.page.wait_for_url("**v_prime=0.9&**")
    first.page.locator(".st-key-verdict", has_text="V′(q*) = 0.90").wait_for()
    first.shoot("dark")
    bookmark, text = first.page.url, first.page.locator(".st-key-verdict").inner_text()
    first.close()
    second = Visit(browser, address, DESKTOP).open(f"?{bookmark.partition('?')[2]}")
    assert second.page.locator(".st-key-verdict").inner_text() == text
    assert second.page.get_by_role("slider", name="Sparsity s").input_value() == "0.8"
    assert second.page.url == bookmark
    second.close()


def test_the_back_button_goes_back(browser: Any, address: str) -> None:
    visit = Visit(browser, address, DESKTOP).open("?clip=1.3&depth=50")
    visit.slide("Depth L", 51)
    visit.page.wait_for_url("**depth=51**")
    visit.page.go_back()
    visit.page.locator(".st-key-verdict", has_text="depth 50").wait_for()
    visit.close()


def test_a_bad_address_shows_a_message_and_the_defaults(browser: Any, address: str) -> None:
    visit = Visit(browser, address, DESKTOP).open("?sparsity=1.5&colour=red")
    message = visit.page.get_by_text("sparsity is “1.5”, but must be a number between 0.5 and 0.98")
    message.wait_for()
    visit.page.get_by_text("“colour” is not a parameter of this page").wait_for()
    assert visit.page.get_by_role("slider", name="Sparsity s").input_value() == "0.85"
    assert visit.page.get_by_text("Traceback").count() == 0
    visit.shoot("bad_address")
    visit.slide("Depth L", 99)
    message.wait_for(state="detached")
    visit.close()


def test_a_phone_needs_no_sideways_scrolling(browser: Any, address: str) -> None:
    visit = Visit(browser, address, PHONE).open("?activation=cst&sparsity=0.85&v_prime=0.9")
    visit.wait_for_verdict("It will not train")
    visit.page.locator(".drawing").nth(6).wait_for()
    # The page's style comes in an element of its own.
    visit.page.wait_for_function("getComputedStyle(document.querySelector('.pictures')).display === 'grid'")
    visit.shoot("phone")
    widths = visit.page.evaluate(
        "[document.documentElement, ...document.querySelectorAll('[data-testid=stMain], .pictures figure')]"
        ".map(e => [e.scrollWidth, e.clientWidth])"
    )
    assert len(widths) == 9
    for scroll, client in widths:
        assert scroll <= client <= PHONE["width"]
    visit.close()


def test_another_block_is_another_page(browser: Any, address: str) -> None:
    visit = Visit(browser, address, DESKTOP).open("?depth=30")
    visit.page.get_by_role("combobox", name="Block").fill("residual, feed-forward")
    visit.page.wait_for_timeout(500)
    visit.page.keyboard.press("Enter")
    visit.page.get_by_text("Stream variance p").wait_for()
    visit.page.wait_for_url("**block=feedforward**")
    # The slider of the depth has other ends now, and stands where it stood.
    visit.page.locator(".st-key-verdict", has_text="30 blocks").wait_for()
    assert visit.page.get_by_role("slider", name="Depth L").input_value() == "30"
    assert visit.page.get_by_role("slider", name="Sparsity s").input_value() == "0.85"
    visit.slide("Sparsity s", 0.9)
    visit.page.wait_for_url("**sparsity=0.9&**")
    visit.shoot("feedforward")
    visit.page.get_by_role("combobox", name="Activation").fill("CST")
    visit.page.wait_for_timeout(500)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url("**activation=cst**")
    assert visit.page.get_by_role("slider", name="Sparsity s").input_value() == "0.9"
    visit.close()


def test_on_a_phone_the_pictures_come_before_the_controls(browser: Any, address: str) -> None:
    query = "?block=residual&activation=crelu&sparsity=0.9&width=100&depth=20&norm=none&branch_scale=1"
    visit = Visit(browser, address, PHONE).open(query)
    visit.page.locator(".drawing").nth(5).wait_for()
    visit.page.wait_for_function("getComputedStyle(document.querySelector('.pictures')).display === 'grid'")
    heights = visit.page.evaluate(
        "['.about h1', '.pictures', '.st-key-controls'].map(s => document.querySelector(s).getBoundingClientRect().top)"
    )
    assert heights == sorted(heights)
    widths = visit.page.evaluate("[...document.querySelectorAll('.pictures figure, .about')].map(e => e.scrollWidth)")
    assert len(widths) == 7
    assert max(widths) <= PHONE["width"]
    visit.shoot("phone_residual")
    visit.close()


def test_the_command_can_be_copied(browser: Any, address: str) -> None:
    visit = Visit(browser, address, DESKTOP).open()
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block = visit.page.get_by_test_id("stCode").last
    block.hover()
    block.get_by_role("button", name="Copy to clipboard").click()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == "hush design crelu --sparsity 0.85 --width 300 --depth 100"
    visit.close()
