import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hush


def test_share_of_zeros_by_hand() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.9), nn.Linear(4, 2), hush.nn.CReLU(0.1, 1.0)).train()
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(x, torch.zeros(50)), batch_size=8)
    result = hush.sparsity(model, loader)
    with torch.no_grad():
        hidden = model[1](model[0](x))
        last = model[4](model[3](hidden))
    shares = [float((h == 0).double().mean()) for h in (hidden, last)]
    assert list(result.layers) == ["1", "4"]
    assert list(result.layers.values()) == pytest.approx(shares)
    assert result.mean == pytest.approx(sum(shares) / 2)
    assert result.inputs == 50
    assert model.training
    assert result == hush.sparsity(model, x)
    assert "over 50 inputs" in str(result)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="no activation module to read"):
        hush.sparsity(nn.Linear(2, 2), torch.randn(2, 2))
    with pytest.raises(ValueError, match="the loader gave no inputs"):
        hush.sparsity(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), [])
