"""Labelled images from folders, Hugging Face data sets or arrays."""

import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn.data.arrays import check_labels, holds_arrays, load_arrays

SPLITS = {"train": ("train",), "validation": ("validation", "val", "valid"), "test": ("test",)}
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".pgm", ".tif", ".tiff")
VALIDATION_PART = 10  # without a validation set, one in 10 training images is used
VALIDATION_SEED = 42


class ImageSet(Dataset[Tensor]):
    """Labelled images: item i is uint8 (channels, height, width) at its original size, its class is `labels[i]`.

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
    """The images of a source by split: "train", "validation", and "test" if it has labels.

    - A folder with sub-folders train, val (or validation) and optionally test. Each holds one folder per class, with
      the images of that class, as in ImageNet. Classes are numbered in alphabetical order.
    - A folder of arrays, such as the files of MNIST and CIFAR-10: see `tnn.data.arrays`. Class names are the numbers.
    - "hf:PATH" or "hf:NAME:CONFIG": a Hugging Face data set with columns "image" and "label", or else the first
      columns of type Image and ClassLabel. Classes keep their numbers.

    Without a validation set, a tenth of train is taken: the last tenth of a random permutation (torch, seed 42).
    Images from files are converted to RGB; images from arrays have one or three channels.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from tnn.data.images import open_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for split, count in ("train", 60), ("test", 10):
    ...         np.save(Path(folder, f"x_{split}.npy"), np.zeros((count, 28, 28), np.uint8))
    ...         np.save(Path(folder, f"y_{split}.npy"), np.arange(count) % 10)
    ...     images = open_images(folder)
    >>> {split: len(images[split]) for split in images}, images["train"][0].shape
    ({'train': 54, 'validation': 6, 'test': 10}, torch.Size([1, 28, 28]))
    """
    sets = _find(source)
    if "train" not in sets:
        raise FileNotFoundError(f"{source} has no train split")
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
        raise FileNotFoundError(f'no images at {source}: it must be a folder, or "hf:" and a data set')
    return _open_arrays(folder) if holds_arrays(folder) else _open_folders(folder)


def _check_classes(source: str, split: str, classes: tuple[str, ...], expected: tuple[str, ...]) -> None:
    if classes != expected:
        odd = next(iter(sorted(set(classes) ^ set(expected))), "their order")
        raise ValueError(f"{source}: {split} must have the same classes as train; {odd!r} differs")


def _cut_validation(source: str, images: ImageSet) -> dict[str, ImageSet]:
    count = len(images) // VALIDATION_PART
    if not count:
        raise ValueError(
            f"{source} has no validation set, and its {len(images)} training images are too few to take one from; "
            f"at least {VALIDATION_PART} are needed"
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
    image = torch.from_numpy(images[index].copy())  # (H, W) or (H, W, 3)
    return image[None] if image.ndim == 2 else image.permute(2, 0, 1)


# --- folders


def _open_folders(folder: Path) -> dict[str, ImageSet]:
    sets = {}
    for split, names in SPLITS.items():
        homes = [folder / name for name in names if (folder / name).is_dir()]
        if len(homes) > 1:
            raise ValueError(
                f"{folder} must have one folder for {split}; got {' and '.join(path.name for path in homes)}"
            )
        # Test images that are not in class folders have no labels.
        if homes and (split != "test" or _class_folders(homes[0])):
            sets[split] = _open_classes(homes[0])
    if "train" not in sets:
        raise FileNotFoundError(
            f"{folder} holds no images: it must have image files in train/CLASS/, or arrays (x_train.npy)"
        )
    return sets


def _open_classes(folder: Path) -> ImageSet:
    folders = _class_folders(folder)
    if not folders:
        raise ValueError(f"{folder} has no folders: there must be one folder of images per class")
    files = [_image_files(path) for path in folders]
    for path, inside in zip(folders, files, strict=True):
        if not inside:
            raise ValueError(f"{path} has no images ({', '.join(SUFFIXES)}): each class must have at least one")
    labels = np.repeat(np.arange(len(folders)), [len(inside) for inside in files])
    # One array: a list of a million strings would be copied into each data loader process.
    paths = np.array([os.fsencode(path) for inside in files for path in inside])
    return ImageSet(tuple(path.name for path in folders), labels, partial(_read_file, paths))


def _class_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _image_files(folder: Path) -> list[str]:
    """The paths of all images in a folder and its sub-folders, sorted."""
    inside = ((parent, name) for parent, _, names in os.walk(folder) for name in names if not name.startswith("."))
    return sorted(os.path.join(parent, name) for parent, name in inside if name.lower().endswith(SUFFIXES))


def _read_file(paths: NDArray[np.bytes_], index: int) -> Tensor:
    path = os.fsdecode(paths[index])
    return _decode(path, path)


def _decode(file: str | io.BytesIO, where: str) -> Tensor:
    """The image in RGB, uint8 (3, H, W)."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ModuleNotFoundError("image files need pillow: pip install 'toeplitz-nn[vision]'") from None
    if isinstance(file, str) and os.path.exists(file) and not os.path.isfile(file):  # a pipe could block forever
        raise ValueError(f"{where} is not a file")
    try:
        with no_huge_images(), Image.open(file) as image:
            pixels = np.array(_to_rgb(image))  # (H, W, 3)
    except FileNotFoundError:
        raise FileNotFoundError(f"{where} does not exist any more") from None
    except Exception as error:  # a damaged file can raise anything
        raise ValueError(f"{where} is not a valid image: {error}") from None
    return torch.from_numpy(pixels).permute(2, 0, 1)  # channels last in memory, where torch resizes them fastest


