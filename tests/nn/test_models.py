import pytest
import torch
from torch import nn

import hush

DESIGN = hush.design("crelu", 0.85, clip=1.1)


def test_mlp_is_plain() -> None:
    model = hush.nn.mlp(64, 10, DESIGN, width=30, depth=3)
    assert list(model.state_dict())[:2] == ["layer1.weight", "layer1.bias"]
    assert list(model.state_dict())[-2:] == ["head.weight", "head.bias"]
    assert len(model.state_dict()) == 8
    assert sum(isinstance(module, hush.nn.CReLU) for module in model) == 3
    assert model(torch.randn(5, 8, 8)).shape == (5, 10)


def test_sizes_come_from_the_design() -> None:
    design = hush.design("cst", 0.7, v_prime=0.5, width=20, depth=4)
    model = hush.nn.mlp(6, 2, design)
    assert model.layer4.weight.shape == (20, 20)
    assert not hasattr(model, "layer5")


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize("kernel", [3, 5])
def test_cnn_keeps_the_size(dims: int, padding: str, kernel: int) -> None:
    model = hush.nn.cnn(3, 10, DESIGN, channels=8, depth=3, kernel=kernel, dims=dims, padding=padding)
    x = torch.randn(2, 3, *[8] * dims)
    assert model(x).shape == (2, 10)
    assert model.layer1(x).shape == (2, 8, *[8] * dims)
    assert all(m.padding_mode == padding for m in model if isinstance(m, (nn.Conv1d, nn.Conv2d)))


def test_circular_padding_commutes_with_shifts() -> None:
    model = hush.nn.cnn(1, 4, DESIGN, channels=8, depth=3, dims=1)
    x = torch.randn(2, 1, 12)
    # Averaged over all positions, a shifted input gives the same output.
    torch.testing.assert_close(model(x.roll(5, -1)), model(x))


def test_head_without_pooling_reads_every_position() -> None:
    model = hush.nn.cnn(1, 10, DESIGN, channels=4, depth=2, pool="none", positions=36)
    assert model.head.in_features == 4 * 36
    assert model(torch.randn(2, 1, 6, 6)).shape == (2, 10)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: hush.nn.mlp(64, 10, DESIGN), "width is missing: give it here"),
        (lambda: hush.nn.mlp(0, 10, DESIGN, width=3, depth=3), "in_features must be at least 1, got 0"),
        (lambda: hush.nn.cnn(1, 10, DESIGN, channels=4, depth=2, kernel=4), "kernel must be odd"),
        (lambda: hush.nn.cnn(1, 10, DESIGN, channels=4, depth=2, dims=3), "dims must be 1 or 2, got 3"),
        (lambda: hush.nn.cnn(1, 10, DESIGN, channels=4, depth=2, padding="same"), "padding must be"),
        (lambda: hush.nn.cnn(1, 10, DESIGN, channels=4, depth=2, pool="none"), "positions goes with pool='none'"),
    ],
)
def test_bad_values(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_checkpoint_round_trip(kind: str, tmp_path) -> None:
    if kind == "mlp":
        model, x = hush.nn.mlp(64, 10, DESIGN, width=20, depth=3), torch.randn(4, 64)
    else:
        model = hush.nn.cnn(1, 10, DESIGN, channels=6, depth=2, kernel=5, padding="zeros", pool="none", positions=64)
        x = torch.randn(4, 1, 8, 8)
    hush.nn.checkpoint.save(model, DESIGN, tmp_path / "checkpoint")
    loaded, design = hush.nn.checkpoint.load(tmp_path)
    assert design == DESIGN
    assert torch.equal(loaded(x), model(x))


GOOD = {"kind": "mlp", "depth": 2, "width": 20, "in_features": 64, "out_features": 10}


def saved(**parts: object) -> dict[str, object]:
    return {"design": DESIGN.to_json(), "network": GOOD, "state_dict": {}, **parts}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is damaged, or a file of another kind"),
        (b"hello", "it is damaged, or a file of another kind"),
        (b'{"design": 1}', "it is damaged, or a file of another kind"),
        (b"PK\x03\x04 no archive", "it is damaged, or a file of another kind"),
        (nn.Linear(2, 2), "it is damaged, or a file of another kind"),
        (torch.zeros(3), "it lacks the design, the network or the state_dict"),
        ([1, 2], "it lacks the design, the network or the state_dict"),
        ({"state_dict": {}}, "it lacks the design, the network or the state_dict"),
        (saved(design=3), "this is not a hush design"),
        (saved(design="{}"), "this is not a hush design"),
        (saved(network=[1]), "its network is none of mlp, cnn"),
        (saved(network={"kind": "rnn"}), "its network is none of mlp, cnn"),
        (saved(network={**GOOD, "depth": -1}), "depth must be at least 1, got -1"),
        (saved(network={**GOOD, "colour": 1}), "unexpected keyword argument 'colour'"),
        (saved(), "loading state_dict"),
        (saved(state_dict=None), "state_dict"),
    ],
)
def test_checkpoint_refuses_other_files(content: object, reason: str, tmp_path) -> None:
    if isinstance(content, bytes):
        (tmp_path / "other.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=f"other.pt is not a checkpoint that hush.*wrote: .*{reason}"):
        hush.nn.checkpoint.load(tmp_path / "other.pt")


def test_checkpoint_that_is_not_there_or_cut_short(tmp_path) -> None:
    with pytest.raises(ValueError, match="there is no checkpoint at"):
        hush.nn.checkpoint.load(tmp_path / "missing.pt")
    with pytest.raises(ValueError, match="there is no checkpoint at"):
        hush.nn.checkpoint.load(tmp_path)
    whole = tmp_path / "whole.pt"
    hush.nn.checkpoint.save(hush.nn.mlp(64, 10, DESIGN, width=20, depth=3), DESIGN, whole)
    whole.write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(ValueError, match="it is damaged"):
        hush.nn.checkpoint.load(whole)


def test_only_networks_of_hush_can_be_saved_so(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"only networks made by hush\.nn\.mlp"):
        hush.nn.checkpoint.save(nn.Sequential(nn.Linear(2, 2)), DESIGN, tmp_path / "x.pt")
