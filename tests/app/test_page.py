"""The page's script, run by Streamlit without a browser."""

import gc
from pathlib import Path
from typing import Any

import pytest

import hush.app
from hush.app.settings import Clip, Sigmas

pytest.importorskip("streamlit", reason="the explorer needs the extra `app` (make test-browser installs it)")

PAGE = Path(hush.app.__file__).with_name("page.py")


def open_page(**parameters: str) -> Any:
    from streamlit.testing.v1 import AppTest

    page = AppTest.from_file(str(PAGE), default_timeout=60)
    for name, value in parameters.items():
        page.query_params[name] = value
    return page.run()


def verdict(page: Any) -> str:
    assert not page.exception
    boxes = [*page.success, *page.error]
    assert len(boxes) == 1
    return str(boxes[0].value)


def test_it_opens_with_a_design_that_trains() -> None:
    page = open_page()
    assert "It should train." in verdict(page)
    assert not page.warning
    assert page.code[1].value == "hush design crelu --sparsity 0.85 --width 300 --depth 100"


def test_what_is_imported_is_not_garbage() -> None:
    open_page()
    # Else Streamlit looks through all of it after every redraw, while the pictures wait.
    assert gc.get_freeze_count() > 10_000


def test_the_verdict_follows_the_clip_and_the_address_follows_both() -> None:
    page = open_page(depth="60")
    page.radio(key="clip_by").set_value(Clip.HEIGHT).run()
    assert "should train" in verdict(page)
    page.slider(key="clip").set_value(2.2).run()
    assert "will not train" in verdict(page)
    assert page.query_params["clip"] in ("2.2", ["2.2"])
    assert page.query_params["depth"] in ("60", ["60"])


def test_an_address_restores_everything() -> None:
    page = open_page(activation="cst", sparsity="0.3", v_prime="0.6", q_star="2", width="200", depth="30")
    assert page.selectbox(key="activation").value == "cst"
    assert page.radio(key="clip_by").value is Clip.SLOPE
    values = {key: page.slider(key=key).value for key in ("sparsity", "v_prime", "q_star", "width", "depth")}
    assert values == {"sparsity": 0.3, "v_prime": 0.6, "q_star": 2.0, "width": 200, "depth": 30}


def test_another_activation_keeps_what_it_can() -> None:
    page = open_page(activation="cst", sparsity="0.3", depth="20")
    page.selectbox(key="activation").set_value("crelu").run()
    assert not page.exception
    assert page.slider(key="sparsity").value == 0.5
    page.selectbox(key="activation").set_value("soft_threshold").run()
    assert "<dt>clip m</dt><dd>none</dd>" in page.markdown[-2].value
    assert not page.exception


def test_free_sigmas_start_on_the_edge() -> None:
    page = open_page(depth="20")
    before = verdict(page).split("\n")[0]
    page.radio(key="sigmas").set_value(Sigmas.FREE).run()
    assert verdict(page).split("\n")[0] == before
    page.slider(key="sigma_w").set_value(6.0).run()
    assert "explode" in verdict(page)


def test_presets_set_the_controls_until_one_is_moved() -> None:
    page = open_page(depth="20")
    # Touching, three fixed points, ordered, chaotic, and the residual ones.
    for index, preset in enumerate(hush.app.PRESETS):
        if preset.figure not in ("2", "4b", "7", "12", None):
            continue
        page.selectbox(key="preset").set_value(index).run()
        verdict(page)
        assert page.slider(key="sparsity").value == preset.settings.sparsity
        assert page.selectbox(key="block").value == preset.settings.block
        assert preset.note in [caption.value for caption in page.caption]
    page.slider(key="sparsity").set_value(0.8).run()
    assert page.selectbox(key="preset").value is None


def test_a_bad_address_is_a_message_and_goes_once_a_control_is_moved() -> None:
    page = open_page(sparsity="1.5", colour="![x](y)", depth="20")
    assert "It should train." in verdict(page)
    assert len(page.warning) == 1
    assert "sparsity is “1.5”" in page.warning[0].value.replace("\\", "")
    # The address cannot put Markdown on the page.
    assert "![x]" not in page.warning[0].value
    page.slider(key="depth").set_value(21).run()
    assert not page.warning


def test_no_safe_clip_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_safe(*_: object) -> float:
        raise ValueError("no clip keeps the odds within 0.01.")

    monkeypatch.setattr("hush.app.view.choose_clip", none_is_safe)
    page = open_page(sparsity="0.9702", width="120", depth="13")
    assert "no such design" in verdict(page)
    assert "no clip keeps the odds" in verdict(page)


def labels(page: Any) -> set[str]:
    return {widget.label for kind in (page.slider, page.radio, page.selectbox) for widget in kind}


def test_another_block_has_other_controls_and_pictures() -> None:
    page = open_page(v_prime="0.7", q_star="2", width="800", depth="110")
    assert {"σ of weights and biases", "V′(q*)", "Cobweb starts at q/q*"} <= labels(page)
    assert not {"Norm n", "Branch scale β"} & labels(page)
    page.selectbox(key="block").set_value("feedforward").run()
    assert "It should train." in verdict(page)
    # What stood beyond the ends of the new block's controls is brought inside.
    assert page.slider(key="depth").value == 100
    assert page.slider(key="q_star").value == 2.0
    assert page.radio(key="clip_by").value is Clip.SAFE
    assert {"Norm n", "Branch scale β", "Hidden units over width"} <= labels(page)
    assert not {"σ of weights and biases", "V′(q*)", "Cobweb starts at q/q*"} & labels(page)
    page.selectbox(key="block").set_value("residual").run()
    assert page.slider(key="width").value == 400
    assert not {"Hidden units over width", "q*"} & labels(page)
    assert page.query_params["block"] in ("residual", ["residual"])
    assert "q_star" not in page.query_params
    assert "Stream variance p" in page.markdown[-2].value
    page.selectbox(key="block").set_value("chain").run()
    assert "Variance map V(q)" in page.markdown[-2].value
    assert "sigma_w" not in page.query_params


def test_an_address_of_a_residual_network() -> None:
    page = open_page(block="gated", norm="post-rms", branch_scale="0.5", hidden_ratio="2", depth="10", width="100")
    assert not page.warning
    assert page.selectbox(key="norm").value == "post-rms"
    assert page.slider(key="branch_scale").value == 0.5
    assert 'block="gated", norm="rms", post_norm=True, branch_scale=0.5, hidden=200' in page.code[0].value
    page.radio(key="branch_rule").set_value("learned").run()
    assert page.query_params["branch_scale"] in ("learned", ["learned"])
    assert "--branch-scale learned" in page.code[1].value


def test_the_page_says_what_its_letters_mean() -> None:
    page = open_page(depth="10")
    title = next(element for element in page.get("html") if "<h1>" in element.proto.body)
    assert "hush explorer" in title.proto.body
    assert "q is the variance of what an activation φ reads" in title.proto.body
    assert "<dt>σ<sub>w</sub></dt>" in page.markdown[-2].value