@contextmanager
def no_huge_images() -> Iterator[None]:
    """Pillow refuses images of 179 million pixels, and warns from 89 million on: here both are errors."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _to_rgb(image: Any) -> Any:
    """A Pillow image in RGB. Transparency is dropped: transparent pixels show the colour stored for them."""
    from PIL import Image

    if image.mode.startswith("I;16"):  # Pillow would clip 16-bit values at 255 instead of scaling them
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P":  # Pillow warns about palettes with transparency unless converted to RGBA first
        image = image.convert("RGBA")
    return image.convert("RGB")


# --- Hugging Face data sets


def _open_tables(name: str) -> dict[str, ImageSet]:
    tables = _load_tables(name)
    sets = {}
    for split, names in SPLITS.items():
        stored = next((stored for stored in names if stored in tables), None)
        if stored is None:
            continue
        images = _open_table(tables[stored], f"{stored} of hf:{name}")
        if images.labels.min() >= 0:
            sets[split] = images
        elif split != "test":  # the hub writes -1 for the hidden labels of a test set
            raise ValueError(f"{stored} of hf:{name}: labels must be 0 or more; got {images.labels.min()}")
    return sets


def _load_tables(name: str) -> Mapping[str, Any]:
    path, _, config = (name, "", "") if Path(name).exists() or ":" not in name else name.rpartition(":")
    try:
        import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Hugging Face data sets need datasets: pip install 'toeplitz-nn[datasets]'") from None
    try:
        if (Path(path) / "dataset_dict.json").is_file():
            return datasets.load_from_disk(path)
        return datasets.load_dataset(path, config or None)
    except Exception as error:  # from the network, the hub, the files or the configuration
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"cannot load the Hugging Face data set {name}: {reason}") from error


def _open_table(table: Any, where: str) -> ImageSet:
    import datasets

    column = _find_column(table, "image", datasets.Image, where)
    label = _find_column(table, "label", datasets.ClassLabel, where)
    labels = np.array(table[label][:])
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{where}: column {label!r} must hold integers, one class per image; got {labels.flat[0]!r}")
    if labels.max() >= 0:  # the hub writes -1 for hidden labels
        check_labels(labels[labels >= 0], where)
    names = getattr(table.features[label], "names", None) or list(map(str, range(labels.max() + 1)))
    stored = table.select_columns([column]).cast_column(column, datasets.Image(decode=False))
    return ImageSet(tuple(names), labels, partial(_read_row, stored, column, where))


def _find_column(table: Any, name: str, kind: type, where: str) -> str:
    """The column called `name`, or else the first of type `kind`."""
    columns = [column for column, feature in table.features.items() if isinstance(feature, kind)]
    if name in columns or (name == "label" and name in table.column_names):
        return name
    if not columns:
        raise ValueError(f"{where}: no column {name!r}; it has {', '.join(table.column_names)}")
    return columns[0]


def _read_row(table: Any, column: str, where: str, index: int) -> Tensor:
    stored = table[index][column]
    if stored is None:
        raise ValueError(f"image {index} of {where} is missing")
    return _decode(io.BytesIO(stored["bytes"]) if stored["bytes"] else stored["path"], f"image {index} of {where}")
