import torch

from hush.train.batches import EpochBatches


def test_each_image_once_an_epoch_in_an_order_of_its_own() -> None:
    batches = EpochBatches(103, 10, seed=1)
    first = torch.cat(list(batches))
    batches.set_epoch(1)
    second = torch.cat(list(batches))
    assert len(batches) == len(list(batches)) == 11
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(103))
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.cat(list(EpochBatches(103, 10, seed=2))))
    batches.set_epoch(0)
    assert torch.equal(first, torch.cat(list(batches)))


def test_processes_share_every_batch() -> None:
    whole = list(EpochBatches(102, 10, seed=1))
    shares = [list(EpochBatches(102, 10, 1, rank, 2)) for rank in range(2)]
    for batch, one, two in zip(whole, *shares, strict=True):
        assert len(one) == len(two)
        assert sorted(batch.tolist()) == sorted([*one.tolist(), *two.tolist()])


def test_what_does_not_divide_is_left_out() -> None:
    shares = [torch.cat(list(EpochBatches(103, 10, 1, rank, 2))) for rank in range(2)]
    assert [len(share) for share in shares] == [51, 51]
