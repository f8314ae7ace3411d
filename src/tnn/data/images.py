"""Pictures to be classified, from folders, Hugging Face data sets or arrays."""

import io
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn.data.arrays import holds_arrays, load_arrays

SPLITS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
VALIDATION_PART = 10  # one in so many, where no validation set is given
VALIDATION_SEED = 42


class ImageSet(Dataset[Tensor]):
    """Pictures of known classes: item i is uint8 (channels, height, width), at its own size, of class `labels[i]`.

    >>> import torch
    >>> from tnn.data.images import ImageSet
    >>> images = ImageSet(("cat", "dog"), [1, 0, 1], lambda i: torch.zeros(3, 8, 8 + i, dtype=torch.uint8))
    >>> len(images), images[2].shape, images.classes[images.labels[2]]
    (3, torch.Size([3, 8, 10]), 'dog')
    """

    def __init__(self, classes: tuple[str, ...], labels: Any, read: Callable[[int], Tensor]) -> None:
        self.classes = classes
        self.labels: NDArray[np.int64] = np.asarray(labels, dtype=np.int64)  # (N,)
        self.read = read

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not one of 0 to {len(self) - 1}")
        return self.read(index)


def open_images(source: str) -> dict[str, ImageSet]:
    """The pictures of a source: "train", "validation", and "test" where it has labels.

    - A folder with sub-folders train and val (or validation), and perhaps test; in each a folder a class, in that the
      pictures, as in ImageNet. Classes are numbered in the order of their names.
    - A folder of arrays, such as MNIST's and CIFAR-10's files: see `tnn.data.arrays`. Classes are named by number.
    - "hf:PATH" or "hf:NAME:CONFIG": a Hugging Face data set with columns "image" and "label", or the first ones that
      hold images and classes, which keep their numbers.

    Where there is no validation set it is a tenth of train: the last after a permutation (of torch, seed 42). Pictures
    of files are RGB whatever the file has; those of arrays have one channel or three.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from tnn.data.images import open_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for split, count in ("train", 60), ("test", 10):
    ...         np.save(Path(folder, f"x_{split}.npy"), np.zeros((count, 28, 28), np.uint8))
    ...         np.save(Path(folder, f"y_{split}.npy"), np.arange(count) % 10)
    ...     images = open_images(folder)
    >>> {split: len(pictures) for split, pictures in images.items()}, images["train"][0].shape
    ({'train': 54, 'validation': 6, 'test': 10}, torch.Size([1, 28, 28]))
    """
    sets = _find(source)
    if "train" not in sets:
        raise FileNotFoundError(f"{source} has no pictures to train on: there must be a split train")
    for split, images in sets.items():
        _check_classes(source, split, images.classes, sets["train"].classes)
    if "validation" not in sets:
        sets |= _cut_validation(source, sets["train"])
    return {split: sets[split] for split in SPLITS if split in sets}


def _find(source: str) -> dict[str, ImageSet]:
    if source.startswith("hf:"):
        return _open_tables(source.removeprefix("hf:"))
    folder = Path(source)
    if not folder.is_dir():
        raise FileNotFoundError(f'no pictures at {source}: it must be a folder, or "hf:" and a data set')
    return _open_arrays(folder) if holds_arrays(folder) else _open_folders(folder)


def _check_classes(source: str, split: str, classes: tuple[str, ...], expected: tuple[str, ...]) -> None:
    if classes != expected:
        odd = next(iter(sorted(set(classes) ^ set(expected))), "their order")
        raise ValueError(f"{source}: {split} must have the same classes as train; {odd!r} differs")


def _cut_validation(source: str, images: ImageSet) -> dict[str, ImageSet]:
    count = len(images) // VALIDATION_PART
    if not count:
        raise ValueError(
            f"{source} has no validation set, and with {len(images)} pictures train is too small to cut one off; "
            f"{VALIDATION_PART} are needed"
        )
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(VALIDATION_SEED)).numpy()
    return {"train": _pick(images, order[:-count]), "validation": _pick(images, order[-count:])}


def _pick(images: ImageSet, places: NDArray[np.int64]) -> ImageSet:
    return ImageSet(images.classes, images.labels[places], partial(_read_picked, images.read, places))


def _read_picked(read: Callable[[int], Tensor], places: NDArray[np.int64], index: int) -> Tensor:
    return read(int(places[index]))


# --- arrays


def _open_arrays(folder: Path) -> dict[str, ImageSet]:
    arrays = load_arrays(folder)
    classes = tuple(map(str, range(arrays["train"].labels.max() + 1)))
    if arrays["test"].labels.max() >= len(classes):
        raise ValueError(f"{folder}: a test image has label {arrays['test'].labels.max()}, which train does not have")
    return {
        split: ImageSet(classes, labels, partial(_read_array, images)) for split, (images, labels) in arrays.items()
    }


def _read_array(images: NDArray[np.uint8], index: int) -> Tensor:
    picture = torch.from_numpy(images[index].copy())  # (H, W) or (H, W, 3)
    return picture[None] if picture.ndim == 2 else picture.permute(2, 0, 1)


# --- folders


