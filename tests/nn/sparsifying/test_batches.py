"""What `batches` may be, and what is made of it."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hush.nn.sparsifying.batches import inputs_in, read_batches

X, Y = torch.randn(6, 4), torch.zeros(6, dtype=torch.int64)


class Two(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x


ONE = nn.Sequential(nn.Linear(4, 2))


def test_one_batch_alone() -> None:
    assert read_batches(ONE, X, 9) == ([(X,)], False)
    assert read_batches(Two(), {"x": X, "mask": None}, 9)[0] == [{"x": X, "mask": None}]


def test_a_loader_gives_inputs_and_targets() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=3)
    for model in (ONE, Two()):  # the targets are no mask
        found, more = read_batches(model, loader, 9)
        assert not more
        assert [len(arguments) for arguments in found] == [1, 1]
        assert torch.equal(torch.cat([arguments[0] for arguments in found]), X)


def test_a_tuple_is_the_arguments_where_the_forward_takes_them() -> None:
    assert read_batches(Two(), [(X, Y)], 9)[0] == [(X, Y)]
    assert read_batches(ONE, [(X, Y)], 9)[0] == [(X,)]


def test_no_more_than_so_many_are_read() -> None:
    endless = iter(lambda: X, None)
    found, more = read_batches(ONE, endless, 3)
    assert (len(found), more) == (3, True)
    assert inputs_in(found[0]) == 6


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "batches gave nothing"),
        ((X, X), "batches is a tuple, which may be several batches or the arguments of one"),
        (3, "batches must be a tensor or give tensors, tuples or mappings, got int"),
        ([X[:0]], r"hold at least one input; got a tensor of shape \(0, 4\)"),
        (["text"], "a batch must be a tensor.*got str"),
        ([[]], "got a list of nothing"),
    ],
)
def test_refusals(batches: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_batches(ONE, batches, 9)
