"""Image preprocessing: the augmentations of the DeiT recipe for training, resize and centre crop for evaluation.

All randomness of an example is a function of a seed and the example's number, so runs can be repeated and resumed
exactly.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator, default_rng
from torch import Tensor
from torch.utils.data import Dataset

from tnn._checks import check_fraction, check_positive, check_tolerance
from tnn.data.arrays import grey
from tnn.data.images import ImageSet

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CROP_FRACTION = 224 / 256  # of the shorter side, the part that the centre crop keeps
CROP_RATIOS = (3 / 4, 4 / 3)  # width to height
ERASED_AREAS, ERASED_RATIOS = (0.02, 1 / 3), (0.3, 1 / 0.3)
TRIES = 10  # to find a box that fits
LARGEST_MAGNITUDE = 10
RAND_PROBABILITY = 0.5  # that a chosen operation is applied, as in timm
MIXING = 1  # separates the random numbers for a batch from those for an example
Operation = Callable[[Tensor, float, Tensor], Tensor]


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of training images; by default none. The example shows the DeiT recipe.

    The order is: crop, shift, flip, RandAugment, jitter, normalisation, erasing; then batches are mixed. RandAugment
    and jitter can be combined; timm, which DeiT uses, leaves out jitter in that case.

    >>> from tnn.data.augmentation import Augmentation
    >>> deit = Augmentation(
    ...     crop_scale=(0.08, 1.0), flip=0.5, rand_magnitude=9, erasing=0.25, mixup=0.8, cutmix=1.0, label_smoothing=0.1
    ... )
    >>> deit.mix_switch
    0.5
    """

    crop_scale: tuple[float, float] | None = None  # random resized crop: share of the area; aspect 3/4 to 4/3, bicubic
    flip: float = 0.0  # probability of a horizontal flip
    jitter: float = 0.0  # brightness, contrast and saturation are scaled by a factor in [1 - jitter, 1 + jitter]
    rand_magnitude: float | None = None  # of RandAugment's operations, 0 to 10
    rand_std: float = 0.5  # standard deviation of that magnitude
    rand_count: int = 2  # operations per image; each is applied with probability 1/2
    erasing: float = 0.0  # probability that a box of 2% to 33% of the area is replaced by noise
    mixup: float = 0.0  # lambda is drawn from Beta(mixup, mixup); 0: off
    cutmix: float = 0.0  # the same for cutmix
    mix_probability: float = 1.0  # that a batch is mixed, if mixup or cutmix is on
    mix_switch: float = 0.5  # probability of cutmix instead of mixup, if both are on
    label_smoothing: float = 0.0
    shift: int = 0  # random shift by up to this many pixels, filled with black

    def __post_init__(self) -> None:
        if self.crop_scale is not None and not _is_range(self.crop_scale):
            raise ValueError(f"crop_scale must be (low, high) with 0 < low <= high <= 1; got {self.crop_scale}")
        for name in ("flip", "erasing", "mix_probability", "mix_switch", "label_smoothing"):
            check_fraction(name, getattr(self, name))
        for name in ("jitter", "rand_std", "mixup", "cutmix"):
            check_tolerance(name, getattr(self, name))
        if self.rand_magnitude is not None and not 0 <= self.rand_magnitude <= LARGEST_MAGNITUDE:
            raise ValueError(f"rand_magnitude must be from 0 to {LARGEST_MAGNITUDE}; got {self.rand_magnitude}")
        check_positive("rand_count", self.rand_count)
        if self.shift:
            check_positive("shift", self.shift)


def _is_range(shares: Any) -> bool:
    try:
        low, high = map(float, shares)
    except (TypeError, ValueError):
        return False
    return 0 < low <= high <= 1


