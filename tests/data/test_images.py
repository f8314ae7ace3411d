"""Images from folders, Hugging Face data sets and arrays: classes, splits, colours, what is refused."""

import os
import pickle
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from tnn.data.images import ImageSet, open_images

RNG = np.random.default_rng(0)


def make_image(height=6, width=8):
    return Image.fromarray(RNG.integers(0, 256, (height, width, 3), np.uint8))


def pixels(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def write_folder(root, splits=("train", "val"), classes=("b", "a", "c")):
    """Two images per split and class."""
    made = {}
    for split in splits:
        for name in classes:
            folder = root / split / name
            folder.mkdir(parents=True)
            made[split, name] = [make_image(width=8 + i) for i in range(2)]
            for i, image in enumerate(made[split, name]):
                image.save(folder / f"{i}.png")
    return made


def write_arrays(root, count=50):
    for split, size in ("train", count), ("test", 5):
        np.save(root / f"x_{split}.npy", np.arange(size * 12, dtype=np.int64).astype(np.uint8).reshape(size, 3, 4))
        np.save(root / f"y_{split}.npy", np.arange(size) % 5)


# --- folders


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_folders(tmp_path, validation):
    made = write_folder(tmp_path, ("train", validation, "test"))
    sets = open_images(str(tmp_path))
    assert list(sets) == ["train", "validation", "test"]
    for split, name in ("train", "train"), ("validation", validation), ("test", "test"):
        images = sets[split]
        assert images.classes == ("a", "b", "c")
        assert images.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert images.labels.dtype == np.int64
        for i in range(len(images)):
            assert images[i].dtype == torch.uint8
            assert torch.equal(images[i], pixels(made[name, "aabbcc"[i]][i % 2]))


def test_other_files_are_ignored(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "train" / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / "a" / "._0.png").write_text("not an image")
    (tmp_path / "train" / ".cache").mkdir()
    (tmp_path / "test").mkdir()
    make_image().save(tmp_path / "test" / "0.png")  # of no known class
    sets = open_images(str(tmp_path))
    assert {split: len(images) for split, images in sets.items()} == {"train": 6, "validation": 6}
    assert sets["train"].classes == ("a", "b", "c")


def test_images_below_a_class_and_in_other_formats(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "train" / "a" / "images").mkdir()
    make_image().save(tmp_path / "train" / "a" / "images" / "0.JPEG")
    assert open_images(str(tmp_path))["train"].labels.tolist() == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("L", "JPEG"), ("CMYK", "JPEG"), ("L", "png"), ("LA", "png"), ("P", "png"), ("RGBA", "png"), ("1", "png")],
)
def test_all_kinds_of_colour_become_rgb(tmp_path, mode, suffix):
    write_folder(tmp_path)
    saved = tmp_path / "train" / "a" / f"0.{suffix}"
    (tmp_path / "train" / "a" / "0.png").unlink()
    image = Image.new("RGB", (8, 6), (200, 200, 200)).convert(mode)
    image.save(saved, **({"transparency": b"\0\x80"} if mode == "P" else {}))
    read = open_images(str(tmp_path))["train"][0]
    assert read.shape == (3, 6, 8)
    expected = 255 if mode == "1" else 200  # two colours are black and white, dithered
    assert (read.float().mean() - expected).abs() < (60 if mode == "1" else 3)


