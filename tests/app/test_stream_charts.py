"""Every picture of a residual network, read back as XML."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from hush.app import Settings, StreamView, compute_stream_view, stream_charts

SMALL = Settings(sparsity=0.9, width=50, depth=10, block="feedforward")
VIEWS = {
    "normed": SMALL,
    "one matrix": replace(SMALL, block="residual"),
    "norm behind": replace(SMALL, norm="post-layer", block="gated"),
    "explodes": replace(
        SMALL, activation="shifted_relu", norm="none", branch_rule="number", branch_scale=2.0, depth=60
    ),
    "branches off": replace(SMALL, branch_rule="number", branch_scale=0.0),
    "no zeros": replace(SMALL, activation="soft_threshold", sparsity=0.0, norm="none"),
    "two blocks": replace(SMALL, depth=2),
}


@pytest.fixture(scope="module", params=list(VIEWS))
def view(request: pytest.FixtureRequest) -> StreamView:
    return compute_stream_view(VIEWS[request.param])


def titles(drawing: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter("title")]


def test_every_picture_is_well_formed_and_says_what_it_shows(view: StreamView) -> None:
    for name in stream_charts.__all__:
        drawing = getattr(stream_charts, name)(view, "what it shows")
        assert ElementTree.fromstring(drawing).attrib["aria-label"] == "what it shows"
        assert "nan" not in re.sub("<[^>]*label=[^>]*>", "", drawing)
        assert "inf" not in drawing


def test_the_targets_are_drawn(view: StreamView) -> None:
    assert "target" in titles(stream_charts.sparsity(view, ""))
    assert "q*" in titles(stream_charts.q(view, ""))
    assert "indistinguishable" in titles(stream_charts.correlation(view, ""))
    assert "explodes" in titles(stream_charts.gain(view, ""))


def test_a_variance_over_many_decades_is_logarithmic() -> None:
    wide = stream_charts.stream(compute_stream_view(VIEWS["explodes"]), "")
    narrow = stream_charts.stream(compute_stream_view(SMALL), "")
    assert "10⁶" in wide or "10⁸" in wide or "10¹⁰" in wide or "10¹⁵" in wide
    assert "10⁶" not in narrow
