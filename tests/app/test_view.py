"""What the page shows, against the theory and a real iteration of the map."""

import math
from dataclasses import replace

import numpy as np
import pytest

import hush
from hush.app import PRESETS, Settings, compute_view
from hush.app.pictures import numbers_and_pictures
from hush.app.settings import Clip, Sigmas
from hush.app.snippets import code, command
from hush.app.stream_view import compute_stream_view
from hush.theory import Regime, Stability, largest_safe_clip, variance_map

SMALL = Settings(width=100, depth=20)


def test_the_safe_clip_is_that_of_the_library() -> None:
    view = compute_view(replace(SMALL, q_star=4.0))
    assert view.design == hush.design("crelu", 0.85, width=100, depth=20, q_star=4.0)
    assert view.safe_clip is not None
    assert view.safe_clip.value == pytest.approx(2.0 * largest_safe_clip("crelu", 0.85, 100, 20), rel=1e-12)
    assert view.verdict.headline == "It should train."


@pytest.mark.parametrize("preset", [p for p in PRESETS if p.figure], ids=lambda preset: preset.figure)
def test_every_fixed_point_is_on_the_drawn_curve_and_the_diagonal(preset: object) -> None:
    view = compute_view(replace(preset.settings, depth=10))  # type: ignore[attr-defined]
    q, v = view.variance.x, view.variance.y
    crossings = int(np.sum((v[:-1] - q[:-1]) * (v[1:] - q[1:]) < 0.0))
    assert crossings <= len(view.fixed_points)
    for point in view.fixed_points:
        assert q[0] <= point.value <= q[-1]
        assert np.interp(point.value, q, v) == pytest.approx(point.value, rel=5e-3)


def test_a_large_clip_has_three_fixed_points_and_a_cobweb_that_leaves() -> None:
    view = compute_view(Settings("cst", 0.85, Clip.SLOPE, v_prime=0.9, depth=10))
    kinds = [point.stability for point in view.fixed_points]
    assert kinds == [Stability.STABLE, Stability.UNSTABLE, Stability.STABLE]
    assert view.cobweb.y[-1] == pytest.approx(view.fixed_points[2].value, rel=0.01)


def test_the_cobweb_iterates_the_map() -> None:
    view = compute_view(replace(SMALL, start=3.0))
    phi, q = view.design.phi(), 3.0
    for following in view.cobweb.y[1::2][:6]:
        q = variance_map(phi, q, view.sigma_w, view.sigma_b)
        assert following == pytest.approx(q, rel=1e-4)


def test_the_verdict_turns_as_m_passes_the_safe_clip() -> None:
    settings = Settings(clip_by=Clip.HEIGHT)
    safe = compute_view(settings).safe_clip
    assert safe is not None
    assert safe.value is not None
    below = compute_view(replace(settings, clip=round(safe.value - 0.02, 3)))
    far_above = compute_view(replace(settings, clip=1.8))
    assert below.verdict.trains
    assert below.finite.explode <= 0.01
    assert not far_above.verdict.trains
    assert far_above.verdict.headline == "It will not train: gradients explode."
    assert far_above.verdict.sentence.endswith("it will not train.")


def test_off_the_edge_the_phase_decides() -> None:
    chaotic = compute_view(replace(SMALL, depth=60, sigmas=Sigmas.FACTOR, sigma_w_factor=1.2))
    assert chaotic.phase is not None
    assert chaotic.phase.regime is Regime.CHAOTIC
    assert "gradients explode" in chaotic.verdict.headline
    assert "Off the Edge of Chaos" in chaotic.verdict.sentence
    # Inputs part: a correlation below 1 attracts.
    assert chaotic.correlations is not None
    assert chaotic.correlations[0].stability is Stability.STABLE
    assert chaotic.correlations[0].value < 0.95
    ordered = compute_view(replace(SMALL, depth=60, sigmas=Sigmas.FACTOR, sigma_w_factor=0.8))
    assert "gradients vanish" in ordered.verdict.headline


def test_a_factor_of_one_is_the_edge() -> None:
    assert compute_view(replace(SMALL, sigmas=Sigmas.FACTOR)).verdict == compute_view(SMALL).verdict


def test_free_sigmas_are_taken_as_they_are() -> None:
    view = compute_view(replace(SMALL, sigmas=Sigmas.FREE, sigma_w=1.5, sigma_b=0.3))
    assert (view.sigma_w, view.sigma_b) == (1.5, 0.3)


def test_where_q_runs_away_no_correlation_is_drawn() -> None:
    view = compute_view(Settings("shifted_relu", 0.7, sigmas=Sigmas.FACTOR, sigma_w_factor=1.1, depth=30))
    assert view.q_reached is None
    assert view.correlation is None
    assert "runs away" in view.verdict.sentence