def test_grey_of_16_bits(tmp_path):
    write_folder(tmp_path)
    levels = np.arange(48, dtype=np.uint16).reshape(6, 8) * 1300
    Image.fromarray(levels).save(tmp_path / "train" / "a" / "0.png")
    expected = torch.from_numpy((levels // 256).astype(np.uint8)).expand(3, 6, 8)
    assert torch.equal(open_images(str(tmp_path))["train"][0], expected)


def test_a_damaged_image_is_named(tmp_path):
    write_folder(tmp_path)
    path = tmp_path / "val" / "b" / "1.png"
    path.write_bytes(path.read_bytes()[:80])
    images = open_images(str(tmp_path))["validation"]
    assert images[2].shape == (3, 6, 8)
    with pytest.raises(ValueError, match=r"^[^\n]*val.b.1\.png is not a valid image: [^\n]*$"):
        images[3]
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"val.b.1\.png does not exist any more"):
        images[3]


def test_a_class_without_images(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "train" / "d").mkdir()
    with pytest.raises(ValueError, match=r"train.d has no images \(\.jpeg, .*\): each class must have at least one"):
        open_images(str(tmp_path))


def test_other_classes(tmp_path):
    write_folder(tmp_path, ("train",))
    write_folder(tmp_path, ("val",), ("a", "b"))
    with pytest.raises(ValueError, match=r"validation must have the same classes as train; 'c' differs"):
        open_images(str(tmp_path))


def test_no_class_folders_in_validation(tmp_path):
    write_folder(tmp_path, ("train",))
    (tmp_path / "val").mkdir()
    make_image().save(tmp_path / "val" / "0.png")
    with pytest.raises(ValueError, match=r"val has no folders: there must be one folder of images per class"):
        open_images(str(tmp_path))


def test_two_folders_for_validation(tmp_path):
    write_folder(tmp_path, ("train", "val", "validation"))
    with pytest.raises(ValueError, match=r"must have one folder for validation; got validation and val"):
        open_images(str(tmp_path))


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no images: it must have image files in train/CLASS/"):
        open_images(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no images at .*nowhere: it must be a folder"):
        open_images(str(tmp_path / "nowhere"))


# --- arrays


def test_arrays(tmp_path):
    write_arrays(tmp_path)
    sets = open_images(str(tmp_path))
    assert {split: len(images) for split, images in sets.items()} == {"train": 45, "validation": 5, "test": 5}
    assert all(images.classes == ("0", "1", "2", "3", "4") for images in sets.values())
    assert torch.equal(sets["test"][1], torch.arange(12, 24, dtype=torch.uint8).view(1, 3, 4))


def test_colour_arrays(tmp_path):
    write_arrays(tmp_path)
    rgb = RNG.integers(0, 256, (5, 3, 4, 3), np.uint8)
    np.save(tmp_path / "x_test.npy", rgb)
    assert torch.equal(open_images(str(tmp_path))["test"][2], torch.from_numpy(rgb[2]).permute(2, 0, 1))


def test_validation_is_the_last_tenth_of_a_permutation(tmp_path):
    write_arrays(tmp_path)
    sets = open_images(str(tmp_path))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(42)).tolist()
    stored = np.load(tmp_path / "x_train.npy")
    for split, places in ("train", order[:45]), ("validation", order[45:]):
        assert sets[split].labels.tolist() == [place % 5 for place in places]
        for i, place in enumerate(places):
            assert np.array_equal(sets[split][i][0].numpy(), stored[place])


def test_too_few_images_for_a_validation_set(tmp_path):
    write_arrays(tmp_path, count=9)
    with pytest.raises(ValueError, match=r"has no validation set, and its 9 training images are too few"):
        open_images(str(tmp_path))


def test_a_class_that_train_does_not_have(tmp_path):
    write_arrays(tmp_path)
    np.save(tmp_path / "y_test.npy", np.array([0, 1, 2, 3, 7]))
    with pytest.raises(ValueError, match=r"a test image has label 7, which train does not have"):
        open_images(str(tmp_path))


# --- Hugging Face data sets


def make_table(names=("dog", "cat"), count=4, columns=("image", "label"), labels=None):
    from datasets import ClassLabel, Dataset, Features, Value
    from datasets import Image as ImageFeature

    made = [make_image(width=8 + i) for i in range(count)]
    labels = [i % 2 for i in range(count)] if labels is None else labels
    kinds = (ImageFeature(), ClassLabel(names=list(names)) if names else Value("int64"))
    features = Features(dict(zip(columns, kinds, strict=True)))
    return made, Dataset.from_dict(dict(zip(columns, (made, labels), strict=True)), features=features)


def save_tables(folder, tables, form):
    from datasets import DatasetDict

    if form == "saved":
        DatasetDict(tables).save_to_disk(folder)
    else:
        for split, table in tables.items():
            table.to_parquet(folder / f"{split}-00000-of-00001.parquet")


@pytest.fixture(autouse=True)
def _no_shared_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("form", ["saved", "parquet"])
@pytest.mark.parametrize("columns", [("image", "label"), ("img", "fine")])
def test_tables(tmp_path, form, columns):
    made, train = make_table(columns=columns)
    save_tables(tmp_path, {"train": train, "validation": make_table(columns=columns)[1]}, form)
    sets = open_images(f"hf:{tmp_path}")
    assert list(sets) == ["train", "validation"]
    assert sets["train"].classes == ("dog", "cat")  # as the data set numbers them
    assert sets["train"].labels.tolist() == [0, 1, 0, 1]
    for i, image in enumerate(made):
        assert torch.equal(sets["train"][i], pixels(image))


def test_tables_without_validation_or_names(tmp_path):
    _, train = make_table(names=(), count=20)
    save_tables(tmp_path, {"train": train, "test": make_table(names=())[1]}, "saved")
    sets = open_images(f"hf:{tmp_path}")
    assert {split: len(images) for split, images in sets.items()} == {"train": 18, "validation": 2, "test": 4}
    assert sets["test"].classes == ("0", "1")


def test_tables_without_labels(tmp_path):
    tables = {split: make_table()[1] for split in ("train", "validation")}
    save_tables(tmp_path, tables | {"test": make_table(labels=[-1] * 4)[1]}, "saved")
    assert list(open_images(f"hf:{tmp_path}")) == ["train", "validation"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"labels": [0, 1, -1, 0]}, r"train of hf:.*: labels must be 0 or more; got -1"),
        ({"names": (), "columns": ("image", "kind")}, r"no column 'label'; it has image, kind"),
        ({"count": 0}, r"cannot load the Hugging Face data set .* no data"),
    ],
)
def test_bad_tables(tmp_path, table, message):
    save_tables(tmp_path, {"train": make_table(**table)[1]}, "parquet")
    with pytest.raises(ValueError, match=message):
        open_images(f"hf:{tmp_path}")


