"""Designs for blocks on a residual stream."""

import json
import math

import pytest

from hush.theory import Chain, Design, FeedForward, Residual, design
from hush.theory.stream_designing import BLOCKS

SIZE = {"width": 64, "depth": 12}


def test_a_block_behind_a_norm_is_on_the_edge_at_q_star() -> None:
    made = design("crelu", 0.9, **SIZE, block="feedforward", norm="rms", q_star=2.0, hidden=96)
    block = made.block()
    assert isinstance(block, FeedForward)
    assert block.preactivation_variance(7.0) == pytest.approx(2.0)
    assert block.sparsity(7.0) == pytest.approx(0.9, abs=1e-12)
    assert block.branch_gain(1.0) == pytest.approx(1.0)
    assert made.sigma_out2 == pytest.approx(0.5 / made.phi().slope_moment(1, 2.0))
    assert (made.hidden, made.branch_scale, made.clip) == (96, pytest.approx(12**-0.5), pytest.approx(math.sqrt(2.0)))
    assert made.trains
    assert made.keeps_sparsity
    assert "it should train" in made.verdict


def test_a_gated_branch_has_gain_one_at_a_stream_of_one() -> None:
    made = design("soft_threshold", 0.9, **SIZE, block="gated", norm="layer", branch_scale="learned")
    assert made.block().branch_gain(1.0) == pytest.approx(1.0)
    assert made.sigma_up2 == 1.0
    assert made.branch_scale == pytest.approx(12**-0.5)


@pytest.mark.parametrize("kind", ["residual", "feedforward", "gated"])
def test_without_a_norm_the_middle_block_has_q_star(kind: str) -> None:
    made = design("crelu", 0.8, **SIZE, block=kind)
    block, p = made.block(), made.input_variance
    for _ in range(6):
        p = block.variance(p)
    assert block.preactivation_variance(p) == pytest.approx(1.0, rel=1e-6)
    assert "q grows with the stream" in made.verdict


def test_an_unscaled_branch_explodes_and_says_so() -> None:
    made = design("shifted_relu", 0.9, width=64, depth=32, block="feedforward", branch_scale=1.0)
    assert made.odds is not None
    assert made.odds.explode > 0.4
    assert not made.trains
    assert "take branch_scale = '1/sqrt(depth)'" in made.verdict


def test_a_growing_stream_loses_sparsity_and_says_so() -> None:
    made = design("shifted_relu", 0.85, width=64, depth=12, block="residual", branch_scale=0.6)
    assert made.odds is not None
    assert made.odds.sparsity_lost > 0.5
    assert not made.keeps_sparsity
    behind = design("shifted_relu", 0.85, width=64, depth=12, block="residual", branch_scale=0.6, norm="rms")
    assert behind.odds is not None
    assert behind.odds.sparsity_lost == 0.0


def test_inputs_that_merge_are_noticed() -> None:
    # A norm behind the sum and a branch far larger than the stream: nearly a plain chain of ReLUs without a bias.
    made = design("relu", width=64, depth=300, block="residual", norm="rms", post_norm=True, branch_scale=10.0)
    assert made.odds is not None
    assert made.odds.indistinguishable > 0.5
    gentle = design("relu", width=64, depth=12, block="residual", norm="rms", post_norm=True)
    assert gentle.separation is not None
    assert gentle.separation > 0.1


@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "relu"])
def test_activations_without_a_threshold(name: str) -> None:
    made = design(name, **SIZE, block="feedforward", norm="rms")
    assert made.sparsity == (0.5 if name == "relu" else 0.0)
    assert made.phi().name == name
    assert made.trains
    assert Design.from_json(made.to_json()) == made
    assert design(name, width=64, depth=3).block_name == "chain"


@pytest.mark.parametrize("kind", ["residual", "feedforward", "gated"])
def test_json_and_print(kind: str) -> None:
    made = design("cst", 0.85, **SIZE, block=kind, norm="rms", clip=0.8)
    assert Design.from_json(made.to_json()) == made
    assert made.block() == Design.from_json(made.to_json()).block()
    assert kind in str(made)
    assert "odds that sparsity is lost" in str(made)
    with pytest.raises(ValueError, match=f"for {kind} blocks, not for a plain chain"):
        made.chain()
    without_size = design("cst", 0.85, block=kind, norm="rms", branch_scale=0.2)
    assert without_size.trains is None
    assert "Give width and depth" in without_size.verdict