class TrainingImages(Dataset[dict[str, Any]]):
    """Augmented images: `pixel_values` float32 (channels, size, size), `labels`, and the example's `number`.

    `mixing_collate`, which makes batches of them, needs the number. Without `crop_scale`, images are cropped as in
    `EvaluationImages`.

    >>> import torch
    >>> from tnn.data.augmentation import IMAGENET_MEAN, IMAGENET_STD, Augmentation, TrainingImages
    >>> from tnn.data.images import ImageSet
    >>> images = ImageSet(("cat", "dog"), [1], lambda i: torch.zeros(3, 40, 50, dtype=torch.uint8))
    >>> augmentation = Augmentation(crop_scale=(0.08, 1.0), flip=0.5)
    >>> examples = TrainingImages(images, 32, IMAGENET_MEAN, IMAGENET_STD, augmentation, seed=0)
    >>> examples[0]["pixel_values"].shape, examples[0]["labels"]
    (torch.Size([3, 32, 32]), tensor(1))
    """

    def __init__(
        self,
        images: ImageSet,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: Augmentation,
        seed: int,
        channels: int = 3,
        crop_fraction: float = CROP_FRACTION,
    ) -> None:
        _check_crop(size, crop_fraction)
        self.images, self.size, self.channels, self.crop_fraction = images, size, channels, crop_fraction
        self.mean, self.std = _statistics(mean, std, channels)
        self.augmentation, self.seed = augmentation, seed

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.draw(index, index)

    def draw(self, index: int, number: int) -> dict[str, Any]:
        """Image `index`, augmented as training example `number`: each epoch augments it differently."""
        generator, options = default_rng([self.seed, number]), self.augmentation
        image = _to_channels(self.images[index], self.channels)
        if options.crop_scale:
            image = _random_crop(image, self.size, options.crop_scale, generator)
        else:
            image = _centre_crop(image, self.size, self.crop_fraction)
        if options.shift:
            image = _shift(image, options.shift, generator)
        if generator.random() < options.flip:
            image = image.flip(-1)
        x = _to_unit(image)
        if options.rand_magnitude is not None:
            x = _rand_augment(
                x, options.rand_count, (options.rand_magnitude, options.rand_std), self.mean.flatten(), generator
            )
        if options.jitter:
            x = _jitter(x, options.jitter, generator)
        x = (x - self.mean) / self.std
        if generator.random() < options.erasing:
            _erase(x, generator)
        return {"pixel_values": x, "labels": torch.tensor(self.images.labels[index]), "number": number}


class EvaluationImages(Dataset[dict[str, Tensor]]):
    """Images for evaluation: resized (bicubic) and centre-cropped; an image of the right size stays as it is.

    >>> import torch
    >>> from tnn.data.augmentation import IMAGENET_MEAN, IMAGENET_STD, EvaluationImages
    >>> from tnn.data.images import ImageSet
    >>> images = ImageSet(("cat", "dog"), [1], lambda i: torch.zeros(3, 40, 50, dtype=torch.uint8))
    >>> EvaluationImages(images, 32, IMAGENET_MEAN, IMAGENET_STD)[0]["pixel_values"].shape
    torch.Size([3, 32, 32])
    """

    def __init__(
        self,
        images: ImageSet,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        channels: int = 3,
        crop_fraction: float = CROP_FRACTION,
    ) -> None:
        _check_crop(size, crop_fraction)
        self.images, self.size, self.channels, self.crop_fraction = images, size, channels, crop_fraction
        self.mean, self.std = _statistics(mean, std, channels)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        image = _centre_crop(_to_channels(self.images[index], self.channels), self.size, self.crop_fraction)
        x = (_to_unit(image) - self.mean) / self.std
        return {"pixel_values": x, "labels": torch.tensor(self.images.labels[index])}


def _check_crop(size: int, fraction: float) -> None:
    check_positive("size", size)
    if not 0 < fraction <= 1:
        raise ValueError(f"crop_fraction must be in (0, 1]; got {fraction}")


def _statistics(mean: Sequence[float], std: Sequence[float], channels: int) -> tuple[Tensor, Tensor]:
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (RGB); got {channels}")
    if len(mean) != channels or len(std) != channels:
        raise ValueError(f"mean and std must have one number per channel ({channels}); got {mean} and {std}")
    if min(std) <= 0:
        raise ValueError(f"std must be more than 0; got {std}")
    return torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)  # (channels, 1, 1)


def _to_channels(image: Tensor, channels: int) -> Tensor:
    if len(image) == channels:
        return image
    if channels == 3:
        return image.expand(3, -1, -1)
    red, green, blue = image.int()
    return grey(red, green, blue).to(torch.uint8)[None]


def _to_unit(image: Tensor) -> Tensor:
    return image.to(torch.float32, memory_format=torch.contiguous_format) / 255  # (channels, size, size) in [0, 1]


# --- crops


def _centre_crop(image: Tensor, size: int, fraction: float) -> Tensor:
    height, width = image.shape[1:]
    if (height, width) == (size, size):
        return image
    shorter = round(size / fraction)
    scale = shorter / min(height, width)
    sides = [max(shorter, int(side * scale)) for side in (height, width)]
    top, left = (round((side - size) / 2) for side in sides)
    return _resize(image, *sides)[:, top : top + size, left : left + size]


def _random_crop(image: Tensor, size: int, scale: tuple[float, float], generator: Generator) -> Tensor:
    height, width = image.shape[1:]
    box = _random_box(height, width, scale, CROP_RATIOS, generator)
    if box is None:  # the image is too narrow: take the centre
        ratio = min(max(width / height, CROP_RATIOS[0]), CROP_RATIOS[1])
        h, w = min(height, round(width / ratio)), min(width, round(height * ratio))
        box = (height - h) // 2, (width - w) // 2, h, w
    top, left, h, w = box
    return _resize(image[:, top : top + h, left : left + w], size, size)


