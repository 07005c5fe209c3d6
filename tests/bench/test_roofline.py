"""The machine's limits: in the order that every machine has them, and above what anything else measures."""

import pytest
import torch

from hush.bench import Roofline, measure_roofline
from hush.sparse import _native


def test_the_roof_is_the_lower_of_two_limits() -> None:
    roofline = Roofline(1, 100.0, {"L1": 400.0, "memory": 20.0})
    assert roofline.roof(1.0) == 20.0
    assert roofline.roof(10.0) == 100.0
    assert roofline.roof(0.1, "L1") == 40.0


def test_caches_are_faster_than_memory_and_nothing_is_impossible() -> None:
    found = measure_roofline(1)
    assert found.gb_s["L1"] > found.gb_s["memory"] > 0.5
    # 16 lanes, two units, two operations at 6 GHz is more than any x86 of today.
    assert 0.5 < found.gflops < 400.0
    assert "GFLOP/s" in str(found)


def test_reading_reads_all_of_it() -> None:
    data = torch.arange(512, dtype=torch.float32)
    assert _native.read(data, 3) == pytest.approx(3 * float(data.sum()))
    data[511] += 1e6
    assert _native.read(data, 1) == pytest.approx(float(data.sum()))
    with pytest.raises(ValueError, match="100 numbers to read; it must be a multiple of 256"):
        _native.read(torch.ones(100), 1)


def test_multiplying_converges_to_where_its_map_rests() -> None:
    # x ← 0.999 x + 0.001 goes to 1 in each lane of each of the 12 chains.
    lanes = _native.flops_a_round() // 24
    assert _native.multiply(20_000) == pytest.approx(12 * lanes, rel=1e-3)
