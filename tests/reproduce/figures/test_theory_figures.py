"""The drawn curves against quadrature, finite differences and the paper's printed values; never against hush.theory."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.stats import norm

from hush.reproduce.figures import draw

DRAWN_FROM_THEORY = ["fig1", "fig2", "fig3", "fig4", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12", "fig13"]


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    before = dict(mpl.rcParams)
    drawn = {name: draw(name) for name in DRAWN_FROM_THEORY}
    assert dict(mpl.rcParams) == before
    return drawn


def curves(panel: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    """The solid data of a panel: lines of many points."""
    return [
        (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
        for line in panel.lines
        if len(line.get_xdata()) > 50
    ]


def dots(panel: Axes) -> list[tuple[float, float, bool]]:
    """(x, y, filled) of the fixed points marked in a panel."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_markerfacecolor() != "white")
        for line in panel.lines
        if line.get_marker() == "o" and len(line.get_xdata()) == 1
    ]


def has_identity(panel: Axes) -> bool:
    return any(
        len(line.get_xdata()) == 2
        and np.array_equal(line.get_xdata(), line.get_ydata())
        and line.get_linestyle() == "--"
        for line in panel.lines
    )


def slope_at(x: np.ndarray, y: np.ndarray, where: float) -> float:
    i = int(np.argmin(abs(x - where)))
    return float(np.polyfit(x[i - 2 : i + 3] - where, y[i - 2 : i + 3], 2)[1])


@pytest.mark.parametrize("name", DRAWN_FROM_THEORY)
def test_every_axis_is_labelled(name: str, figures: dict[str, Figure]) -> None:
    panels = figures[name].axes
    assert any(panel.get_xlabel() for panel in panels)
    assert any(panel.get_ylabel() for panel in panels)
    assert panels[0].get_title()


@pytest.mark.parametrize("name", ["fig2", "fig4", "fig6", "fig7", "fig9", "fig10", "fig11", "fig12", "fig13"])
def test_maps_have_the_identity_line(name: str, figures: dict[str, Figure]) -> None:
    assert all(has_identity(panel) for panel in figures[name].axes)


def test_activations(figures: dict[str, Figure]) -> None:
    expected = (
        lambda x: np.maximum(x, 0),
        lambda x: np.maximum(x - 1, 0),
        lambda x: np.sign(x) * np.maximum(abs(x) - 1, 0),
        lambda x: np.clip(x - 1, 0, 1),
        lambda x: np.sign(x) * np.clip(abs(x) - 1, 0, 1),
    )
    for panel, function in zip(figures["fig1"].axes, expected, strict=True):
        ((x, y),) = curves(panel)
        np.testing.assert_allclose(y, function(x), atol=1e-12)


def test_unclipped_maps_coincide_and_touch_the_identity(figures: dict[str, Figure]) -> None:
    for panel, threshold in zip(figures["fig2"].axes, (0.0, 0.25, 0.5, 1.0), strict=True):
        (q, one), (_, two) = curves(panel)
        np.testing.assert_allclose(one, two, rtol=1e-10)
        assert np.all(one >= q - 1e-9)
        assert one[np.argmin(abs(q - 1.0))] == pytest.approx(1.0)
        assert slope_at(q, one, 1.0) == pytest.approx(1.0, abs=1e-3)
        # V by quadrature, with σ_w² = 1/(1 − Φ(τ)) and V(1) = 1
        w2 = 1.0 / norm.sf(threshold)

        def square(at: float, threshold: float = threshold, w2: float = w2) -> float:
            return w2 * quad(lambda z: (at**0.5 * z - threshold) ** 2 * norm.pdf(z), threshold / at**0.5, 40)[0]

        for i in (50, 150, 300):
            assert one[i] == pytest.approx(square(float(q[i])) + 1.0 - square(1.0), rel=1e-6)


def test_slopes_reach_the_printed_clips(figures: dict[str, Figure]) -> None:
    # paper, table 1: m at V′ = 0.5, 0.7, 0.9, and V″ there
    printed = {
        ("crelu", 0.85): ((0.81, 0.5, -0.14), (1.17, 0.7, 0.02), (1.74, 0.9, 0.41)),
        ("cst", 0.85): ((0.67, 0.5, 0.11), (1.00, 0.7, 0.39), (1.53, 0.9, 0.89)),
    }
    sparsities = [0.6, 0.7, 0.8, 0.85, 0.9]
    axes = figures["fig3"].axes
    for (name, sparsity), rows in printed.items():
        column, line = (0 if name == "crelu" else 1), sparsities.index(sparsity)
        m, slope = curves(axes[column])[line]
        _, curvature = curves(axes[2 + column])[line]
        for clip, v_prime, v_second in rows:
            assert np.interp(clip, m, slope) == pytest.approx(v_prime, abs=0.005)
            assert np.interp(clip, m, curvature) == pytest.approx(v_second, abs=0.02)