def _open_folders(folder: Path) -> dict[str, ImageSet]:
    sets = {}
    for split, names in SPLITS.items():
        found = [folder / name for name in names if (folder / name).is_dir()]
        if len(found) > 1:
            raise ValueError(
                f"{folder} must have one folder for {split}; got {' and '.join(path.name for path in found)}"
            )
        # Pictures of a test without folders have no known class.
        if found and (split != "test" or _class_folders(found[0])):
            sets[split] = _open_classes(found[0])
    if "train" not in sets:
        raise FileNotFoundError(
            f"{folder} holds no pictures: there must be train/CLASS/ with pictures, or images as arrays (x_train.npy)"
        )
    return sets


def _open_classes(folder: Path) -> ImageSet:
    folders = _class_folders(folder)
    if not folders:
        raise ValueError(f"{folder} has no folders: there must be one for each class, with its pictures")
    pictures = [_pictures(path) for path in folders]
    for path, inside in zip(folders, pictures, strict=True):
        if not inside:
            raise ValueError(f"{path} has no pictures ({', '.join(SUFFIXES)}): each class must have some")
    labels = np.repeat(np.arange(len(folders)), [len(inside) for inside in pictures])
    # One array: the strings of a list, a million of them, would be copied into each process that loads pictures.
    paths = np.array([os.fsencode(path) for inside in pictures for path in inside])
    return ImageSet(tuple(path.name for path in folders), labels, partial(_read_file, paths))


def _class_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _pictures(folder: Path) -> list[str]:
    """In a folder or below, in the order of their names."""
    inside = ((parent, name) for parent, _, names in os.walk(folder) for name in names if not name.startswith("."))
    return sorted(os.path.join(parent, name) for parent, name in inside if name.lower().endswith(SUFFIXES))


def _read_file(paths: NDArray[np.bytes_], index: int) -> Tensor:
    path = os.fsdecode(paths[index])
    return _decode(path, path)


def _decode(file: str | io.BytesIO, where: str) -> Tensor:
    """The picture in RGB, (3, H, W)."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ModuleNotFoundError("pictures need more: pip install 'toeplitz-nn[vision]'") from None
    try:
        with Image.open(file) as picture:
            pixels = np.array(_to_rgb(picture))  # (H, W, 3)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {where} any more") from None
    except Exception as error:  # a damaged file can raise anything
        raise ValueError(f"{where} is not a whole picture: {error}") from None
    return torch.from_numpy(pixels).permute(2, 0, 1)  # channels last in memory, where torch resizes them fastest


def _to_rgb(picture: Any) -> Any:
    """A picture of Pillow without transparency: the colours that are there, hidden or not."""
    from PIL import Image

    if picture.mode.startswith("I;16"):  # of which Pillow would keep what is below 256
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert("RGB")
    if picture.mode == "P":  # Pillow warns of transparent colours of a palette unless they are met on the way
        picture = picture.convert("RGBA")
    return picture.convert("RGB")


# --- Hugging Face data sets


def _open_tables(name: str) -> dict[str, ImageSet]:
    tables = _load_tables(name)
    sets = {}
    for split, names in SPLITS.items():
        for found in names:
            if found in tables:
                images = _open_table(tables[found], f"{found} of hf:{name}")
                if images.labels.min() >= 0:
                    sets[split] = images
                elif split != "test":  # where -1 says that it is not told
                    raise ValueError(f"{found} of hf:{name}: labels must be 0 or more; got {images.labels.min()}")
                break
    return sets


def _load_tables(name: str) -> Mapping[str, Any]:
    path, _, config = (name, "", "") if Path(name).exists() or ":" not in name else name.rpartition(":")
    try:
        import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Hugging Face data sets need more: pip install 'toeplitz-nn[datasets]'") from None
    try:
        if (Path(path) / "dataset_dict.json").is_file():
            return datasets.load_from_disk(path)
        return datasets.load_dataset(path, config or None)
    except Exception as error:  # of the network, of the hub, of the files, of the configuration
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"cannot load the Hugging Face data set {name}: {reason}") from error


def _open_table(table: Any, where: str) -> ImageSet:
    import datasets

    column = _find_column(table, "image", datasets.Image, where)
    label = _find_column(table, "label", datasets.ClassLabel, where)
    labels = np.array(table[label][:])
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{where}: column {label!r} must hold numbers of classes; got {labels.flat[0]!r}")
    names = getattr(table.features[label], "names", None) or list(map(str, range(labels.max() + 1)))
    stored = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    return ImageSet(tuple(names), labels, partial(_read_row, stored, column, where))


def _find_column(table: Any, name: str, kind: type, where: str) -> str:
    """The column of that name, or the first of that kind."""
    columns = [column for column, feature in table.features.items() if isinstance(feature, kind)]
    if name in columns or (name == "label" and name in table.column_names):
        return name
    if not columns:
        raise ValueError(f"{where}: no column {name!r}; it has {', '.join(table.column_names)}")
    return columns[0]


def _read_row(table: Any, column: str, where: str, index: int) -> Tensor:
    stored = table[index][column]
    if stored is None:
        raise ValueError(f"picture {index} of {where} is missing")
    return _decode(io.BytesIO(stored["bytes"]) if stored["bytes"] else stored["path"], f"picture {index} of {where}")
