"""Augmentation: a function of seed and number; ranges, shapes and distributions of each step; mixed batches."""

import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from tnn.data import ShuffledEpochs
from tnn.data.augmentation import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Augmentation,
    EvaluationImages,
    TrainingImages,
    mixing_collate,
    operations,
)
from tnn.data.images import ImageSet

NOTHING = Augmentation()
DEIT = Augmentation(
    crop_scale=(0.08, 1.0),
    flip=0.5,
    jitter=0.4,
    rand_magnitude=9,
    erasing=0.25,
    mixup=0.8,
    cutmix=1.0,
    label_smoothing=0.1,
)
NAMES = list(operations())
IDENTITIES = set(NAMES) - {"autocontrast", "equalize", "invert", "posterize"}  # at amount 0


def noise(height, width, channels=3, seed=0):
    return torch.randint(0, 256, (channels, height, width), generator=torch.Generator().manual_seed(seed)).byte()


class Made:
    """Images by their index; a class, so that it can be pickled."""

    def __init__(self, height, width, channels):
        self.shape = (height, width, channels)

    def __call__(self, index):
        return noise(*self.shape, seed=index)


def image_set(height, width, channels=3, count=8):
    return ImageSet(("a", "b", "c", "d"), np.arange(count) % 4, Made(height, width, channels))


def training(wanted, images=None, size=16, seed=0, channels=3):
    plain = (0.0,) * channels, (1.0,) * channels
    return TrainingImages(images or image_set(size, size, channels), size, *plain, wanted, seed, channels)


def same(a, b):
    return torch.equal(a["pixel_values"], b["pixel_values"])


def batch_of(count, size=16, constant=False):
    """Examples of classes 0, 1, ...; constant: all pixels are the number of the class."""
    pixels = [torch.full((3, size, size), float(i)) if constant else torch.rand(3, size, size) for i in range(count)]
    return [{"pixel_values": x, "labels": torch.tensor(i), "number": 10 + i} for i, x in enumerate(pixels)]


# --- examples


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stored", [1, 3])
def test_an_example_is_a_function_of_seed_and_number(channels, stored):
    images = image_set(20, 30, stored)
    mean, std = IMAGENET_MEAN[:channels], IMAGENET_STD[:channels]
    first, second = (TrainingImages(images, 16, mean, std, DEIT, 3, channels) for _ in range(2))
    other = TrainingImages(images, 16, mean, std, DEIT, 4, channels)
    wanted = [first.draw(2, number) for number in range(20)]
    state = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    for number in reversed(range(20)):
        assert same(second.draw(2, number), wanted[number])
    assert torch.equal(torch.random.get_rng_state(), state[0])
    assert np.random.get_state()[1].tolist() == state[1]  # noqa: NPY002
    assert not any(same(wanted[0], example) for example in wanted[1:])
    assert not any(same(other.draw(2, number), wanted[number]) for number in range(20))
    assert same(first[2], wanted[2])
    assert wanted[5]["number"] == 5
    for example in wanted:
        assert (example["pixel_values"].dtype, example["pixel_values"].shape) == (torch.float32, (channels, 16, 16))
        assert example["pixel_values"].isfinite().all()
        assert (example["labels"].dtype, example["labels"].item()) == (torch.int64, 2)


def test_in_the_order_of_a_training():
    order = ShuffledEpochs(training(DEIT, image_set(20, 30)), seed=0, count=20)
    again = pickle.loads(pickle.dumps(order))
    assert [order[i]["number"] for i in range(20)] == list(range(20))
    assert all(same(order[i], again[i]) for i in (0, 7, 19))


@pytest.mark.parametrize("channels", [1, 3])
def test_without_augmentation_training_equals_evaluation(channels):
    for height, width in (16, 16), (20, 30), (30, 20), (7, 9):
        images = image_set(height, width, channels)
        mean, std = IMAGENET_MEAN[:channels], IMAGENET_STD[:channels]
        evaluated = EvaluationImages(images, 16, mean, std, channels)
        examples = TrainingImages(images, 16, mean, std, NOTHING, 0, channels)
        assert len(evaluated) == len(examples) == 8
        for i in range(4):
            assert same(evaluated[i], examples.draw(i, 100 + i))
            assert set(evaluated[i]) == {"pixel_values", "labels"}
            assert evaluated[i]["labels"] == i


