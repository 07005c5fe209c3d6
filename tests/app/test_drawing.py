"""The drawings, read back as XML."""

import math
from xml.etree import ElementTree

import numpy as np
import pytest

from hush.app.drawing import Area, Axis, Line, Mark, Note, axis, draw

ACROSS, UP = Axis("x", 0.0, 10.0), Axis("y", 1.0, 100.0, logarithmic=True)


def drawn(*things: Line | Area | Mark | Note) -> ElementTree.Element:
    return ElementTree.fromstring(draw(ACROSS, UP, "a label", *things))


def points(path: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Of a path, stroke by stroke, in thousandths of the picture."""
    strokes = ([float(number) / 2.0 for number in s.split()] for s in path.attrib["d"].rstrip("Z").split("M")[1:])
    return [list(zip(stroke[::2], stroke[1::2], strict=True)) for stroke in strokes]


def test_a_curve_goes_through_its_points() -> None:
    (path,) = drawn(Line([0.0, 5.0, 10.0], [1.0, 10.0, 100.0], "red", "rise")).iter("path")
    assert points(path) == [[(0.0, 1000.0), (500.0, 500.0), (1000.0, 0.0)]]
    title = path.find("title")
    assert title is not None
    assert title.text == "rise"


def test_it_breaks_where_there_is_nothing_and_stays_near_where_it_is_far_out() -> None:
    (path,) = drawn(Line([0.0, 1.0, 2.0, 3.0, 1e9], [10.0, math.nan, 10.0, 0.0, 10.0], "red", "")).iter("path")
    first, second = points(path)
    assert first == [(0.0, 500.0)]
    assert second[0] == (200.0, 500.0)
    assert np.abs(second).max() <= 3000.0


def test_an_area_goes_there_and_back() -> None:
    (path,) = drawn(Area([0.0, 10.0], [1.0, 1.0], [10.0, 100.0], "red", 0.5)).iter("path")
    assert points(path) == [[(0.0, 1000.0), (1000.0, 1000.0), (1000.0, 0.0), (0.0, 500.0)]]
    assert path.attrib["d"].endswith("Z")


def test_a_mark_stands_at_its_point_and_only_within_the_picture() -> None:
    picture = drawn(Mark(2.5, 10.0, "ring", "red", "here"), Mark(11.0, 10.0, "circle", "red", "outside"))
    placed = [e for e in picture.iter("svg") if "x" in e.attrib]
    assert [(e.attrib["x"], e.attrib["y"]) for e in placed] == [("25.00%", "50.00%")]


def test_text_cannot_become_markup() -> None:
    text = "<script> & \"'"
    picture = ElementTree.fromstring(draw(Axis(text, 0, 1), Axis(text, 0, 1), text, Note(0.5, 0.5, text, "red")))
    assert picture.attrib["aria-label"] == text
    assert [e.text for e in picture.iter("text")].count(text) == 3
    assert not list(picture.iter("script"))


@pytest.mark.parametrize(
    ("along", "labels"),
    [
        (Axis("", 0.0, 2.5), ["0", "0.5", "1", "1.5", "2", "2.5"]),
        (Axis("", -1.04, 1.04), ["−1", "−0.5", "0", "0.5", "1"]),
        (Axis("", 0.5, 8.0, logarithmic=True), ["0.5", "1", "2", "5"]),
        (Axis("", 1e-8, 1e8, logarithmic=True), ["10⁻⁸", "10⁻⁵", "0.01", "10", "10⁴", "10⁷"]),
    ],
)
def test_ticks(along: Axis, labels: list[str]) -> None:
    ticks = along.ticks()
    assert [label for _, label in ticks] == labels
    assert all(-1e-9 <= along.place(value) <= 1.0 + 1e-9 for value, _ in ticks)


def test_an_axis_holds_its_values() -> None:
    linear = axis("", [3.0, -2.0], 7.0, [math.nan, math.inf])
    assert (linear.low, linear.high) == pytest.approx((-2.36, 7.36))
    wide = axis("", [1e-3, 1e3, 0.0], logarithmic=True)
    assert 5e-4 < wide.low < 1e-3
    assert 1e3 < wide.high < 2e3
    for nothing in (axis("", [4.0]), axis("", [0.0]), axis("", [math.nan]), axis("", [1.0], logarithmic=True)):
        assert nothing.low < nothing.high
    empty = axis("", [math.nan], logarithmic=True)
    assert 0.0 < empty.low < empty.high


def test_what_follows_an_underscore_in_a_title_stands_lower() -> None:
    drawing = ElementTree.fromstring(draw(Axis("σ_w", 0.0, 1.0), UP, ""))
    (lowered,) = (span for span in drawing.iter("tspan") if span.text == "w")
    assert lowered.attrib["dy"] == "0.25em"
    assert "_" not in "".join(drawing.itertext())
