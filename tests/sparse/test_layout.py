"""Large pages change where weights lie, and nothing else."""

import copy
import gc
import io
import itertools
import mmap
import weakref

import pytest
import torch
from torch import nn

from hush.sparse import accelerate, layout

SHAPES = [(513, 1024), (7, 513), (0, 7), (1, 1)]  # 2.1 MB together; odd sizes, an empty one


def test_values_layout_and_storages() -> None:
    weights = [torch.randn(shape) for shape in SHAPES]
    placed = layout.on_large_pages(weights)
    for w, p in zip(weights, placed, strict=True):
        assert torch.equal(w, p)
        assert p.numel() == 0 or p.t().is_contiguous()
        assert p.untyped_storage().nbytes() == 4 * p.numel()  # saving one saves no other
        assert p.data_ptr() % 64 == 0
    spans = sorted((p.data_ptr(), p.data_ptr() + 4 * p.numel()) for p in placed if p.numel())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_the_stretch_begins_on_a_large_page_and_ends_with_its_last_tensor() -> None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        pytest.skip("this system has no large pages to ask for")
    first, second = layout.on_large_pages([torch.zeros(600, 600), torch.ones(600, 600)])
    assert first.data_ptr() % (2 << 20) == 0
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    assert float(second.sum()) == 360_000.0


@pytest.mark.parametrize("weights", [[torch.randn(8, 8)], [torch.randn(600, 900).double()]])
def test_what_is_small_or_of_another_kind_is_laid_out_by_torch(weights: list[torch.Tensor]) -> None:
    (placed,) = layout.on_large_pages(weights)
    assert placed.dtype == weights[0].dtype
    assert torch.equal(placed, weights[0])
    assert placed.t().is_contiguous()


def test_a_model_on_large_pages_is_saved_copied_and_trained() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 600))
    before = {name: p.clone() for name, p in model.state_dict().items()}
    accelerate(model, layout="input_major")
    file = io.BytesIO()
    torch.save(model[1].weight, file)
    assert file.tell() < 1.1 * 4 * 600 * 600  # its own part, not the whole stretch
    twin = copy.deepcopy(model)
    assert twin[1].weight.data_ptr() != model[1].weight.data_ptr()
    for name, p in twin.state_dict().items():
        assert torch.equal(p, before[name])
    model(torch.randn(3, 600)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert not torch.equal(model[1].weight, before["1.weight"])
    assert torch.equal(twin[1].weight, before["1.weight"])