def test_training_and_evaluation_see_the_same_part():
    images = image_set(40, 50)
    evaluated = EvaluationImages(images, 16, IMAGENET_MEAN, IMAGENET_STD, crop_fraction=0.5)
    examples = TrainingImages(images, 16, IMAGENET_MEAN, IMAGENET_STD, NOTHING, 0, crop_fraction=0.5)
    assert same(evaluated[1], examples[1])


def test_an_image_of_the_right_size_is_not_changed():
    images = image_set(16, 16)
    x = EvaluationImages(images, 16, IMAGENET_MEAN, IMAGENET_STD)[1]["pixel_values"]
    restored = x * torch.tensor(IMAGENET_STD).view(3, 1, 1) + torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
    assert torch.allclose(restored * 255, images[1].float(), atol=1e-3)


@pytest.mark.parametrize(("height", "width"), [(300, 450), (450, 300), (100, 100), (64, 97)])
def test_evaluation_resizes_as_pillow_does(height, width):
    smooth = torch.nn.functional.interpolate(noise(9, 9)[None].float(), (height, width), mode="bilinear")[0].byte()
    images = ImageSet(("a",), [0], lambda _: smooth)
    x = EvaluationImages(images, 56, (0,) * 3, (1,) * 3)[0]["pixel_values"] * 255
    scale = 64 / min(height, width)
    image = Image.fromarray(smooth.permute(1, 2, 0).numpy())
    resized = np.array(
        image.resize((max(64, int(width * scale)), max(64, int(height * scale))), Image.Resampling.BICUBIC)
    )
    top, left = (round((side - 56) / 2) for side in resized.shape[:2])
    expected = torch.from_numpy(resized[top : top + 56, left : left + 56]).permute(2, 0, 1)
    assert (x - expected).abs().max() <= 2.001


def test_grey_and_colour():
    grey, rgb = image_set(16, 16, 1), image_set(16, 16, 3)
    repeated = training(NOTHING, grey)[0]["pixel_values"]
    assert torch.equal(repeated, training(NOTHING, grey, channels=1)[0]["pixel_values"].expand(3, -1, -1))
    weighed = training(NOTHING, rgb, channels=1)[0]["pixel_values"] * 255
    expected = np.array(Image.fromarray(rgb[0].permute(1, 2, 0).numpy()).convert("L"))
    assert torch.equal(weighed.round(), torch.from_numpy(expected)[None].float())


# --- single steps


def test_flip():
    never, always, often = (training(Augmentation(flip=p)) for p in (0.0, 1.0, 0.5))
    assert torch.equal(always[0]["pixel_values"], never[0]["pixel_values"].flip(2))
    flipped = sum(same(often.draw(0, n), always[0]) for n in range(200))
    assert flipped + sum(same(often.draw(0, n), never[0]) for n in range(200)) == 200
    assert 70 <= flipped <= 130


def test_areas_and_ratios_of_crops():
    # The pixels encode their position, so the range of values in a crop gives its sides.
    y, x = torch.meshgrid(torch.arange(200), torch.arange(200), indexing="ij")
    images = ImageSet(("a",), [0], lambda _: torch.stack([y, x, 0 * x]).byte())
    examples = training(Augmentation(crop_scale=(0.25, 0.5)), images, size=32)
    shares, ratios, corners = [], [], []
    for number in range(150):
        rows, columns, _ = examples.draw(0, number)["pixel_values"] * 255
        # The outermost pixels stand for the middle of 1/32 of the side.
        h, w = ((rows[-1, 9] - rows[0, 9]) * 32 / 31).item(), ((columns[9, -1] - columns[9, 0]) * 32 / 31).item()
        shares.append(h * w / 200**2)
        ratios.append(w / h)
        corners.append((rows.min().item(), columns.min().item()))
    assert 0.22 < min(shares) < 0.3
    assert 0.45 < max(shares) < 0.54
    assert abs(np.mean(shares) - 0.375) < 0.02
    assert 0.7 < min(ratios) < 0.8
    assert 1.25 < max(ratios) < 1.42
    assert abs(np.mean(np.log(ratios))) < 0.05
    assert np.std(corners, axis=0).min() > 15


