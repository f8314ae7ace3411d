"""Images stored as arrays, all of one size: the batches of CIFAR-10, the idx files of MNIST, numpy's .npy files."""

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tnn.data.compressed import find_file, reading

CIFAR_SHAPE = (3, 32, 32)
IDX_BYTES = 8  # the type "unsigned byte" in the header of an idx file
MOST_CLASSES = 100_000  # a larger label is a mistake; a model would have one output for each number below it


class Arrays(NamedTuple):
    """Images and the class of each."""

    images: NDArray[np.uint8]  # (N, H, W) grey or (N, H, W, 3)
    labels: NDArray[np.int64]  # (N,)


def load_arrays(folder: Path) -> dict[str, Arrays]:
    """The images of a folder by split, "train" and "test". Each file may be compressed (.xz, .gz).

    The folder holds one of these:

    - the python batches of CIFAR-10 (`data_batch_1` to `data_batch_5`, `test_batch`) or the binary ones (the same names
      with `.bin`), directly or in the sub-folder of the archive;
    - the idx files of MNIST (`train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, and `t10k-` for the test split);
    - `x_train.npy`, `y_train.npy`, `x_test.npy`, `y_test.npy`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from tnn.data.arrays import load_arrays
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for split, count in ("train", 6), ("test", 2):
    ...         np.save(Path(folder, f"x_{split}.npy"), np.zeros((count, 28, 28), np.uint8))
    ...         np.save(Path(folder, f"y_{split}.npy"), np.arange(count))
    ...     arrays = load_arrays(Path(folder))
    >>> arrays["train"].images.shape, arrays["test"].labels.tolist()
    ((6, 28, 28), [0, 1])
    """
    location = _find_layout(folder)
    if location is None:
        raise FileNotFoundError(f"{folder} holds no images as arrays: there is none of {', '.join(_FIRST_FILES)}")
    layout, home = location
    return {
        "train": _load_split(layout.read, home, layout.train),
        "test": _load_split(layout.read, home, layout.test),
    }


def holds_arrays(folder: Path) -> bool:
    """Whether `load_arrays` can read a folder.

    >>> from pathlib import Path
    >>> from tnn.data.arrays import holds_arrays
    >>> holds_arrays(Path("nowhere"))
    False
    """
    return _find_layout(folder) is not None


def _load_split(read: "_Read", home: Path, groups: "_Groups") -> Arrays:
    paths = [[find_file(home / name) for name in names] for names in groups]
    for path in (path for group in paths for path in group):
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path}, although {home} holds other files of the same images")
    parts = [_check(read(*group), group) for group in paths]
    images, labels = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Arrays(images, labels)


def _check(arrays: Arrays, paths: list[Path]) -> Arrays:
    """Checks that all formats share."""
    (images, labels), where = arrays, paths[0]
    grey = images.ndim == 3
    if images.dtype != np.uint8 or not (grey or (images.ndim == 4 and images.shape[3] == 3)) or 0 in images.shape:
        raise ValueError(
            f"{where}: images must be uint8 of shape (N, H, W) or (N, H, W, 3), not empty; "
            f"got {images.dtype} of shape {images.shape}"
        )
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{paths[-1]}: there must be one integer label for each of {len(images)} images; "
            f"got {labels.dtype} of shape {labels.shape}"
        )
    check_labels(labels, str(paths[-1]))
    return Arrays(images, labels.astype(np.int64))


def check_labels(labels: NDArray[Any], where: str) -> None:
    """Classes are numbered from 0, and there are not more than MOST_CLASSES.

    >>> import numpy as np
    >>> from tnn.data.arrays import check_labels
    >>> check_labels(np.array([0, 10**9]), "y_train.npy")
    Traceback (most recent call last):
    ...
    ValueError: y_train.npy: labels must be from 0 to 99999; got 1000000000
    """
    for label in (int(labels.min()), int(labels.max())):
        if not 0 <= label < MOST_CLASSES:
            raise ValueError(f"{where}: labels must be from 0 to {MOST_CLASSES - 1}; got {label}")


def _read_batch(path: Path) -> Arrays:
    """A python batch of CIFAR-10: a pickle by Python 2 of a dictionary with an array and a list."""
    try:
        batch = _BatchUnpickler(io.BytesIO(_read_bytes(path)), encoding="bytes").load()
        fields = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        pixels = fields["data"].to_bytes()
        labels = np.array(fields["labels"])
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path} is not a batch of CIFAR-10: {type(error).__name__}: {error}") from None
    return Arrays(_cifar_images(pixels, path), labels)


class _BatchUnpickler(pickle.Unpickler):
    """Builds only numbers, strings, lists and dictionaries; arrays stay in their stored form, `_Stored`.

    A pickle can name any function to call while it is loaded, so only the names that numpy arrays need are allowed.
    """

    def find_class(self, module: str, name: str) -> type["_Stored"]:
        if (module, name) in _ARRAY_NAMES:
            return _Stored
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not allowed")


_ARRAY_NAMES = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"),  # numpy 2
}


