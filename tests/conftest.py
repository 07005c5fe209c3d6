import signal

import pytest
import torch

# Small tensors on a shared machine: threads cost more than they bring.
torch.set_num_threads(1)

# A shell's `make test &` leaves Ctrl-C ignored, here and in every command that a test starts and means to stop.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