def test_a_crop_of_a_very_long_image_is_its_middle():
    stripes = torch.zeros(3, 4, 400, dtype=torch.uint8)
    stripes[:, :, 196:204] = 200
    examples = training(Augmentation(crop_scale=(0.9, 1.0)), ImageSet(("a",), [0], lambda _: stripes), size=8)
    assert (examples[0]["pixel_values"] * 255 > 100).all()


def test_the_complete_image_can_be_the_crop():
    square = training(Augmentation(crop_scale=(1.0, 1.0)))
    assert all(same(square.draw(0, n), square[0]) for n in range(5))  # no other shape fits


def test_shift():
    image = noise(16, 16).clamp(min=1)
    examples = training(Augmentation(shift=2), ImageSet(("a",), [0], lambda _: image))
    padded = torch.nn.functional.pad(image, (2, 2, 2, 2)) / 255
    views = {(i, j): padded[:, i : i + 16, j : j + 16] for i in range(5) for j in range(5)}
    seen = Counter()
    for number in range(300):
        x = examples.draw(0, number)["pixel_values"]
        (place,) = [place for place, view in views.items() if torch.equal(view, x)]
        seen[place] += 1
    assert len(seen) == 25


def test_erasing():
    black = ImageSet(("a",), [0], lambda _: torch.zeros(3, 40, 40, dtype=torch.uint8))
    examples = training(Augmentation(erasing=0.5), black, size=40)
    erased = [examples.draw(0, number)["pixel_values"] for number in range(300)]
    boxes = [x for x in erased if x.any()]
    assert 110 <= len(boxes) <= 190
    values, ratios = [], []
    for x in boxes:
        rows, columns = (x != 0).any(0).any(1).nonzero(), (x != 0).any(0).any(0).nonzero()
        h, w = (int(side.max() - side.min()) + 1 for side in (rows, columns))
        inside = x[:, int(rows.min()) : int(rows.max()) + 1, int(columns.min()) : int(columns.max()) + 1]
        assert (inside != 0).all()
        assert 0.01 < h * w / 1600 < 0.37
        assert 0.2 < w / h < 5
        values.append(inside.flatten())
        ratios.append(w / h)
    assert abs(np.mean(np.log(ratios))) < 0.2
    noise_values = torch.cat(values)
    assert abs(noise_values.mean()) < 0.02
    assert abs(noise_values.std() - 1) < 0.02


def test_erasing_comes_after_normalisation():
    black = ImageSet(("a",), [0], lambda _: torch.zeros(3, 40, 40, dtype=torch.uint8))
    examples = TrainingImages(black, 40, (0.5,) * 3, (0.01,) * 3, Augmentation(erasing=1.0), 0)
    x = examples[0]["pixel_values"]
    assert (x[x != -50].abs() < 7).all()
    assert (x != -50).float().mean() < 0.37


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_stays_in_range(channels):
    examples = training(Augmentation(jitter=0.4), channels=channels)
    plain = training(NOTHING, channels=channels)[0]
    drawn = [examples.draw(0, number)["pixel_values"] for number in range(50)]
    assert all(x.min() >= 0 and x.max() <= 1 for x in drawn)
    assert not any(torch.equal(x, plain["pixel_values"]) for x in drawn)
    means = torch.tensor([(x.mean() / plain["pixel_values"].mean()).item() for x in drawn])
    assert 0.5 < means.min() < 0.8
    assert 1.1 < means.max() < 1.5