def _random_box(
    height: int,
    width: int,
    areas: tuple[float, float],
    ratios: tuple[float, float],
    generator: Generator,
) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of a random box, or None if none fits.

    Its share of the area is uniform in `areas`, the logarithm of width / height is uniform in that of `ratios`.
    """
    for _ in range(TRIES):
        area = generator.uniform(*areas) * height * width
        ratio = math.exp(generator.uniform(math.log(ratios[0]), math.log(ratios[1])))
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return int(generator.integers(height - h + 1)), int(generator.integers(width - w + 1)), h, w
    return None


def _resize(image: Tensor, height: int, width: int) -> Tensor:
    """Bicubic as in Pillow: on uint8, with antialiasing."""
    if image.shape[1:] == (height, width):
        return image
    return F.interpolate(image[None], size=(height, width), mode="bicubic", antialias=True)[0]


def _shift(image: Tensor, most: int, generator: Generator) -> Tensor:
    height, width = image.shape[1:]
    top, left = generator.integers(2 * most + 1, size=2)
    return F.pad(image, (most, most, most, most))[:, top : top + height, left : left + width]


# --- colours and shapes; values are in [0, 1]


def _rand_augment(x: Tensor, count: int, magnitude: tuple[float, float], fill: Tensor, generator: Generator) -> Tensor:
    """Apply `count` random operations; `magnitude` is the mean and the standard deviation of their strength."""
    table = list(operations().values())
    for place in generator.integers(len(table), size=count):
        if generator.random() < RAND_PROBABILITY:
            size = np.clip(generator.normal(*magnitude), 0, LARGEST_MAGNITUDE) / LARGEST_MAGNITUDE
            x = table[place](x, float(generator.choice([-1, 1]) * size), fill)
    return x


@cache
def operations() -> Mapping[str, Operation]:
    """The 15 operations of RandAugment, timm's "increasing" set.

    Each takes an image (channels, height, width) with values in [0, 1]; an amount from -1 to 1, of which many use only
    the absolute value; and a colour (channels,) to fill what lies outside the image.

    >>> import torch
    >>> from tnn.data.augmentation import operations
    >>> operations()["brightness"](torch.tensor([[[0.2, 0.4]]]), -1.0, torch.zeros(1))
    tensor([[[0.0200, 0.0400]]])
    """
    try:
        from kornia import enhance
    except ModuleNotFoundError:
        raise ModuleNotFoundError("augmentation needs kornia: pip install 'toeplitz-nn[vision]'") from None
    return {
        "autocontrast": lambda x, a, fill: _autocontrast(x),
        "equalize": lambda x, a, fill: enhance.equalize(x),
        "invert": lambda x, a, fill: 1 - x,
        "rotate": lambda x, a, fill: _warp(x, _rotation(x, 30 * a), fill),
        "posterize": lambda x, a, fill: enhance.posterize(x, 4 - int(4 * abs(a))),  # bits to keep
        "solarize": lambda x, a, fill: enhance.solarize(x, (1 - abs(a)) * 256 / 255),
        "solarize_add": lambda x, a, fill: torch.where(x < 128 / 255, (x + abs(a) * 110 / 255).clamp(max=1), x),
        "color": lambda x, a, fill: enhance.adjust_saturation_with_gray_subtraction(x, 1 + 0.9 * a),
        "contrast": lambda x, a, fill: enhance.adjust_contrast_with_mean_subtraction(x, 1 + 0.9 * a),
        "brightness": lambda x, a, fill: enhance.adjust_brightness_accumulative(x, 1 + 0.9 * a),
        "sharpness": lambda x, a, fill: enhance.sharpness(x, 1 + 0.9 * a),
        "shear_x": lambda x, a, fill: _warp(x, [[1, 0.3 * a, 0], [0, 1, 0]], fill),
        "shear_y": lambda x, a, fill: _warp(x, [[1, 0, 0], [0.3 * a, 1, 0]], fill),
        "translate_x": lambda x, a, fill: _warp(x, [[1, 0, 0.45 * a * x.shape[2]], [0, 1, 0]], fill),
        "translate_y": lambda x, a, fill: _warp(x, [[1, 0, 0], [0, 1, 0.45 * a * x.shape[1]]], fill),
    }


def _autocontrast(x: Tensor) -> Tensor:
    """Stretch each channel to [0, 1], unless it is constant."""
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def _rotation(x: Tensor, degrees: float) -> list[list[float]]:
    """The (2, 3) matrix of a rotation around the centre."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    v, u = (x.shape[1] - 1) / 2, (x.shape[2] - 1) / 2
    return [[cos, sin, u - cos * u - sin * v], [-sin, cos, v + sin * u - cos * v]]


