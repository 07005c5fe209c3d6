"""IDX files, well formed and not."""

import numpy as np
import pytest

from hush.data.errors import DataError
from hush.data.idx import read_idx
from tests.data.samples import idx

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_what_was_written_is_read_without_a_copy() -> None:
    content = bytearray(idx(IMAGES))
    images = read_idx(content, 3, "images")
    np.testing.assert_array_equal(images, IMAGES)
    content[16] = 99
    assert images[0, 0, 0] == 99


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "magic number 0x,"),
        (b"\x00\x00\x0d\x03" + idx(IMAGES)[4:], "magic number 0x00000d03, an IDX file of its kind 0x00000803"),
        (idx(IMAGES[0, 0]), "magic number 0x00000801"),
        (idx(IMAGES)[:9], "ends inside its IDX header"),
        (idx(IMAGES)[:-1], "promises 24 values in its IDX header and has 23"),
        (idx(IMAGES) + b"\x00", "promises 24 values in its IDX header and has 25"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "promises 79228162458924105385300197375 values"),
    ],
)
def test_a_malformed_file_is_one_sentence(content: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_idx(content, 3, "images")
