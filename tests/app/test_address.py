"""Settings survive the address; what is wrong with an address is said in a sentence."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hush.app import PRESETS, Settings, from_address, to_address
from hush.app.address import NAMES
from hush.app.settings import BLOCKS, NORMS, Clip, Sigmas, branch_rules
from hush.theory import ACTIVATIONS


def query(**parameters: str) -> dict[str, list[str]]:
    return {name: [value] for name, value in parameters.items()}


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    activation = draw(st.sampled_from(ACTIVATIONS))
    low = 0.0 if activation in ("soft_threshold", "cst") else 0.5
    return Settings(
        activation,
        draw(st.floats(low, 0.98)),
        draw(st.sampled_from(Clip)),
        draw(st.floats(0.05, 1.5)),
        draw(st.floats(0.05, 0.99)),
        draw(st.floats(0.1, 10.0)),
        draw(st.integers(10, 2000)),
        draw(st.integers(2, 120)),
        draw(st.sampled_from(Sigmas)),
        draw(st.floats(0.5, 1.5)),
        draw(st.floats(0.0, 12.0)),
        draw(st.floats(0.0, 1.2)),
        draw(st.floats(0.05, 8.0)),
    )


@hypothesis_settings(max_examples=60, deadline=None)
@given(settings())
def test_what_counts_comes_back_exactly(given_settings: Settings) -> None:
    restored, complaints = from_address(query(**to_address(given_settings)))
    assert complaints == []
    same = {"activation", "sparsity", "q_star", "width", "depth", "sigmas", "start"}
    if given_settings.is_clipped:
        same |= {"clip_by"}
        same |= {Clip.HEIGHT: {"clip"}, Clip.SLOPE: {"v_prime"}, Clip.SAFE: set()}[given_settings.clip_by]
    same |= {Sigmas.FACTOR: {"sigma_w_factor"}, Sigmas.FREE: {"sigma_w", "sigma_b"}}.get(given_settings.sigmas, set())
    for name in same:
        assert getattr(restored, name) == getattr(given_settings, name), name


@st.composite
def stream_settings(draw: st.DrawFn) -> Settings:
    block = draw(st.sampled_from(BLOCKS[1:]))
    norm = draw(st.sampled_from(list(NORMS)))
    return Settings(
        sparsity=draw(st.floats(0.5, 0.98)),
        clip_by=draw(st.sampled_from([Clip.SAFE, Clip.HEIGHT])),
        clip=draw(st.floats(0.05, 1.5)),
        q_star=1.0 if block == "residual" and norm.startswith("post") else draw(st.floats(0.1, 10.0)),
        width=draw(st.integers(10, 400)),
        depth=draw(st.integers(2, 100)),
        block=block,
        norm=norm,
        branch_rule=draw(st.sampled_from(branch_rules())),
        branch_scale=draw(st.floats(0.0, 2.0)),
        hidden_ratio=draw(st.floats(0.25, 8.0)),
    )


@hypothesis_settings(max_examples=60, deadline=None)
@given(stream_settings())
def test_what_counts_on_a_residual_stream_comes_back_exactly(given_settings: Settings) -> None:
    restored, complaints = from_address(query(**to_address(given_settings)))
    assert complaints == []
    same = {"block", "norm", "branch_rule", "sparsity", "q_star", "width", "depth", "clip_by"}
    same |= {"clip"} if given_settings.clip_by is Clip.HEIGHT else set()
    same |= {"branch_scale"} if given_settings.branch_rule == "number" else set()
    same |= {"hidden_ratio"} if given_settings.has_hidden else set()
    for name in same:
        assert getattr(restored, name) == getattr(given_settings, name), name


def test_an_address_of_a_chain_says_nothing_of_blocks() -> None:
    """So that those written down before there were any keep their meaning, and look as they did."""
    assert to_address(Settings()) == {
        "activation": "crelu", "sparsity": "0.85", "clip": "safe", "width": "300", "depth": "100",
    }  # fmt: skip
    assert from_address(query(activation="cst", depth="120"))[0].block == "chain"


def test_no_address_is_the_default() -> None:
    assert from_address({}) == (Settings(), [])


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.label)
def test_presets_can_be_bookmarked(preset: object) -> None:
    chosen = preset.settings  # type: ignore[attr-defined]
    restored, complaints = from_address(query(**to_address(chosen)))
    assert complaints == []
    # What the address leaves out, because it does not count here, is at its default in a preset as well.
    assert restored == chosen


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"sparsity": "1.5"}, ("sparsity", "1.5", "between 0.5 and 0.98", "default")),
        ({"sparsity": "0.3"}, ("sparsity", "0.3", "between 0.5", "crelu")),
        ({"sparsity": "many"}, ("sparsity", "many", "a number")),
        ({"sparsity": "nan"}, ("sparsity", "nan")),
        ({"sparsity": ""}, ("sparsity", "a number")),
        ({"width": "1e9"}, ("width", "1e9", "10 and 2000")),
        ({"depth": "3.5"}, ("depth", "3.5", "whole number")),
        ({"depth": "inf"}, ("depth", "inf", "whole number")),
        ({"clip": "loose"}, ("clip", "loose", "safe")),
        ({"clip": "7", "q_star": "1"}, ("clip", "7", "0.05 and 5")),
        ({"activation": "gelu"}, ("activation", "gelu", "crelu", "soft_threshold")),
        ({"colour": "red"}, ("colour", "ignored", "sparsity")),
        ({"clip": "1", "v_prime": "0.7"}, ("contradict",)),
        ({"activation": "shifted_relu", "clip": "1"}, ("clip", "shifted_relu", "no clip")),
        ({"sigma_w": "2"}, ("sigma_w", "sigma_b", "together")),
        ({"block": "dense"}, ("block", "dense", "chain, residual, feedforward, gated", "Showing chain")),
        ({"block": "gated", "norm": "batch"}, ("norm", "batch", "post-layer", "Showing rms")),
        ({"block": "gated", "branch_scale": "half"}, ("branch_scale", "half", "1/sqrt(depth), 1/depth, learned or a")),
        ({"block": "gated", "branch_scale": "number"}, ("branch_scale", "number", "between 0 and 2")),
        ({"block": "gated", "depth": "120"}, ("depth", "120", "between 2 and 100")),
        ({"block": "residual", "width": "600"}, ("width", "600", "between 10 and 400")),
        ({"block": "residual", "hidden_ratio": "2"}, ("hidden_ratio", "one matrix", "ignored")),
        ({"block": "residual", "norm": "post-rms", "q_star": "2"}, ("q_star", "q = 1", "ignored")),
        ({"block": "residual", "v_prime": "0.7"}, ("v_prime", "chains", "ignored")),
        ({"norm": "rms"}, ("norm", "residual stream", "chain", "ignored")),
        ({"sigma_w": "2", "sigma_b": "0.5", "sigma_w_factor": "1.1"}, ("sigma_w_factor", "contradicts")),
    ],
)
def test_a_bad_parameter_is_one_sentence_that_names_it(parameters: dict[str, str], words: tuple[str, ...]) -> None:
    restored, complaints = from_address(query(**parameters))
    assert len(complaints) == 1
    assert all(word in complaints[0] for word in words)
    assert isinstance(restored, Settings)


def test_a_bad_parameter_leaves_the_good_ones_alone() -> None:
    restored, complaints = from_address(query(activation="cst", sparsity="0.7", depth="deep", width="500"))
    assert len(complaints) == 1
    assert restored == replace(Settings(), activation="cst", sparsity=0.7, width=500)


def test_a_parameter_given_twice_is_said() -> None:
    _, complaints = from_address({"depth": ["30", "40"]})
    assert complaints == ["depth is given 2 times; give it once. Showing the default."]


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.text(max_size=60), max_size=2)))
def test_no_address_raises(parameters: dict[str, list[str]]) -> None:
    restored, complaints = from_address(parameters)
    assert isinstance(restored, Settings)
    assert all(sentence.endswith(".") for sentence in complaints)


def test_settings_refuse_what_no_control_gives() -> None:
    assert {field.name for field in fields(Settings)} >= {"sparsity", "clip", "width"}
    with pytest.raises(ValueError, match="sparsity must lie between 0.5 and 0.98, got 0.2"):
        Settings(sparsity=0.2)
    with pytest.raises(ValueError, match="activation must be one of"):
        Settings(activation="gelu")
    with pytest.raises(ValueError, match="block must be one of chain, residual"):
        Settings(block="dense")
    with pytest.raises(ValueError, match="a gated block has no fixed point"):
        Settings(block="gated", clip_by=Clip.SLOPE)
    with pytest.raises(ValueError, match="a residual block has q = 1, got q_star = 2"):
        Settings(block="residual", norm="post-rms", q_star=2.0)