def test_jitter_changes_colours():
    # Brightness and contrast map all pixels by a * x + b, saturation does not.
    muted = ImageSet(("a",), [0], lambda _: (noise(16, 16) // 8) + 100)
    x = training(NOTHING, muted)[0]["pixel_values"].flatten().numpy()
    examples = training(Augmentation(jitter=0.4), muted)
    errors = []
    for number in range(20):
        y = examples.draw(0, number)["pixel_values"].flatten().numpy()
        errors.append(np.abs(np.polyval(np.polyfit(x, y, 1), x) - y).max())
    assert np.median(errors) > 0.002


# --- RandAugment


def test_there_are_fifteen_operations():
    assert len(NAMES) == 15


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(
    amount=st.floats(-1, 1),
    channels=st.sampled_from([1, 3]),
    sides=st.tuples(st.integers(3, 20), st.integers(3, 20)),
    seed=st.integers(0, 99),
)
def test_operations_keep_shape_and_range(name, amount, channels, sides, seed):
    x = noise(*sides, channels, seed) / 255
    before = x.clone()
    y = operations()[name](x, amount, torch.full((channels,), 0.5))
    assert (y.shape, y.dtype) == (x.shape, torch.float32)
    assert y.min() >= 0
    assert y.max() <= 1
    assert torch.equal(x, before)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_identity_at_amount_0(name, channels):
    x = noise(24, 30, channels).clamp(10, 240) / 255
    y = operations()[name](x, 0.0, torch.full((channels,), 0.5))
    assert torch.allclose(x, y, atol=1e-5) == (name in IDENTITIES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("amount", [-0.9, 0.9])
def test_operations_change_the_image(name, amount):
    x = noise(24, 30).clamp(10, 240) / 255
    assert not torch.allclose(x, operations()[name](x, amount, torch.full((3,), 0.5)), atol=0.01)
    grey = x[:1]
    changed = operations()[name](grey, amount, torch.full((1,), 0.5))
    assert torch.equal(grey, changed) == (name == "color")


@pytest.mark.parametrize("level", [0, 37, 255])
def test_an_image_of_one_colour(level):
    x = torch.full((3, 8, 8), level / 255)
    for name in ("autocontrast", "equalize", "color", "contrast", "sharpness"):
        assert torch.allclose(operations()[name](x, 0.9, torch.zeros(3)), x, atol=1e-5)


def test_known_values():
    x = torch.tensor([[[0, 51, 102], [127, 128, 204], [230, 250, 255]]]) / 255
    fill = torch.tensor([0.5])

    def levels(name, amount):
        return (operations()[name](x, amount, fill) * 255).round().int().flatten().tolist()

    assert levels("invert", 0.3) == [255, 204, 153, 128, 127, 51, 25, 5, 0]
    assert levels("posterize", 0.9) == [0, 0, 0, 0, 128, 128, 128, 128, 128]  # one bit stays
    assert levels("posterize", -0.3) == [0, 32, 96, 96, 128, 192, 224, 224, 224]  # three
    assert levels("posterize", 1.0) == [0] * 9
    assert levels("solarize", 0.5) == [0, 51, 102, 127, 127, 51, 25, 5, 0]  # from 128 on
    assert levels("solarize_add", -1.0) == [110, 161, 212, 237, 128, 204, 230, 250, 255]  # below 128
    assert levels("brightness", -1.0) == [0, 5, 10, 13, 13, 20, 23, 25, 26]
    assert levels("translate_x", 1 / 1.35) == [128, 0, 51, 128, 127, 128, 128, 230, 250]  # by a pixel
    assert levels("translate_y", -1 / 1.35) == [127, 128, 204, 230, 250, 255, 128, 128, 128]
    assert levels("rotate", 0.0) == levels("shear_x", 0.0) == (x * 255).int().flatten().tolist()


PILLOW = {
    "autocontrast": lambda image, a: ImageOps.autocontrast(image),
    "equalize": lambda image, a: ImageOps.equalize(image),
    "invert": lambda image, a: ImageOps.invert(image),
    "posterize": lambda image, a: ImageOps.posterize(image, 4 - int(4 * abs(a))),
    "solarize": lambda image, a: ImageOps.solarize(image, 256 - int(256 * abs(a))),
    "color": lambda image, a: ImageEnhance.Color(image).enhance(1 + 0.9 * a),
    "contrast": lambda image, a: ImageEnhance.Contrast(image).enhance(1 + 0.9 * a),
    "brightness": lambda image, a: ImageEnhance.Brightness(image).enhance(1 + 0.9 * a),
    "sharpness": lambda image, a: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * a),
}


@pytest.mark.parametrize("name", PILLOW)
@pytest.mark.parametrize("amount", [-0.75, 0.25, 0.75])
def test_colours_equal_those_of_pillow(name, amount):
    image = noise(24, 30).clamp(10, 240)
    expected = PILLOW[name](Image.fromarray(image.permute(1, 2, 0).numpy()), amount)
    y = operations()[name](image / 255, amount, torch.zeros(3)) * 255
    assert (y - torch.from_numpy(np.array(expected)).permute(2, 0, 1)).abs().max() < 2


@pytest.mark.parametrize("direction", [-1, 1])
def test_rotation_is_around_the_centre(direction):
    x = torch.zeros(1, 41, 41)
    x[0, 18:23, 18:23] = 1
    x[0, 18:23, 33:38] = 0.6  # 15 to the right
    y = operations()["rotate"](x, float(direction), torch.zeros(1))[0]
    assert y[19:22, 19:22].min() > 0.95
    row, column = round(20 - direction * 15 * 0.5), round(20 + 15 * 0.866)  # 30 degrees
    assert y[row - 1 : row + 2, column - 1 : column + 2].mean() > 0.55


def test_two_operations_each_with_probability_one_half():
    drawn = []

    def noted(name):
        def operation(x, amount, fill):
            drawn.append((name, amount))
            return x

        return operation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tnn.data.augmentation.operations", lambda: {name: noted(name) for name in NAMES})
        examples = training(Augmentation(rand_magnitude=9))
        for number in range(1500):
            examples.draw(0, number)
    counts = Counter(name for name, _ in drawn)
    amounts = np.array([amount for _, amount in drawn])
    assert abs(len(drawn) - 1500) < 100
    assert set(counts) == set(NAMES)
    assert max(counts.values()) < 2 * min(counts.values())
    assert np.abs(amounts).max() <= 1
    assert abs(np.abs(amounts).mean() - 0.9) < 0.01
    assert abs(np.abs(amounts).std() - 0.05) < 0.005
    assert abs((amounts > 0).mean() - 0.5) < 0.05


# --- batches


def test_plain_batches():
    examples = batch_of(4)
    batch = mixing_collate(NOTHING, 4, seed=0)(examples)
    assert set(batch) == {"pixel_values", "labels"}
    assert batch["labels"].tolist() == [0, 1, 2, 3]
    assert batch["labels"].dtype == torch.int64
    assert torch.equal(batch["pixel_values"], torch.stack([example["pixel_values"] for example in examples]))


def test_batches_of_an_evaluation():
    evaluated = EvaluationImages(image_set(20, 30), 16, IMAGENET_MEAN, IMAGENET_STD)
    assert mixing_collate(NOTHING, 4, seed=0)([evaluated[i] for i in range(3)])["labels"].tolist() == [0, 1, 2]


def test_label_smoothing_alone():
    batch = mixing_collate(Augmentation(label_smoothing=0.1), 5, seed=0)(batch_of(3))
    expected = torch.full((3, 5), 0.02) + 0.9 * torch.eye(5)[:3]
    assert torch.allclose(batch["labels"], expected)
    assert batch["labels"].dtype == torch.float32


@settings(max_examples=60)
@given(
    count=st.integers(1, 7),
    mixup=st.sampled_from([0, 0.8]),
    cutmix=st.sampled_from([0, 1.0]),
    smoothing=st.sampled_from([0, 0.1]),
    seed=st.integers(0, 10**9),
)
def test_labels_are_the_shares_of_the_pixels(count, mixup, cutmix, smoothing, seed):
    wanted = Augmentation(mixup=mixup, cutmix=cutmix, label_smoothing=smoothing)
    batch = mixing_collate(wanted, 7, seed)(batch_of(count, constant=True))
    x, labels = batch["pixel_values"], batch["labels"]
    if labels.ndim == 1:
        assert not mixup + cutmix + smoothing
        return
    assert labels.shape == (count, 7)
    assert torch.allclose(labels.sum(1), torch.ones(count))
    # Pixels are class numbers, so their mean is the mean class by the label shares.
    shares = (labels - smoothing / 7) / (1 - smoothing)
    assert torch.allclose(x.mean((1, 2, 3)), shares @ torch.arange(7.0), atol=1e-4)
    assert torch.allclose(shares[:, :count], shares[:, :count].flip(0, 1), atol=1e-6)
    if not mixup:
        assert torch.equal(x, x.round())  # nothing is blended


def test_a_batch_is_a_function_of_seed_and_number():
    wanted = Augmentation(mixup=0.8, cutmix=1.0)
    examples = batch_of(4)
    before = [example["pixel_values"].clone() for example in examples]
    first, again = mixing_collate(wanted, 4, 1), pickle.loads(pickle.dumps(mixing_collate(wanted, 4, 1)))
    state = torch.random.get_rng_state()
    assert same(first(examples), again(examples))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not same(first(examples), mixing_collate(wanted, 4, 2)(examples))
    later = [example | {"number": example["number"] + 4} for example in examples]
    assert not same(first(examples), first(later))
    assert all(torch.equal(example["pixel_values"], x) for example, x in zip(examples, before, strict=True))


def mixed_by(wanted, batches=600):
    """How each of many batches was mixed, and its lambda."""
    kinds, kept = Counter(), []
    for number in range(batches):
        examples = [example | {"number": number} for example in batch_of(2, size=8, constant=True)]
        batch = mixing_collate(wanted, 2, 0)(examples)
        x = batch["pixel_values"][0]
        kept.append(batch["labels"][0, 0].item())
        kinds["nothing" if not x.any() else "cut" if torch.equal(x, x.round()) else "mixed"] += 1
    return kinds, np.array(kept)


def test_switch_and_probability():
    kinds, _ = mixed_by(Augmentation(mixup=0.8, cutmix=1.0))
    assert 230 < kinds["mixed"] < 370
    kinds, _ = mixed_by(Augmentation(mixup=0.8, cutmix=1.0, mix_switch=0.0, mix_probability=0.5))
    assert not kinds["cut"]
    assert 240 < kinds["mixed"] < 360


def test_lambda_is_beta():
    _, kept = mixed_by(Augmentation(mixup=0.8), 1500)
    assert abs(kept.mean() - 0.5) < 0.03
    assert abs(kept.var() - 1 / (4 * (2 * 0.8 + 1))) < 0.01


# --- what is refused


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"crop_scale": (0.0, 1.0)}, r"crop_scale must be .*; got \(0\.0, 1\.0\)"),
        ({"crop_scale": (0.5, 0.4)}, r"crop_scale must be"),
        ({"flip": 1.5}, r"flip must be in \[0, 1\]; got 1\.5"),
        ({"erasing": -0.1}, r"erasing must be in \[0, 1\]"),
        ({"mix_switch": 2.0}, r"mix_switch must be in"),
        ({"label_smoothing": float("nan")}, r"label_smoothing must be in"),
        ({"jitter": -1.0}, r"jitter must be finite and 0 or more"),
        ({"mixup": float("inf")}, r"mixup must be finite and 0 or more"),
        ({"rand_magnitude": 11}, r"rand_magnitude must be from 0 to 10; got 11"),
        ({"rand_count": 0}, r"rand_count must be at least 1; got 0"),
        ({"shift": -1}, r"shift must be at least 1; got -1"),
    ],
)
def test_bad_augmentations(wrong, message):
    with pytest.raises(ValueError, match=message):
        Augmentation(**wrong)


