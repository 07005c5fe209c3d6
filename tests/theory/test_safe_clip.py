"""The search for the largest safe clip."""

import math

import pytest

from hush.theory import (
    design,
    largest_safe_clip,
    safe_clip,
)


class TestSafeClip:
    @pytest.mark.parametrize("name", ["crelu", "cst"])
    @pytest.mark.parametrize("odds", [0.01, 0.1])
    def test_it_is_safe_and_a_little_more_is_not(self, name: str, odds: float) -> None:
        clip = largest_safe_clip(name, 0.85, 300, 60, odds)
        at = design(name, 0.85, clip=clip, width=300, depth=60).odds
        beyond = design(name, 0.85, clip=1.05 * clip, width=300, depth=60).odds
        assert at is not None
        assert beyond is not None
        assert at.explode <= odds < beyond.explode

    @pytest.mark.parametrize("sizes", [(100, 30), (300, 100), (50, 60)])
    @pytest.mark.parametrize(("name", "sparsity"), [("crelu", 0.7), ("crelu", 0.95), ("cst", 0.85)])
    def test_following_only_the_chains_in_danger_finds_the_same(
        self, name: str, sparsity: float, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clip = largest_safe_clip(name, sparsity, *sizes)
        monkeypatch.setattr(safe_clip, "_MARGIN", math.inf)
        assert largest_safe_clip(name, sparsity, *sizes) == clip

    def test_it_scales_with_q_star(self) -> None:
        clip = largest_safe_clip("crelu", 0.85, 300, 30)
        assert largest_safe_clip("crelu", 0.85, 300, 30, q_star=4.0) == pytest.approx(2.0 * clip)

    def test_deeper_means_smaller(self) -> None:
        clips = [largest_safe_clip("crelu", 0.85, 300, depth) for depth in (30, 60, 100)]
        assert clips == sorted(clips, reverse=True)

    def test_a_shallow_network_hardly_needs_one(self) -> None:
        assert largest_safe_clip("crelu", 0.6, 1000, 3) == pytest.approx(5.0)

    def test_where_none_is_safe_it_says_so(self) -> None:
        with pytest.raises(ValueError, match="no clip keeps the odds of exploding gradients within 1e-06 .* width 20"):
            largest_safe_clip("cst", 0.9, 20, 30, 1e-6)

    @pytest.mark.parametrize("odds", [0.0, 1.0, -1.0, math.nan])
    def test_odds_out_of_range(self, odds: float) -> None:
        with pytest.raises(ValueError, match=f"odds must lie strictly between 0 and 1, got {odds}"):
            largest_safe_clip("crelu", 0.85, 300, 30, odds)
