"""Images of Long-Range Arena as sequences of pixels: CIFAR-10 in grey, and Pathfinder."""

import re
from collections.abc import Sequence
from math import isqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn.data.arrays import Arrays, grey, load_arrays
from tnn.data.compressed import reading
from tnn.data.images import no_huge_images
from tnn.data.lra.tasks import Flavour, LraTask, check_example_count, check_label, find_lra_task

SEED = 42  # of the splits
HARD = "curv_contour_length_14"
METADATA = re.compile(r"(\d+)\.npy(\.gz|\.xz)?")
COLUMNS = 4  # needed in each line of metadata: folder, file, number, label
EMPTY = ("curv_baseline", "imgs/0", "sample_172.png")  # this file of the easy set is empty in the release
HELD = 2**12  # pixels; sets of larger images would take gigabytes of memory, so their files are read on access


class ImageFiles:
    """Files of grey images, `size` x `size`, read on access."""

    def __init__(self, folder: Path, names: list[str], size: int) -> None:
        self.folder, self.names, self.size = folder, names, size

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        return _read_image(self.folder / self.names[index], self.size)

    def read_all(self, what: str) -> NDArray[np.uint8]:
        """All at once, (N, size, size)."""
        from tqdm import tqdm

        pixels = np.empty((len(self), self.size, self.size), np.uint8)
        for index in tqdm(range(len(self)), f"reading {what}", unit=" images", disable=None):
            pixels[index] = self[index]
        return pixels


class PixelSet(Dataset[dict[str, Tensor]]):
    """Images and `labels`: normalised `pixel_values` (1, H, W), or, with `tokens` "ids", `input_ids` (H * W).

    The ids are the values of the pixels, 0 to 255, row by row. Their attention mask excludes black pixels (0), as in
    Skyformer.

    >>> import numpy as np
    >>> from tnn.data.lra import find_lra_task
    >>> from tnn.data.lra.pixels import PixelSet
    >>> image = np.array([[[0, 255], [51, 0]]], np.uint8)
    >>> PixelSet(image, np.array([1]), find_lra_task("pathfinder"), "ids")[0]["input_ids"]
    tensor([  0, 255,  51,   0])
    """

    def __init__(
        self, images: NDArray[np.uint8] | ImageFiles, labels: NDArray[np.int64], task: LraTask, tokens: str
    ) -> None:
        self.images, self.labels, self.task, self.tokens = images, labels, task, tokens

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not one of 0 to {len(self) - 1}")
        pixels = torch.from_numpy(self.images[index].astype(np.int64))  # (H, W)
        label = {"labels": torch.tensor(self.labels[index])}
        if self.tokens == "ids":
            ids = pixels.flatten()
            return {"input_ids": ids, "attention_mask": (ids != 0).long()} | label
        return {"pixel_values": (pixels[None] / 255 - self.task.mean) / self.task.std} | label


def load_image(source: Path, flavour: Flavour, splits: Sequence[str], check_counts: bool) -> dict[str, PixelSet]:
    """CIFAR-10 in grey; a random tenth of its training images (seed 42) is the validation set."""
    task, size = find_lra_task("image"), isqrt(flavour.length)
    try:
        arrays = load_arrays(source)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; image needs {task.where}") from None
    for images, labels in arrays.values():
        _check_size(images.shape[1:3], size, source)
        check_label("image", int(labels.max()), str(source))
    official = arrays["train"]
    train, validation = _random_parts(len(official.labels), held_out=1)
    parts = {
        "train": Arrays(official.images[train], official.labels[train]),
        "validation": Arrays(official.images[validation], official.labels[validation]),
        "test": arrays["test"],
    }
    for split in splits:
        check_example_count("image", split, len(parts[split].labels), published=check_counts)
    return {split: PixelSet(_grey(parts[split].images), parts[split].labels, task, flavour.tokens) for split in splits}