def test_a_damaged_image_of_a_table(tmp_path):
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageFeature

    features = Features({"image": ImageFeature(), "label": Value("int64")})
    rows = {"image": [{"bytes": b"not an image", "path": None}] * 10, "label": [0] * 10}
    save_tables(tmp_path, {"train": Dataset.from_dict(rows, features=features)}, "saved")
    images = open_images(f"hf:{tmp_path}")["train"]
    with pytest.raises(ValueError, match=r"^image \d of train of hf:[^\n]* is not a valid image: [^\n]*$"):
        images[0]


def test_no_such_table(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"^cannot load the Hugging Face data set [^\n]*empty: [^\n]*$"):
        open_images(f"hf:{tmp_path / 'empty'}")


# --- sets


@pytest.mark.parametrize("write", [write_folder, write_arrays])
def test_sets_can_be_pickled(tmp_path, write):
    write(tmp_path)
    images = open_images(str(tmp_path))["validation"]
    copy = pickle.loads(pickle.dumps(images))
    assert copy.classes == images.classes
    assert all(torch.equal(copy[i], images[i]) for i in range(len(images)))


def test_an_index_too_far():
    images = ImageSet(("a",), [0, 0], lambda i: torch.zeros(1, 2, 2, dtype=torch.uint8))
    for index in (-1, 2):
        with pytest.raises(IndexError, match=rf"index {index} is not one of 0 to 1"):
            images[index]


def test_a_pipe_is_not_opened(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "val" / "b" / "1.png").unlink()
    os.mkfifo(tmp_path / "val" / "b" / "1.png")
    with pytest.raises(ValueError, match=r"val.b.1\.png is not a file"):
        open_images(str(tmp_path))["validation"][3]


@pytest.mark.parametrize("side", [10_000, 20_000])  # Pillow would warn of the first, and refuse the second
def test_huge_images_are_not_decoded(tmp_path, side):
    write_folder(tmp_path)
    Image.new("1", (side, side)).save(tmp_path / "val" / "b" / "1.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are errors in the tests, but not elsewhere
        with pytest.raises(ValueError, match=rf"1\.png is not a valid image: Image size \({side**2} pixels\) exceeds"):
            open_images(str(tmp_path))["validation"][3]