class _Stored:
    """A numpy array or data type of a pickle, not built: its constructor's arguments and its state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def to_bytes(self) -> bytes:
        """The values of a uint8 array in C order."""
        _, shape, dtype, by_column, numbers = self.state
        if dtype.arguments[0] not in ("u1", b"u1"):
            raise ValueError(f"its data must be of type 'u1' (uint8); got {dtype.arguments[0]!r}")
        return np.frombuffer(numbers, np.uint8).reshape(shape, order="F" if by_column else "C").tobytes()


def _read_binary_batch(path: Path) -> Arrays:
    """A binary batch of CIFAR-10: each row is one byte for the label, then the pixels."""
    data, row = _read_bytes(path), 1 + np.prod(CIFAR_SHAPE)
    if len(data) % row:
        raise ValueError(f"{path} must have a multiple of {row} bytes (one label and one image); got {len(data)}")
    rows = np.frombuffer(data, np.uint8).reshape(-1, row)
    return Arrays(_cifar_images(rows[:, 1:].tobytes(), path), rows[:, 0].astype(np.int64))


def _cifar_images(pixels: bytes, path: Path) -> NDArray[np.uint8]:
    if len(pixels) % np.prod(CIFAR_SHAPE):
        raise ValueError(f"{path} must hold images of shape {CIFAR_SHAPE}; got {len(pixels)} values in all")
    images = np.frombuffer(pixels, np.uint8).reshape(-1, *CIFAR_SHAPE)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))  # (N, 32, 32, 3)


def _read_idx_pair(images: Path, labels: Path) -> Arrays:
    return Arrays(_read_idx(images), _read_idx(labels).astype(np.int64))


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """The format: two zero bytes, the data type, the number of axes, the length of each axis (4 bytes), the data."""
    data = _read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != IDX_BYTES:
        raise ValueError(f"{path} is not an idx file of uint8: it begins with {data[:4].hex(' ') or 'nothing'}")
    start = 4 + 4 * data[3]
    shape = [int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4)]
    if len(data) < start:
        raise ValueError(f"{path} ends within its header")
    if len(data) - start != math.prod(shape):
        raise ValueError(f"{path} must have {math.prod(shape)} values, as its header says; got {len(data) - start}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read_npy_pair(images: Path, labels: Path) -> Arrays:
    x, y = _read_npy(images), _read_npy(labels)
    return Arrays(x.squeeze(3) if x.ndim == 4 and x.shape[3] == 1 else x, y.squeeze(1) if y.shape[1:] == (1,) else y)


def _read_npy(path: Path) -> NDArray[Any]:
    """Not by np.load, which allocates what the header claims before it looks at the size, and opens zip files too."""
    data = _read_bytes(path)
    stream = io.BytesIO(data)
    try:
        shape, by_column, dtype = _NPY_HEADERS[npy.read_magic(stream)](stream)
        size, stored = math.prod(shape) * dtype.itemsize, len(data) - stream.tell()
        if dtype.hasobject or size != stored:
            raise ValueError(f"{dtype} of shape {shape} has {size} bytes; the file has {stored} after its header")
        return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape, order="F" if by_column else "C")
    except Exception as error:  # a damaged header can raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is not a numeric .npy array: {reason}") from None


_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def _read_bytes(path: Path) -> bytes:
    with reading(path) as file:
        return file.read()


_Read = Callable[..., Arrays]  # takes the files of one group
_Groups = tuple[tuple[str, ...], ...]  # groups of file names; a group is read together


class _Layout(NamedTuple):
    folder: str  # sub-folder of the archive that holds the files
    train: _Groups
    test: _Groups
    read: _Read


_LAYOUTS = (
    _Layout("cifar-10-batches-py", tuple((f"data_batch_{k}",) for k in range(1, 6)), (("test_batch",),), _read_batch),
    _Layout(
        "cifar-10-batches-bin",
        tuple((f"data_batch_{k}.bin",) for k in range(1, 6)),
        (("test_batch.bin",),),
        _read_binary_batch,
    ),
    _Layout(
        "",
        (("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),),
        (("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),),
        _read_idx_pair,
    ),
    _Layout("", (("x_train.npy", "y_train.npy"),), (("x_test.npy", "y_test.npy"),), _read_npy_pair),
)
_FIRST_FILES = [layout.train[0][0] for layout in _LAYOUTS]


def _find_layout(folder: Path) -> tuple[_Layout, Path] | None:
    """The layout whose first file exists, and the folder of that file; None if there is none."""
    for layout in _LAYOUTS:
        for home in (folder, folder / layout.folder):
            if find_file(home / layout.train[0][0]).is_file():
                return layout, home
    return None


def grey(red: Any, green: Any, blue: Any) -> Any:
    """The luminance of a colour, from 0 to 255: ITU-R 601 in integer arithmetic, exactly as Pillow computes it.

    Takes integers, or integer arrays or tensors of at least 32 bits.

    >>> from tnn.data.arrays import grey
    >>> grey(255, 255, 255), grey(0, 255, 0)
    (255, 150)
    """
    return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16
