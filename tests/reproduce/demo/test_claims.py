"""Every claim can fail, and says so with its figures."""

import dataclasses
from typing import Any

import pytest

from hush.reproduce.demo import Claim, claims_of
from tests.reproduce.demo.rows import good_rows, good_steps

ACCURACY, HELD, DRIFT, EXPLOSION, VERDICTS, SPEED = range(6)


def claims(network: str = "dense", accelerated_ms: float = 10.0, **changes: Any) -> tuple[Claim, ...]:
    rows = good_rows()
    rows[network] = dataclasses.replace(rows[network], **changes)
    return claims_of(list(rows.values()), good_steps(accelerated_ms), 0.95, 360)


def test_all_hold_where_all_is_well() -> None:
    assert all(claim.holds for claim in claims())


@pytest.mark.parametrize(
    ("network", "changes", "fails"),
    [
        ("held", {"test_accuracies": (0.974, 0.974)}, ACCURACY),  # 1.1 points below 0.985
        ("held", {"layer_zeros": ((0.939, 0.95), (0.949, 0.951))}, HELD),
        ("held", {"layer_zeros": ((0.949, 0.95), (0.949, 0.961))}, HELD),
        ("drifting", {"zeros": (0.945, 0.945)}, DRIFT),
        ("exploding", {"came_apart": (True, False)}, EXPLOSION),
        ("exploding", {"predicted_trains": True}, EXPLOSION),
        ("dense", {"went_as_predicted": (True, False)}, VERDICTS),
        ("drifting", {"went_as_predicted": (True, None)}, VERDICTS),
        ("dense", {"accelerated_ms": 19.5}, SPEED),
    ],
)
def test_one_that_does_not_hold_is_the_only_one_to_say_so(network: str, changes: dict[str, Any], fails: int) -> None:
    assert [i for i, claim in enumerate(claims(network, **changes)) if not claim.holds] == [fails]


@pytest.mark.parametrize("below", [0.985, 0.975])
def test_as_accurate_includes_the_limit(below: float) -> None:
    assert claims("held", test_accuracies=(below, below))[ACCURACY].holds


def test_the_figures_are_told() -> None:
    told = [claim.measured for claim in claims("held", test_accuracies=(0.97, 0.96))]
    assert told[ACCURACY] == "0.965 beside 0.985 (means of 2 seeds, 360 test images): 2.0 points below"
    assert told[HELD] == "0.948 to 0.952 over 30 layers on the test set"
    assert told[DRIFT] == "0.925 on average, 0.900 in the lowest layer"
    assert told[EXPLOSION] == (
        "diverged: the loss is nan at step 1, layer 6; "
        "at the first step its gradient grows up to 10^10.1-fold backwards"
    )
    assert told[VERDICTS] == "in 8 of 8 runs"
    assert told[SPEED] == "2.00 times: 10.0 ms accelerated, 22.0 ms on torch, 20.0 ms for ReLU; 60 of 62 Linears fused"


def test_runs_that_ended_too_early_are_counted() -> None:
    assert claims("held", went_as_predicted=(None, None))[VERDICTS].measured == (
        "in 6 of 8 runs, 2 ended too early to tell"
    )


def test_a_gradient_that_was_not_recorded_is_not_told() -> None:
    nothing = (float("nan"), float("nan"))
    assert "gradient" not in claims("exploding", gradient_growth=nothing)[EXPLOSION].measured
