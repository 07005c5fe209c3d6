"""Every picture of the page, read back as XML, for designs of every kind."""

import re
from xml.etree import ElementTree

import pytest

from hush.app import Settings, View, charts, compute_view
from hush.app.settings import Clip, Sigmas

OUTLOOKS = {
    "safe": Settings(width=100, depth=20),
    "second fixed point": Settings(activation="cst", clip_by=Clip.SLOPE, v_prime=0.9, width=100, depth=20),
    "unclipped": Settings(activation="soft_threshold", sparsity=0.7, width=100, depth=20),
    "every q is fixed": Settings(activation="shifted_relu", sparsity=0.5, width=100, depth=20),
    "runs away": Settings(activation="shifted_relu", sigmas=Sigmas.FACTOR, sigma_w_factor=1.5, width=100, depth=20),
}


@pytest.fixture(scope="module", params=list(OUTLOOKS))
def view(request: pytest.FixtureRequest) -> View:
    return compute_view(OUTLOOKS[request.param])


def titles(drawing: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter("title")]


def test_every_picture_is_well_formed_and_says_what_it_shows(view: View) -> None:
    for name in charts.__all__:
        drawing = getattr(charts, name)(view, "what it shows")
        if drawing is None:
            assert (name == "clips" and view.design.clip is None) or (
                name == "correlation" and view.correlation is None
            )
            continue
        assert ElementTree.fromstring(drawing).attrib["aria-label"] == "what it shows"
        assert "nan" not in re.sub("<[^>]*label=[^>]*>", "", drawing)
        assert "inf" not in drawing


def test_every_fixed_point_is_marked(view: View) -> None:
    marked = [title for title in titles(charts.variance(view, "")) if title.startswith("q = ")]
    assert len(marked) == len(list(view.fixed_points))
    for point in view.fixed_points:
        assert f"q = {point}" in marked


def test_a_gain_that_may_vanish_has_a_line_for_it() -> None:
    calm, dying = (compute_view(Settings(width=width, depth=depth)) for width, depth in ((500, 10), (100, 100)))
    assert "vanishes" not in titles(charts.gain(calm, ""))
    assert "vanishes" in titles(charts.gain(dying, ""))
    assert "explodes" in titles(charts.gain(calm, ""))


def test_the_safe_clip_is_drawn_where_another_was_chosen() -> None:
    chosen = compute_view(Settings(clip_by=Clip.HEIGHT, clip=0.7, width=100, depth=20))
    assert "m to choose" in titles(charts.clips(chosen, "") or "")
    assert "m to choose" not in titles(charts.clips(compute_view(OUTLOOKS["safe"]), "") or "")


def test_where_inputs_become_indistinguishable_is_drawn_and_said() -> None:
    lost = compute_view(Settings(clip_by=Clip.SLOPE, v_prime=0.3, width=100, depth=60))
    assert lost.verdict.headline == "It will hardly train: inputs become indistinguishable."
    assert lost.separations.lost_at_depth is not None
    drawn = titles(charts.distinguishability(lost, ""))
    assert f"from layer {lost.separations.lost_at_depth} on" in drawn
    apart = compute_view(OUTLOOKS["every q is fixed"])
    assert apart.separations.lost_at_depth is None
    assert titles(charts.distinguishability(apart, "")) == ["median", "indistinguishable below"]
