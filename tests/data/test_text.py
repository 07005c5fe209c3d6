import hashlib
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
import torch

from hush.data import DataError, load, load_text
from hush.data.python_sources import describe_text, python_documents, split_of
from hush.data.text import spread_windows, windows_at


def library(folder: Path) -> Path:
    """A standard library of a few files, a megabyte of them."""
    texts = {
        "a.py": b"a" * 600_000,
        "package/b.py": b"b" * 500_000,
        "copy_of_a.py": b"a" * 600_000,
        "test/test_a.py": b"tests",
        "site-packages/c.py": b"installed",
        "encodings/cp1.py": b"table",
        "_sysconfigdata_x.py": b"machine",
        "pydoc_data/topics.py": b"topics = {'assert': 'The statement\\n', 'for': 'The loop\\n'}\n",
        "notes.txt": b"no source",
    }
    for path, content in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def test_what_belongs_to_the_text(tmp_path: Path) -> None:
    documents = python_documents(library(tmp_path))
    assert [document.path for document in documents] == [
        "a.py",
        "package/b.py",
        "pydoc_data/topics/assert",
        "pydoc_data/topics/for",
    ]
    assert documents[2].content == b"The statement\n"
    described = describe_text(documents)
    assert described.files == 4
    assert described.train + described.validation + described.test == 1_100_000 + 14 + 9
    changed = describe_text(documents[1:])
    assert changed.fingerprint != described.fingerprint


def test_a_python_without_sources_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"short")
    with pytest.raises(DataError, match="only 5 bytes of sources"):
        python_documents(tmp_path)


def test_the_text_of_this_python_is_its_sources() -> None:
    text = load_text()
    folder = Path(sysconfig.get_paths()["stdlib"])
    assert split_of("ast.py") == "train"
    whole = text.train.numpy().tobytes()
    assert (folder / "ast.py").read_bytes() in whole
    assert b'The "assert" statement' in b"".join(
        part.numpy().tobytes() for part in (text.train, text.validation, text.test)
    )
    described = text.description
    assert (described.train, described.validation, described.test) == (
        len(text.train),
        len(text.validation),
        len(text.test),
    )
    assert all(size > 100_000 for size in (described.train, described.validation, described.test))
    assert f"{described.files} files" in str(described)


def test_the_split_is_fixed_by_the_path() -> None:
    # Computed by hand from the first eight bytes of the hash of the path.
    for path in ("os.py", "json/decoder.py", "typing.py"):
        place = int(hashlib.sha256(path.encode()).hexdigest()[:16], 16) / 2.0**64
        assert split_of(path) == ("test" if place < 0.1 else "validation" if place < 0.2 else "train")
    shares = Counter(split_of(f"module{n}.py") for n in range(5000))
    assert shares["test"] == pytest.approx(500, abs=110)
    assert shares["validation"] == pytest.approx(500, abs=110)


def test_windows_and_what_follows_them() -> None:
    text = torch.arange(101, dtype=torch.uint8)
    split = windows_at(text, torch.tensor([3, 90]), 10)
    assert split.images.tolist() == [list(range(3, 13)), list(range(90, 100))]
    assert torch.equal(split.labels, split.images + 1)
    assert split.images.dtype == torch.int64
    spread = spread_windows(text, 10, 4)
    assert spread.images[:, 0].tolist() == [0, 30, 60, 90]
    assert len(spread_windows(text, 10, 1000)) == 10
    assert spread_windows(text, 10, 1).images[0, 0] == 0
    with pytest.raises(DataError, match="no window of 200 bytes"):
        spread_windows(text, 200, 3)


def test_text_is_no_set_of_images() -> None:
    with pytest.raises(DataError, match="hush.data.load_text reads it"):
        load("text")
