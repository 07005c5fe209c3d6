"""Branch scales by rule."""

import pytest

from hush.theory import resolve_branch_scale


def test_rules() -> None:
    assert resolve_branch_scale(0.3, None) == 0.3
    assert resolve_branch_scale("1/sqrt(depth)", 16) == 0.25
    assert resolve_branch_scale("1/depth", 16) == 0.0625
    assert resolve_branch_scale("learned", 16) == 0.25


@pytest.mark.parametrize(
    ("scale", "depth", "said"),
    [
        ("1/depht", 4, "must be a number or one of 1/sqrt"),
        ("learned", None, "depends on the depth"),
        (-1.0, 4, "finite and not negative, got -1"),
        (float("nan"), 4, "finite and not negative, got nan"),
    ],
)
def test_refusals(scale, depth, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        resolve_branch_scale(scale, depth)