@pytest.mark.parametrize(
    ("size", "mean", "std", "channels", "message"),
    [
        (0, (0.5,), (0.5,), 1, r"size must be at least 1; got 0"),
        (8, (0.5,), (0.5,), 2, r"channels must be 1 \(grey\) or 3 \(RGB\); got 2"),
        (8, (0.5,), (0.5,), 3, r"one number per channel \(3\); got \(0\.5,\) and"),
        (8, (0.5,), (0.0,), 1, r"std must be more than 0; got \(0\.0,\)"),
    ],
)
def test_bad_settings(size, mean, std, channels, message):
    with pytest.raises(ValueError, match=message):
        TrainingImages(image_set(8, 8), size, mean, std, NOTHING, 0, channels)
    with pytest.raises(ValueError, match=message):
        EvaluationImages(image_set(8, 8), size, mean, std, channels)


def test_bad_crop_fraction():
    with pytest.raises(ValueError, match=r"crop_fraction must be in \(0, 1\]; got 2"):
        TrainingImages(image_set(8, 8), 8, IMAGENET_MEAN, IMAGENET_STD, NOTHING, 0, crop_fraction=2)
    with pytest.raises(ValueError, match=r"crop_fraction must be in \(0, 1\]; got 0"):
        EvaluationImages(image_set(8, 8), 8, IMAGENET_MEAN, IMAGENET_STD, crop_fraction=0)