def test_plain_relu_is_a_continuum() -> None:
    view = compute_view(Settings("shifted_relu", 0.5, depth=10))
    assert view.fixed_points.continuum
    np.testing.assert_allclose(view.variance.y, view.variance.x, atol=1e-12)


def test_where_no_clip_is_safe_the_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_safe(*_: object) -> float:
        raise ValueError("no clip keeps the odds within 0.01.")

    monkeypatch.setattr("hush.app.view.largest_safe_clip", none_is_safe)
    settings = Settings(sparsity=0.9701, width=110, depth=12)
    with pytest.raises(ValueError, match="no clip keeps the odds"):
        compute_view(settings)
    # A clip of one's own is judged all the same.
    view = compute_view(replace(settings, clip_by=Clip.HEIGHT, clip=0.5))
    assert view.safe_clip is not None
    assert view.safe_clip.value is None


def test_bands_are_those_of_real_random_networks() -> None:
    """q and the gain of 60 networks with all their weights, beside the bands of the page."""
    width, depth = 100, 12
    view = compute_view(Settings(width=width, depth=depth, clip_by=Clip.SLOPE))
    design, rng = view.design, np.random.default_rng(0)
    tau, m = design.threshold, design.clip or math.inf
    last = []
    for _ in range(60):
        h = rng.normal(size=width) * np.sqrt(rng.choice([0.64, 0.97, 1.40]))
        for _ in range(depth - 1):
            x = np.clip(h - tau, 0.0, m)
            h = rng.normal(size=(width, width)) @ x * design.sigma_w / math.sqrt(width)
            h += design.sigma_b * rng.normal(size=width)
        last.append(np.mean(h**2))
    low, high = view.finite.q_quantiles[0.05][-1], view.finite.q_quantiles[0.95][-1]
    inside = np.mean([low <= q <= high for q in last])
    # 90 % are expected; 60 networks scatter by 4 %.
    assert 0.75 <= inside <= 1.0


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        replace(SMALL, clip_by=Clip.HEIGHT, clip=1.1, q_star=2.0),
        replace(SMALL, activation="cst", sparsity=0.7, clip_by=Clip.SLOPE, v_prime=0.8),
        replace(SMALL, activation="soft_threshold", sparsity=0.5),
    ],
)
def test_the_code_and_the_command_give_the_same_design(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hush.cli import main

    view = compute_view(settings)
    namespace: dict[str, object] = {}
    exec(code(view), namespace)
    assert namespace["design"] == view.design
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", [*command(view).split(), "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert hush.Design.from_json(capsys.readouterr().out) == view.design


@pytest.mark.parametrize(
    "settings",
    [
        replace(SMALL, sigmas=Sigmas.FACTOR, sigma_w_factor=1.1),
        replace(SMALL, sigmas=Sigmas.FREE, sigma_w=2.5, sigma_b=0.7),
    ],
)
def test_off_the_edge_the_code_prints_the_same_odds(settings: Settings) -> None:
    view = compute_view(settings)
    namespace: dict[str, object] = {}
    exec(code(view), namespace)
    chains = namespace["chains"]
    assert isinstance(chains, hush.theory.FiniteWidth)
    assert (chains.explode, chains.vanish) == pytest.approx((view.finite.explode, view.finite.vanish), abs=0.01)


def test_the_presets_cover_every_figure() -> None:
    assert {int(preset.figure.rstrip("ab")) for preset in PRESETS if preset.figure} == set(range(1, 15))


def test_settings_of_another_block_are_refused() -> None:
    with pytest.raises(ValueError, match="the block is gated, which compute_stream_view is for"):
        compute_view(replace(SMALL, block="gated"))


@pytest.mark.parametrize("activation", ["relative_crelu", "relative_soft_threshold"])
def test_relative_thresholds_are_shown_in_units_of_the_layers_size(activation: str) -> None:
    view = compute_view(replace(SMALL, activation=activation, q_star=4.0))
    assert view.design.threshold == compute_view(replace(SMALL, activation=activation)).design.threshold
    assert [point.value for point in view.fixed_points] == pytest.approx([4.0])
    assert view.verdict.trains
    if view.safe_clip is not None:
        assert view.design.clip == view.safe_clip.value == 2.0
    page = numbers_and_pictures(view)
    assert " rms" in page
    assert "units of the layer" in page
    stream = compute_stream_view(replace(SMALL, activation=activation, block="feedforward"))
    assert stream.design.odds is not None
    assert stream.design.odds.sparsity_lost == 0.0