def test_a_chain_says_what_it_always_said() -> None:
    made = design("crelu", 0.85, v_prime=0.7, width=64, depth=12)
    assert isinstance(made.block(), Chain)
    fields = json.loads(made.to_json())
    assert "block_name" not in fields
    assert set(fields["odds"]) == {"explode", "vanish", "indistinguishable"}
    assert design("crelu", 0.85, v_prime=0.7, width=64, depth=12, block="chain") == made


def test_one_matrix_reads_the_normalised_stream_itself() -> None:
    made = design("crelu", 0.9, **SIZE, block="residual", norm="rms")
    assert isinstance(made.block(), Residual)
    assert (made.sigma_in2, made.hidden) == (None, None)
    assert made.block().preactivation_variance(5.0) == 1.0


@pytest.mark.parametrize("norm", ["rms", "layer", None])
@pytest.mark.parametrize("block", BLOCKS)
def test_q_star_is_a_unit(block: str, norm: str | None) -> None:
    # φ(√q*·h) = √q*·φ₁(h) for thresholds and clips in units of √q*, so that the two designs are one network.
    one, large = (design("crelu", 0.9, **SIZE, block=block, norm=norm, q_star=q) for q in (1.0, 100.0))
    assert large.threshold == pytest.approx(10.0 * one.threshold)
    assert large.block().preactivation_variance(large.stream_start) == pytest.approx(
        100.0 * one.block().preactivation_variance(one.stream_start), rel=1e-9
    )
    assert (large.chi1, large.separation) == (
        pytest.approx(one.chi1, rel=1e-9),
        pytest.approx(one.separation, rel=1e-5),
    )
    assert large.gain_log10.median == pytest.approx(one.gain_log10.median, abs=1e-5)
    assert large.odds == one.odds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"block": "blob"}, "block must be one of chain, residual, feedforward, gated, got 'blob'"),
        ({"norm": "rms"}, "norm = 'rms' is for blocks on a residual stream"),
        ({"hidden": 9}, "hidden = 9 is for blocks on a residual stream"),
        ({"block": "residual", "norm": "batch"}, "norm must be None, 'rms' or 'layer', got 'batch'"),
        ({"block": "residual", "norm": "rms", "post_norm": True, "q_star": 2.0}, "q = 1; got q_star = 2"),
        ({"block": "residual", "hidden": 9}, "one matrix and no hidden units"),
        ({"block": "feedforward", "hidden": 0}, "hidden must be a whole number"),
        ({"block": "feedforward", "v_prime": 0.7}, "residual stream has none"),
        ({"block": "feedforward", "post_norm": True}, "post_norm needs a norm"),
        ({"block": "feedforward", "branch_scale": "half"}, "branch_scale must be a number or one of"),
        ({"block": "feedforward", "stream_start": -1.0}, "stream_start must be positive"),
        ({"block": "feedforward", "odds": 0.0}, "odds must lie strictly between 0 and 1"),
        ({"block": "feedforward", "depth": None}, "width and depth go together"),
        ({"block": "feedforward", "sparsity": None}, "crelu needs a sparsity"),
        ({"block": "feedforward", "activation": "gelu"}, "gelu has no threshold to choose"),
        ({"block": "feedforward", "activation": "leaky_relu"}, "unknown activation 'leaky_relu'"),
    ],
)
def test_refusals(arguments, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        design(**{"activation": "crelu", "sparsity": 0.9, **SIZE, **arguments})


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("scale", [1.0, "1/sqrt(depth)"])
@pytest.mark.parametrize("depth", [30, 100])
def test_without_a_norm_the_middle_block_has_the_q_of_the_design(block: str, scale: float | str, depth: int) -> None:
    made = design("crelu", 0.9, depth=depth, block=block, branch_scale=scale, q_star=2.0)
    designed, p = made.block(), made.input_variance
    for _ in range(depth // 2):
        p = designed.variance(p)
    assert designed.preactivation_variance(p) == pytest.approx(2.0, rel=1e-9)


def test_a_stream_that_outgrows_all_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="the stream grows beyond all numbers"):
        design("shifted_relu", 0.5, depth=200, block="residual", branch_scale=1e3)