def load_pathfinder(
    name: str, source: Path, flavour: Flavour, splits: Sequence[str], check_counts: bool
) -> dict[str, PixelSet]:
    """Pathfinder or Path-X; a random tenth each (seed 42) is the validation and the test set."""
    task, size = find_lra_task(name), isqrt(flavour.length)
    listed = _read_metadata(name, _find_folder(name, source, size))
    parts = dict(zip(("train", "validation", "test"), _random_parts(len(listed.labels), held_out=2), strict=True))
    for split in splits:
        check_example_count(name, split, len(parts[split]), published=check_counts)
    sets = {}
    for split in splits:
        files = ImageFiles(listed.folder, [listed.names[index] for index in parts[split]], size)
        files[0]  # a missing file or a wrong size is reported now
        images = files.read_all(f"{name} {split}") if size**2 <= HELD else files
        sets[split] = PixelSet(images, listed.labels[parts[split]], task, flavour.tokens)
    return sets


class _Listed(NamedTuple):
    folder: Path
    names: list[str]  # of images in the folder
    labels: NDArray[np.int64]


def _find_folder(name: str, source: Path, size: int) -> Path:
    """The folder of the hard set, or of another set if it is the only one."""
    for home in (source, source / f"pathfinder{size}"):
        folders = [path.parent for path in sorted(home.glob("curv_*/metadata")) if path.is_dir()]
        hard = [folder for folder in folders if folder.name == HARD]
        if hard or len(folders) == 1:
            return (hard or folders)[0]
    raise FileNotFoundError(f"there is no {source / HARD / 'metadata'}: {name} needs {find_lra_task(name).where}")


def _read_metadata(name: str, folder: Path) -> _Listed:
    """The files K.npy are text: one line per image; columns 0, 1 and 3 are folder, file and label."""
    matches = [match for path in (folder / "metadata").iterdir() if (match := METADATA.fullmatch(path.name))]
    names, labels = [], []
    for match in sorted(matches, key=lambda match: int(match[1])):
        path = folder / "metadata" / match[0]
        with reading(path) as file:
            lines = file.read().decode().splitlines()
        for number, line in enumerate(lines, start=1):
            columns = line.split()
            if len(columns) < COLUMNS:
                raise ValueError(f"{path}, line {number}: needs at least {COLUMNS} columns; got {len(columns)}")
            label = check_label(name, columns[3], f"{path}, line {number}")
            if (folder.name, *columns[:2]) != EMPTY or (folder / columns[0] / columns[1]).stat().st_size:
                names.append(f"{columns[0]}/{columns[1]}")
                labels.append(label)
    return _Listed(folder, names, np.array(labels, np.int64))


def _random_parts(count: int, held_out: int) -> list[NDArray[np.int64]]:
    """The indices for training, and `held_out` parts of a tenth each, drawn as by torch's random_split."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED)).numpy()
    tenth = count // 10
    cuts = [count - tenth * part for part in range(held_out, 0, -1)]
    return np.split(order, cuts)


def _grey(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(N, H, W) from (N, H, W, 3), or as it is."""
    if images.ndim == 3:
        return images
    red, green, blue = (images[..., channel].astype(np.uint32) for channel in range(3))
    return grey(red, green, blue).astype(np.uint8)


def _read_image(path: Path, size: int) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Pathfinder needs pillow: pip install 'toeplitz-nn[vision]'") from None
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}, although the metadata of its folder lists it")
    try:
        with no_huge_images(), Image.open(path) as image:
            shape = image.size[::-1]
            pixels = np.asarray(image.convert("L")) if shape == (size, size) else np.empty(0, np.uint8)
    except Exception as error:  # a damaged file can raise anything
        raise ValueError(f"{path} is not a valid image: {error}") from None
    _check_size(shape, size, path)
    return pixels


def _check_size(shape: tuple[int, ...], size: int, where: Path) -> None:
    if shape != (size, size):
        raise ValueError(f"{where}: images must have {size} x {size} pixels; got {' x '.join(map(str, shape))}")