def test_clip_too_large_marks_the_fixed_points(figures: dict[str, Figure]) -> None:
    left, right = figures["fig4"].axes
    ((q, v),) = curves(left)
    assert slope_at(q, v, 1.0) == pytest.approx(0.9, abs=0.003)
    assert dots(left) == [(1.0, 1.0, True)]
    (q, gentle), (_, steep) = curves(right)
    assert slope_at(q, gentle, 1.0) == pytest.approx(0.8, abs=0.005)
    assert slope_at(q, steep, 1.0) == pytest.approx(0.9, abs=0.005)
    # V′ = 0.9: V − q changes sign at an unstable and again at a second stable point; V′ = 0.8: nowhere but at 1.
    beyond = q > 1.05
    changes = np.flatnonzero(np.diff(np.sign(steep - q)[beyond]))
    crossings = q[beyond][changes]
    marked = sorted(dot for dot in dots(right) if dot[0] > 1.01)
    assert [filled for _, _, filled in marked] == [False, True]
    np.testing.assert_allclose([x for x, _, _ in marked], crossings, atol=0.02)
    assert np.all(gentle[beyond] < q[beyond])


@pytest.mark.parametrize("name", ["fig6", "fig7", "fig12", "fig13"])
def test_correlation_maps_mark_where_they_cross(name: str, figures: dict[str, Figure]) -> None:
    for panel in figures[name].axes:
        crossings = []
        for rho, r in curves(panel):
            assert r[-1] == pytest.approx(1.0)
            inner = rho < 0.999
            excess = (r - rho)[inner]
            if np.max(abs(excess)) < 1e-9:  # the soft threshold at τ = 0 is the identity
                continue
            crossings += list(rho[inner][np.flatnonzero(np.diff(np.sign(excess)))])
        np.testing.assert_allclose([x for x, _, _ in dots(panel)], crossings, atol=0.02)
        assert all(x == y for x, y, _ in dots(panel))


def test_chaotic_side_is_left_out_where_it_does_not_exist(figures: dict[str, Figure]) -> None:
    # ReLU at σ_w² = 1.2·2: V(1) = 1.2 before any bias, so q* = 1 cannot be.
    panels = figures["fig6"].axes
    assert [len(curves(panel)) for panel in panels] == [2, 3, 3, 3]
    assert "no" in panels[0].texts[0].get_text()
    assert not panels[1].texts


def test_edge_of_chaos_of_relu_is_twice_that_of_soft_threshold(figures: dict[str, Figure]) -> None:
    left, right = figures["fig8"].axes
    for (b_left, w_left), (b_right, w_right) in zip(curves(left), curves(right), strict=True):
        np.testing.assert_allclose(w_left, 2.0 * w_right, rtol=1e-10)
        np.testing.assert_allclose(b_left, b_right, rtol=1e-8, atol=1e-12)
    # q* = 1: σ_w² = 1/(1 − Φ(τ))
    for (_, w2, _), threshold in zip(dots(left), (0.25, 0.5, 1.0, 1.5), strict=True):
        assert w2 == pytest.approx(1.0 / norm.sf(threshold))


@pytest.mark.parametrize("name", ["fig10", "fig11"])
def test_clipped_grids_share_the_fixed_point(name: str, figures: dict[str, Figure]) -> None:
    clips, thresholds = (1.0, 1.5, 2.0), (0.0, 0.25, 0.5, 1.0)
    places = [(m, tau) for m in clips for tau in thresholds]
    for panel, (clip, threshold) in zip(figures[name].axes, places, strict=True):
        for q, v in curves(panel):
            assert v[np.argmin(abs(q - 1.0))] == pytest.approx(1.0)
        assert (1.0, 1.0, True) in dots(panel)
        # On the Edge of Chaos, eq. 13 over χ₁: V′(1) = 1 − m n(τ + m)/(Φ(τ + m) − Φ(τ))
        q, v = curves(panel)[1]
        mass = norm.cdf(threshold + clip) - norm.cdf(threshold)
        assert slope_at(q, v, 1.0) == pytest.approx(1.0 - clip * norm.pdf(threshold + clip) / mass, abs=2e-3)
