"""The registry: what it knows, what it refuses, and that its entries say of φ what φ is."""

import math
from collections.abc import Iterator

import pytest

from hush import theory
from hush.theory import (
    ActivationEntry,
    Kernel,
    activation_names,
    clipped_names,
    crelu,
    entries,
    entry_of,
    one_sided_threshold,
    register,
    relu,
    shifted_relu,
    unregister,
)

DESIGNED = [entry for entry in entries() if entry.designable]


@pytest.fixture
def mine() -> Iterator[ActivationEntry]:
    entry = register(
        ActivationEntry("mine", shifted_relu, ("threshold",), threshold_at=one_sided_threshold, label="Mine")
    )
    yield entry
    unregister("mine")


def test_the_names() -> None:
    paper = ("shifted_relu", "soft_threshold", "crelu", "cst")
    relative = ("relative_relu", "relative_soft_threshold", "relative_crelu", "relative_cst")
    assert activation_names() == theory.ACTIVATIONS == (*paper, *relative)
    assert clipped_names() == theory.CLIPPED == ("crelu", "cst", "relative_crelu", "relative_cst")


@pytest.mark.parametrize("entry", DESIGNED, ids=lambda entry: entry.name)
def test_entries_say_what_their_phi_is(entry: ActivationEntry) -> None:
    phi = entry.construct(*(1.1,) * len(entry.parameters))
    assert phi.name == entry.name
    assert phi.is_odd == entry.odd
    # A clip relative to the layer's size bounds nothing but the size.
    assert math.isfinite(phi.bound()) == (entry.clipped and not entry.relative)
    assert entry.threshold_at is not None
    at_lowest = entry.construct(*(0.0, 1.1)[: len(entry.parameters)])
    assert at_lowest.sparsity(1.0) == pytest.approx(entry.lowest_sparsity)
    for sparsity in (0.6, 0.95):
        values = (entry.threshold_at(sparsity), 1.1)[: len(entry.parameters)]
        assert entry.construct(*values).sparsity(1.0) == pytest.approx(sparsity)
    assert entry.twin is not None
    assert entry_of(entry.twin).twin == entry.name
    assert entry_of(entry.twin).clipped != entry.clipped
    kernel = Kernel.ODD if entry.odd else Kernel.ONE_SIDED
    assert entry.kernel == (None if entry.relative else kernel)


def test_a_new_entry_is_known_at_once(mine: ActivationEntry) -> None:
    assert activation_names()[-1] == theory.ACTIVATIONS[-1] == "mine"
    assert theory.activation("mine", 1.0) == shifted_relu(1.0)
    assert theory.threshold_from_sparsity("mine", 0.85) == theory.threshold_from_sparsity("crelu", 0.85)
    assert mine.title == "mine"
    with pytest.raises(ValueError, match="mine has no clip, got clip = 1.0."):
        theory.activation("mine", 1.0, 1.0)


def test_without_a_closed_form_the_slope_of_the_clip_is_asked_of_phi() -> None:
    register(ActivationEntry("plain", crelu, ("threshold", "clip"), threshold_at=one_sided_threshold))
    try:
        clip = theory.clip_from_slope("plain", 1.0, 0.7, 2.0)
        assert clip == pytest.approx(theory.clip_from_slope("crelu", 1.0, 0.7, 2.0), rel=1e-12)
        ours = theory.slope_and_curvature_of_clip("plain", 1.0, 0.9, 2.0)
        assert ours == pytest.approx(theory.slope_and_curvature_of_clip("crelu", 1.0, 0.9, 2.0), rel=1e-12)
    finally:
        unregister("plain")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: register(ActivationEntry("crelu", crelu)), "called crelu is registered already"),
        (lambda: ActivationEntry("two words", relu), "must be an identifier, such as crelu, got 'two words'"),
        (
            lambda: ActivationEntry("slanted", relu, ("slope",), threshold_at=one_sided_threshold),
            "can be designed only with the parameters threshold or threshold and clip, got slope",
        ),
        (
            lambda: ActivationEntry("slanted", relu, ("slope",), kernel=Kernel.ONE_SIDED),
            "from a threshold and a clip alone, got slope",
        ),
        (lambda: unregister("nothing"), "unknown activation 'nothing'; hush designs shifted_relu"),
        (lambda: entry_of("gelu", designable=True), "unknown activation 'gelu'"),
    ],
)
def test_what_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