def _warp(x: Tensor, matrix: list[list[float]], fill: Tensor) -> Tensor:
    """Move each point (column, row) of the image by the (2, 3) matrix; bicubic."""
    from kornia.geometry.transform import warp_affine

    size = (x.shape[1], x.shape[2])
    moved = warp_affine(x[None], torch.tensor([matrix]), size, mode="bicubic", padding_mode="fill", fill_value=fill)
    return moved[0].clamp(0, 1)  # bicubic overshoots


def _jitter(x: Tensor, most: float, generator: Generator) -> Tensor:
    from kornia import enhance

    adjustments = (
        enhance.adjust_brightness_accumulative,
        enhance.adjust_contrast_with_mean_subtraction,
        enhance.adjust_saturation_with_gray_subtraction,
    )
    for place in generator.permutation(len(adjustments)):
        x = adjustments[place](x, generator.uniform(max(0, 1 - most), 1 + most))
    return x


def _erase(x: Tensor, generator: Generator) -> None:
    """Replace a random box of a normalised image by noise, in place."""
    box = _random_box(x.shape[1], x.shape[2], ERASED_AREAS, ERASED_RATIOS, generator)
    if box is not None:
        top, left, h, w = box
        x[:, top : top + h, left : left + w] = torch.from_numpy(generator.standard_normal((len(x), h, w), np.float32))


# --- batches


def mixing_collate(
    augmentation: Augmentation, num_labels: int, seed: int
) -> Callable[[list[dict[str, Any]]], dict[str, Tensor]]:
    """A collate function for `TrainingImages` that applies mixup or cutmix to the batch.

    The first image is mixed with the last, and so on; the whole batch has the same lambda or the same box. With mixing
    or label smoothing, labels are class probabilities (batch, num_labels); otherwise they are class numbers (batch,).
    Examples without a `number` come from `EvaluationImages` and are not changed.

    >>> import torch
    >>> from tnn.data.augmentation import Augmentation, mixing_collate
    >>> examples = [{"pixel_values": torch.rand(3, 8, 8), "labels": torch.tensor(i), "number": i} for i in range(2)]
    >>> mixing_collate(Augmentation(), num_labels=2, seed=0)(examples)["labels"]
    tensor([0, 1])
    >>> mixing_collate(Augmentation(mixup=0.8), num_labels=2, seed=0)(examples)["labels"].sum(dim=1)
    tensor([1., 1.])
    """
    check_positive("num_labels", num_labels)
    return partial(_collate, augmentation, num_labels, seed)


def _collate(options: Augmentation, num_labels: int, seed: int, examples: list[dict[str, Any]]) -> dict[str, Tensor]:
    x = torch.stack([example["pixel_values"] for example in examples])  # (batch, channels, size, size)
    labels = torch.stack([example["labels"] for example in examples])  # (batch,)
    mixes = options.mixup > 0 or options.cutmix > 0
    if "number" not in examples[0] or not (mixes or options.label_smoothing):
        return {"pixel_values": x, "labels": labels}
    shares = F.one_hot(labels, num_labels) * (1 - options.label_smoothing) + options.label_smoothing / num_labels
    if mixes:
        generator = default_rng([seed, examples[0]["number"], MIXING])
        if generator.random() < options.mix_probability:
            x, kept = _mix(x, options, generator)
            shares = kept * shares + (1 - kept) * shares.flip(0)
    return {"pixel_values": x, "labels": shares}


def _mix(x: Tensor, options: Augmentation, generator: Generator) -> tuple[Tensor, float]:
    """The mixed images, possibly in place, and the share that each keeps of itself."""
    cut = generator.random() < options.mix_switch if options.mixup and options.cutmix else options.cutmix > 0
    if not cut:
        kept = float(generator.beta(options.mixup, options.mixup))
        return torch.lerp(x.flip(0), x, kept), kept
    share = math.sqrt(1 - generator.beta(options.cutmix, options.cutmix))  # of each side
    rows, columns = (_random_span(side, int(side * share), generator) for side in x.shape[2:])
    x[:, :, rows, columns] = x[:, :, rows, columns].flip(0)  # a copy
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return x, 1 - area / (x.shape[2] * x.shape[3])


def _random_span(side: int, length: int, generator: Generator) -> slice:
    """A span around a random position, clipped to the side."""
    start = int(generator.integers(side)) - length // 2
    return slice(max(start, 0), min(start + length, side))
