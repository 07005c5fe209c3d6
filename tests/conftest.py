import pytest
import torch

# Small tensors on a shared machine: threads cost more than they bring.
torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
