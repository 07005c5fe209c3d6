"""What the page shows of residual networks: against the library, and against real networks with all their weights."""

import math
import shlex
from dataclasses import replace

import numpy as np
import pytest

import hush
from hush.app import PRESETS, Settings, StreamView, compute_stream_view
from hush.app.settings import Clip
from hush.app.snippets import code, command
from hush.app.stream_sample import run_sample

SMALL = Settings(sparsity=0.9, width=64, depth=12, block="feedforward")
KINDS = {
    "feed-forward": SMALL,
    "hidden units of one's own": replace(SMALL, hidden_ratio=1.5, norm="layer", q_star=2.0),
    "gated, norm behind": replace(SMALL, block="gated", norm="post-rms", branch_rule="learned"),
    "one matrix": replace(SMALL, block="residual", clip_by=Clip.HEIGHT, clip=0.8),
    "one matrix without a norm": replace(SMALL, block="residual", norm="none", q_star=3.0, branch_rule="1/depth"),
    "without a norm": replace(SMALL, norm="none", branch_rule="number", branch_scale=0.3, activation="cst"),
}
ODDS = ("explode", "vanish", "indistinguishable", "sparsity_lost")


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_and_the_command_give_the_same_design(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hush.cli import main

    view = compute_stream_view(KINDS[kind])
    namespace: dict[str, object] = {}
    exec(code(view), namespace)
    made = namespace["design"]
    assert isinstance(made, hush.Design)
    assert "hush.init_(model, design, example)" in code(view)
    sampled = dict.fromkeys(("odds", "gain_log10", "stream_end", "separation"))
    assert replace(made, verdict="", **sampled) == replace(view.design, verdict="", **sampled)
    capsys.readouterr()
    monkeypatch.setattr("sys.argv", [*shlex.split(command(view)), "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert hush.Design.from_json(capsys.readouterr().out) == made


@pytest.mark.parametrize(
    "settings",
    [
        replace(SMALL, norm="none", sparsity=0.95, branch_rule="number", depth=20),
        replace(SMALL, block="residual", norm="none", branch_rule="number", depth=20),
        replace(SMALL, activation="shifted_relu", sparsity=0.5, norm="post-rms", depth=60, branch_rule="number"),
    ],
)
def test_the_odds_are_those_of_the_library(settings: Settings) -> None:
    view = compute_stream_view(settings)
    namespace: dict[str, object] = {}
    exec(code(view), namespace)
    made = namespace["design"]
    assert isinstance(made, hush.Design)
    assert made.odds is not None
    assert view.design.odds is not None
    for name in ODDS:
        # A hundred networks or more scatter by 5 %.
        assert getattr(view.design.odds, name) == pytest.approx(getattr(made.odds, name), abs=0.15), name
    assert view.verdict.trains == made.trains
    assert view.design.separation == pytest.approx(made.separation, rel=0.3)


def test_bands_are_those_of_real_random_networks() -> None:
    """Stream, q, sparsity, gain and correlation of 40 networks with all their weights, beside the bands of the page."""
    settings = replace(SMALL, width=100, depth=10)
    view = compute_stream_view(settings)
    design, rng, width = view.design, np.random.default_rng(0), 100
    assert design.clip is not None
    tau, m, beta, hidden = design.threshold, design.clip, 10**-0.5, 400
    sigma_in, sigma_out = math.sqrt(design.sigma_in2 or 0.0), math.sqrt(design.sigma_out2 or 0.0)
    seen: dict[str, list[float]] = {name: [] for name in ("stream", "q", "sparsity", "gain", "correlation")}
    for _ in range(40):
        x = rng.normal(size=width) * math.sqrt(rng.choice([0.64, 0.97, 1.40]))
        other = 0.3 * x + math.sqrt(1.0 - 0.09) * np.linalg.norm(x) * rng.normal(size=width) / math.sqrt(width)
        jacobian = np.eye(width)
        for _ in range(10):
            w_1 = rng.normal(size=(hidden, width)) * sigma_in / math.sqrt(width)
            w_2 = rng.normal(size=(width, hidden)) * sigma_out / math.sqrt(hidden)
            root = math.sqrt(np.mean(x**2))
            h = w_1 @ x / root
            slopes = (h > tau) & (h < tau + m)
            through = (np.eye(width) - np.outer(x, x) / (width * root**2)) / root
            jacobian = jacobian + beta * w_2 @ (slopes[:, None] * (w_1 @ through @ jacobian))
            x = x + beta * w_2 @ np.clip(h - tau, 0.0, m)
            other = other + beta * w_2 @ np.clip(w_1 @ other / math.sqrt(np.mean(other**2)) - tau, 0.0, m)
        delta = rng.normal(size=width)
        seen["stream"].append(np.mean(x**2))
        seen["q"].append(np.mean(h**2))
        seen["sparsity"].append(np.mean(h <= tau))
        seen["gain"].append(math.log10(np.sum((jacobian.T @ delta) ** 2) / np.sum(delta**2)))
        seen["correlation"].append(x @ other / (np.linalg.norm(x) * np.linalg.norm(other)))
    for name, values in seen.items():
        quantiles = getattr(view, name)
        layer = 0 if name == "gain" else -1
        inside = np.mean([quantiles[0.05][layer] <= value <= quantiles[0.95][layer] for value in values])
        # 90 % are expected, and 40 networks scatter by 5 %; the band of the correlation is that of 16 pairs.
        assert inside >= (0.6 if name == "correlation" else 0.75), (name, inside)
        low, high = (np.quantile(values, level) for level in (0.25, 0.75))
        assert low <= quantiles[0.5][layer] <= high, name


def test_pairs_at_a_modest_width_stand_for_wider_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SMALL, width=400, depth=8)
    made = compute_stream_view(settings).design
    quick = run_sample(made, 400, 8).cosines[-1]
    monkeypatch.setattr("hush.app.stream_sample._PAIR_WIDTH", 400)
    monkeypatch.setattr("hush.app.stream_sample._PAIRS", 100)
    exact = run_sample(made, 400, 8).cosines[-1]
    assert np.median(quick) == pytest.approx(np.median(exact), abs=0.04)
    assert np.std(quick) == pytest.approx(np.std(exact), rel=0.6)


def test_the_examples_show_what_they_say() -> None:
    safe, unsafe = (compute_stream_view(preset.settings) for preset in PRESETS if preset.figure is None)
    assert safe.verdict.headline == "It should train."
    assert safe.design.odds == hush.theory.Odds(0.0, 0.0, 0.0, 0.0)
    assert safe.sparsity[0.5][-1] == pytest.approx(0.95, abs=0.005)
    assert unsafe.verdict.headline == "It will not train: gradients explode."
    assert unsafe.design.odds is not None
    assert 0.3 < unsafe.design.odds.explode < 0.7
    assert unsafe.design.odds.sparsity_lost > 0.9


def test_a_sparsity_that_is_lost_is_in_the_headline() -> None:
    view = compute_stream_view(replace(SMALL, block="residual", norm="none", depth=20))
    assert view.verdict == replace(view.verdict, trains=True, headline="It should train, but loses its sparsity.")
    assert "put a norm in front of the branch" in view.verdict.sentence


def test_one_matrix_behind_a_norm_has_q_exactly_one() -> None:
    view: StreamView = compute_stream_view(replace(SMALL, block="residual"))
    assert set(view.q[0.05]) | set(view.q[0.95]) == {1.0}
    assert len(view.q[0.5]) == 12
    assert len(view.stream[0.5]) == len(view.gain[0.5]) == len(view.correlation[0.5]) == 13
    assert view.gain[0.95][-1] == 0.0
