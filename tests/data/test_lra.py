"""Long-Range Arena: files in the published layouts, both flavours against their definitions, splits, batches."""

import gzip
import lzma
import pickle
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, random_split
from transformers import AutoTokenizer

from tnn.data import byte_tokenizer
from tnn.data.lra import LRA_TASKS, collate_lra, find_lra_task, load_lra
from tnn.data.lra.pixels import ImageFiles
from tnn.data.lra.sources import Row
from tnn.data.lra.texts import TextSet
from tnn.data.lra.vocabulary import make_lra_tokenizer

TREE, TREE_VALUE = "( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ]", 9
PAPER = """b'A \\\\n "study" of it\\\\xe2'"""  # as Python prints bytes; quotes are ordinary characters


def write_reviews(folder, texts=("good", "bad"), labels=(1, 0), splits=("train", "test")):
    rows = [f"{label}\t7\t{i}\ttrain\t{text}\n" for i, (text, label) in enumerate(zip(texts, labels, strict=True))]
    folder.mkdir(exist_ok=True)
    for split in splits:
        (folder / f"{split}.tsv").write_text("label\trating\tid\tsplit_in_source\ttext\n" + "".join(rows))
    return folder


def write_listops(folder, rows=((TREE, TREE_VALUE),), splits=("train", "val", "test")):
    for split in splits:
        lines = [f"{source}\t{target}\n" for source, target in rows]
        (folder / f"basic_{split}.tsv").write_text("Source\tTarget\n" + "".join(lines))
    return folder


def write_pairs(folder, rows=(f"1.0\tJ00-1\tP01-2\t{PAPER}\tb'B'", "0.0\tJ00-1\tW02-3\tb'A'\tb'CC'")):
    for split in ("train", "eval", "test"):
        (folder / f"new_aan_pairs.{split}.tsv").write_text("\n".join(rows) + "\n")
    return folder


def write_arrays(folder, images, labels, test=4):
    for split, part in (("train", slice(None)), ("test", slice(test))):
        np.save(folder / f"x_{split}.npy", images[part])
        np.save(folder / f"y_{split}.npy", labels[part])
    return folder


def write_pathfinder(folder, count=20, size=32, parts=2, level="curv_contour_length_14"):
    """Image k has the value k at its first pixel, and the label k % 2."""
    from PIL import Image

    home = folder / level
    (home / "metadata").mkdir(parents=True)
    for part in range(parts):
        (home / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for place in range(count // parts):
            k = part * (count // parts) + place
            pixels = np.full((size, size), 255, np.uint8)
            pixels[0, 0] = k
            Image.fromarray(pixels).save(home / "imgs" / str(part) / f"sample_{place}.png")
            lines.append(f"imgs/{part} sample_{place}.png {place} {k % 2} 1.0 14 4 2 0.5 1\n")
        (home / "metadata" / f"{part + 9}.npy").write_text("".join(lines))  # 9 before 10: by number, not by name
    return home


def load(task, source, **settings):
    return load_lra(task, source, check_counts=False, **settings)


def ids(data, split="train", key="input_ids"):
    return [item[key].tolist() for item in data.sets[split]]


# --- the table


def test_the_published_table():
    lengths = {name: (task.num_labels, *(f.length for f in task.flavours.values())) for name, task in LRA_TASKS.items()}
    assert lengths == {
        "text": (2, 4096, 4000),
        "listops": (10, 2048, 2000),
        "retrieval": (2, 4000, 4000),
        "image": (10, 1024, 1024),
        "pathfinder": (2, 1024, 1024),
        "pathx": (2, 16384),
    }
    skyformer = {name: task.flavours["skyformer"] for name, task in LRA_TASKS.items() if name != "pathx"}
    assert [f.vocab_size for f in skyformer.values()] == [512, 32, 512, 256, 512]
    assert [f.padded for f in skyformer.values()] == [4096, 2048, 4096, None, None]
    assert tuple(LRA_TASKS["retrieval"].counts.values()) == (147_086, 18_090, 17_437)


@pytest.mark.parametrize(
    ("name", "hint"), [("listop", "'listops'"), ("Text", "'text'"), ("x", "'text', 'listops', 'ret")]
)
def test_unknown_task(tmp_path, name, hint):
    for call in (find_lra_task, lambda name: load_lra(name, tmp_path)):
        with pytest.raises(ValueError, match=f"no task '{name}' in Long-Range Arena; .*{hint}"):
            call(name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"flavour": "s4"}, "the flavour of text must be one of 'tnn', 'skyformer'; got 's4'"),
        ({"splits": ["dev"]}, "a split must be one of 'train', 'validation', 'test'; got 'dev'"),
        ({"splits": []}, "splits must name at least one"),
        ({"length": 1}, "length must be at least 2, for a token and the end token; got 1"),
        ({"length": 0}, "length must be at least 1"),
        ({"tokenizer": byte_tokenizer()}, "the tokenizer does not fit text: padding must have id 0; got 1"),
    ],
)
def test_bad_settings(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        load_lra("text", write_reviews(tmp_path), **settings)
    with pytest.raises(ValueError, match="the flavour of pathx must be one of 'tnn'"):
        load_lra("pathx", tmp_path, flavour="skyformer")
    with pytest.raises(ValueError, match="length of image must be 1,024, its number of pixels; got 64"):
        load_lra("image", tmp_path, length=64)


# --- tokenizers

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("ab \n"), max_size=12))
WORDS = st.lists(
    st.sampled_from(["[MIN", "[MAX", "]", "(", ")", "0", "1", "[a]", "((b)", "c(d", "_", "<eos>", "1<eos>", "\n", "  "])
)
SENTENCES = st.lists(WORDS.map(" ".join), max_size=5)


@given(texts=TEXTS, least=st.integers(1, 3))
def test_characters(texts, least):
    counts = Counter(character for text in texts for character in text)
    frequent = sorted((c for c in counts if counts[c] >= least), key=lambda c: (-counts[c], c))
    tokens = ["<pad>", "<unk>", "<eos>", *frequent]
    tokenizer = make_lra_tokenizer("characters", 8, texts, least)
    assert tokenizer.get_vocab() == {token: i for i, token in enumerate(tokens)}
    for text in [*texts, "<pad> z"]:
        known = [tokens.index(c) if c in frequent else 1 for c in text]
        assert tokenizer(text, truncation=True)["input_ids"] == [*known[:7], 2]
        assert tokenizer.decode([i for i in known if i != 1]) == "".join(c for c in text if c in frequent)


@pytest.mark.slow
@given(text=st.text(max_size=20))
def test_bytes(text):
    tokenizer = make_lra_tokenizer("bytes", 16)
    assert tokenizer(text)["input_ids"] == [byte + 1 for byte in text.encode()]
    assert (tokenizer.pad_token_id, len(tokenizer)) == (0, 257)


@given(texts=SENTENCES)
def test_listops_tokens_and_words(texts):
    rules = {
        "listops": (
            lambda s: s.replace("(", "").replace(")", "").replace("]", "X").split(),
            ["<pad>", "<unk>", "<eos>"],
        ),
        "words": (lambda s: re.findall(r"\w+", s), ["<pad>", "<unk>"]),
    }
    for kind, (rule, special) in rules.items():
        counts = Counter(word for text in texts for word in rule(text))
        tokens = [*special, *sorted(set(counts).difference(special), key=lambda w: (-counts[w], w))]
        tokenizer = make_lra_tokenizer(kind, 64, texts)
        assert tokenizer.get_vocab() == {token: i for i, token in enumerate(tokens)}
        for text in texts:
            assert tokenizer.tokenize(text) == rule(text)
            assert tokenizer(text)["input_ids"] == [tokens.index(w) for w in rule(text)] + [2] * (kind == "listops")


@given(texts=TEXTS | SENTENCES, new=st.text(max_size=9), length=st.integers(2, 12))
def test_a_text_has_the_ids_that_its_tokenizer_gives(texts, new, length):
    for kind in ("characters", "bytes", "listops", "words"):
        tokenizer = make_lra_tokenizer(kind, length, texts, min_frequency=2)
        rows = [Row((text,), 0) for text in [*texts, new, *(text + new for text in texts)]]
        dataset = TextSet(rows, tokenizer, length, words=kind in ("listops", "words"))
        for row, item in zip(rows, dataset, strict=True):
            assert item["input_ids"].tolist() == tokenizer(row.texts[0], truncation=True)["input_ids"]


@pytest.mark.parametrize("kind", ["characters", "bytes", "listops", "words"])
def test_tokenizers_can_be_saved(tmp_path, kind):
    tokenizer = make_lra_tokenizer(kind, 6, [TREE])
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in (TREE, "[MAX <eos> <pad> 77 ]"):
        assert loaded(text, truncation=True) == tokenizer(text, truncation=True)
        assert len(loaded(text, truncation=True)["input_ids"]) <= 6
    assert (loaded.pad_token_id, loaded.padding_side) == (0, "right")


def test_another_tokenizer_is_refused():
    from tnn.data import train_bpe

    tokenizer = train_bpe(["the cat", "the cat", "the mat"], 270)
    for words in (False, True):
        with pytest.raises(ValueError, match=r"the tokenizer must be one of make_lra_tokenizer, with .* as tokens"):
            TextSet([], tokenizer, 8, words=words)


# --- text


def test_reviews(tmp_path):
    data = load("text", write_reviews(tmp_path, ["a" * 20 + ' "<br />', "b" * 15], [1, 0]), length=24)
    assert data.tokenizer.get_vocab() == {"<pad>": 0, "<unk>": 1, "<eos>": 2, "a": 3, "b": 4}
    assert ids(data) == [[3] * 20 + [1] * 3 + [2], [4] * 15 + [2]]
    assert data.sets["validation"] is data.sets["test"]
    assert data.sets["train"].labels.tolist() == [1, 0]
    assert data.summary == (
        "text as tnn reads it: train 2 (largest class 50.0%), validation (the test set), "
        "test 2 (largest class 50.0%); vocabulary 5; longest 24 of 24 tokens"
    )


def test_the_vocabulary_covers_what_models_see(tmp_path):
    data = load("text", write_reviews(tmp_path, ["aab"] * 15, [0] * 15), length=3)  # "aa" and the end
    assert set(data.tokenizer.get_vocab()) == {"<pad>", "<unk>", "<eos>", "a"}
    assert ids(data, "test") == [[3, 3, 2]] * 15


def test_files_are_utf8_with_or_without_a_mark(tmp_path):
    (tmp_path / "test.tsv").write_bytes("\ufefflabel\ttext\n1\té\n".encode())
    assert ids(load("text", tmp_path, flavour="skyformer", length=3, splits=["test"]), "test") == [[196, 170, 0]]
    (tmp_path / "test.tsv").write_bytes(b"label\ttext\n1\t\xff\n")
    with pytest.raises(ValueError, match=r"test\.tsv is not a UTF-8 text"):
        load("text", tmp_path, flavour="skyformer", splits=["test"])


@pytest.mark.parametrize("inside", ["", "aclImdb"])
def test_reviews_in_their_own_folders(tmp_path, inside):
    for split in ("train", "test"):
        for sentiment, text in (("neg", "né"), ("pos", "yes")):
            (tmp_path / inside / split / sentiment).mkdir(parents=True)
            (tmp_path / inside / split / sentiment / "0_9.txt").write_text(text, encoding="utf-8")
    (tmp_path / inside / "train" / "pos" / "0_9.txt").unlink()
    (tmp_path / inside / "train" / "pos" / "0_9.txt.gz").write_bytes(gzip.compress(b"yes", mtime=0))
    data = load("text", tmp_path, flavour="skyformer", length=4)
    for split in ("train", "validation", "test"):
        assert [item["labels"].item() for item in data.sets[split]] == [0, 1]
        assert ids(data, split) == [[111, 196, 170, 0], [122, 102, 116, 0]]
        assert ids(data, split, "attention_mask") == [[1, 1, 1, 0], [1, 1, 1, 0]]
    (tmp_path / inside / "test" / "neg" / "0_9.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"0_9\.txt is not a UTF-8 text"):
        load("text", tmp_path)
    (tmp_path / inside / "test" / "neg" / "0_9.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*test.neg.\*\.txt: text needs aclImdb of https"):
        load("text", tmp_path)


@pytest.mark.parametrize("form", ["disk", "parquet"])
def test_reviews_as_a_data_set(tmp_path, monkeypatch, form):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    tables = datasets.DatasetDict(
        {split: datasets.Dataset.from_dict({"text": [split], "label": [1]}) for split in ("train", "test")}
    )
    if form == "disk":
        tables.save_to_disk(tmp_path / "imdb")
    else:
        (tmp_path / "imdb" / "plain_text").mkdir(parents=True)
        for split, table in tables.items():
            table.to_parquet(tmp_path / "imdb" / "plain_text" / f"{split}-00000-of-00001.parquet")
    data = load("text", f"hf:{tmp_path / 'imdb'}", flavour="skyformer", length=8)
    assert data.tokenizer.decode([i for i in ids(data, "validation")[0] if i]) == "test"
    with pytest.raises(ValueError, match=r"only the task text can come from hf:.*; listops needs listops-1000"):
        load("listops", f"hf:{tmp_path / 'imdb'}")
    monkeypatch.setattr("datasets.load_dataset", lambda name: {"train": tables["train"].remove_columns("label")})
    with pytest.raises(ValueError, match="hf:stanfordnlp/imdb: no column 'label'; it has text"):
        load("text", "hf:stanfordnlp/imdb", splits=["train"])
    with pytest.raises(FileNotFoundError, match="hf:stanfordnlp/imdb has no split 'test'; it has train"):
        load("text", "hf:stanfordnlp/imdb", flavour="skyformer", splits=["test"])


# --- listops and retrieval


def test_listops(tmp_path):
    write_listops(tmp_path)
    data = load("listops", tmp_path)
    assert data.tokenizer.decode(ids(data, "test")[0]) == "[MAX 2 9 [MIN 4 7 X X <eos>"
    assert data.sets["validation"][0]["labels"].item() == TREE_VALUE
    assert set(data.sets["train"][0]) == {"input_ids", "labels"}
    data = load("listops", tmp_path, flavour="skyformer")
    item = data.sets["test"][0]
    assert data.tokenizer.decode(item["input_ids"][:6]) == "MAX 2 9 MIN 4 7"  # brackets are lost
    assert item["input_ids"].shape == (2048,)
    assert item["attention_mask"].tolist() == [1] * 6 + [0] * 2042


def test_retrieval(tmp_path):
    write_pairs(tmp_path)
    data = load("retrieval", tmp_path)
    first = data.sets["test"][0]
    assert data.tokenizer.decode(first["input_ids"]) == PAPER + "<eos>"
    assert data.tokenizer.decode(first["pair_input_ids"]) == "b'B'<eos>"
    assert data.sets["train"].labels.tolist() == [1, 0]
    padded = load("retrieval", tmp_path, flavour="skyformer").sets["validation"][1]
    assert {key: tuple(value.shape) for key, value in padded.items()} == {
        "input_ids": (4096,),
        "attention_mask": (4096,),
        "pair_input_ids": (4096,),
        "pair_attention_mask": (4096,),
        "labels": (),
    }
    assert padded["pair_attention_mask"].sum() == len("b'CC'")


def test_a_trained_tokenizer_replaces_the_training_split(tmp_path):
    trained = load("listops", write_listops(tmp_path, [("[MAX 1 2 ]", 2)])).tokenizer
    (tmp_path / "basic_train.tsv").unlink()
    write_listops(tmp_path, [("[MAX 1 3 ]", 3)], ["test"])
    data = load("listops", tmp_path, splits=["test"], tokenizer=trained)
    assert data.tokenizer is trained
    assert trained.decode(ids(data, "test")[0]) == "[MAX 1 <unk> X <eos>"
    with pytest.raises(FileNotFoundError, match=r"basic_train\.tsv: listops needs .*`tnn data generate listops --out"):
        load("listops", tmp_path, splits=["test"])


@pytest.mark.parametrize(("suffix", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files(tmp_path, suffix, compress):
    expected = {}
    for task, write in (("text", write_reviews), ("listops", write_listops), ("retrieval", write_pairs)):
        (tmp_path / task).mkdir()
        write(tmp_path / task)
        expected[task] = ids(load(task, tmp_path / task), "test")
        for path in (tmp_path / task).iterdir():
            path.with_name(path.name + suffix).write_bytes(compress(path.read_bytes()))
            path.unlink()
        assert ids(load(task, tmp_path / task), "test") == expected[task]


@pytest.mark.parametrize(
    ("task", "name", "text", "message"),
    [
        ("text", "train.tsv", "label\tbody\n", "train.tsv: no column 'text' in its first line, 'label | body'"),
        ("text", "train.tsv", "label\ttext\n0\n", "train.tsv, line 2: needs 2 columns; got 1"),
        ("text", "train.tsv", "label\ttext\n\n2\ta\n", "line 3: a label of text must be from 0 to 1; got '2'"),
        ("text", "train.tsv", "label\ttext\n", "text: the train split is empty"),
        ("listops", "basic_train.tsv", "Source\tTarget\n1\t10\n", "line 2: a label of listops must be from 0 to 9"),
        ("listops", "basic_train.tsv", "", "basic_train.tsv: no column 'Source' in its first line, ''"),
        ("retrieval", "new_aan_pairs.train.tsv", "1.0\ta\tb\tc\n", "line 1: needs 5 columns; got 4"),
        ("retrieval", "new_aan_pairs.train.tsv", "0.5\ta\tb\tc\td\n", "must be from 0 to 1; got '0.5'"),
        ("retrieval", "new_aan_pairs.train.tsv", "yes\ta\tb\tc\td\n", "must be from 0 to 1; got 'yes'"),
    ],
)
def test_bad_files(tmp_path, task, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load(task, tmp_path, splits=["train"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("text", r"there is neither .*train\.tsv nor .*train: text needs aclImdb of https.*or hf:stanfordnlp/imdb"),
        ("listops", r"there is no .*basic_train\.tsv: listops needs .*tnn data generate listops --out DIR"),
        ("retrieval", r"there is no .*new_aan_pairs\.train\.tsv: retrieval needs tsv_data in lra_release\.gz"),
        ("image", r"holds no images as arrays.*; image needs CIFAR-10 of https"),
        ("pathfinder", r"there is no .*curv_contour_length_14.metadata: pathfinder needs .*generate pathfinder --out"),
        ("pathx", r"there is no .*curv_contour_length_14.metadata: pathx needs pathfinder128 in"),
    ],
)
def test_missing_files(tmp_path, task, message):
    with pytest.raises(FileNotFoundError, match=message):
        load_lra(task, tmp_path)


def test_counts_must_be_those_published(tmp_path):
    message = "text: the train split must have 25,000 examples, as published; got 2; check_counts=False"
    with pytest.raises(ValueError, match=message):
        load_lra("text", write_reviews(tmp_path / "text"))
    write_pathfinder(tmp_path)
    with pytest.raises(
        ValueError, match="pathfinder: the train split must have 160,000 examples, as published; got 16"
    ):
        load_lra("pathfinder", tmp_path)
    write_arrays(tmp_path, np.zeros((50, 32, 32), np.uint8), np.zeros(50, int))
    with pytest.raises(ValueError, match="image: the validation split must have 5,000 examples, as published; got 5"):
        load_lra("image", tmp_path, splits=["validation"])


# --- images


def numbered(count):
    """Images whose first pixel is their number."""
    images = np.full((count, 32, 32), 200, np.uint8)
    images[:, 0, 0] = np.arange(count)
    return images


def test_image_is_split_as_torch_does(tmp_path):
    write_arrays(tmp_path, numbered(50), np.arange(50) % 10)
    data = load("image", tmp_path, flavour="skyformer")
    parts = random_split(range(50), [45, 5], generator=torch.Generator().manual_seed(42))
    for split, part in zip(("train", "validation"), parts, strict=True):
        assert [row[0] for row in ids(data, split)] == list(part)
        assert [item["labels"].item() for item in data.sets[split]] == [k % 10 for k in part]
    assert [row[0] for row in ids(data, "test")] == [0, 1, 2, 3]


def test_pixels_are_numbers_or_ids(tmp_path):
    write_arrays(tmp_path, numbered(50), np.arange(50) % 10)
    data = load("image", tmp_path, splits=["test"])
    pixels = data.sets["test"][3]["pixel_values"]
    assert (pixels.shape, pixels.dtype, data.tokenizer) == ((1, 32, 32), torch.float32, None)
    assert pixels[0, 0, 0].item() == pytest.approx((3 - 122.6) / 61, abs=1e-6)
    assert pixels[0, 31, 31].item() == pytest.approx((200 - 122.6) / 61, abs=1e-6)
    black, other = load("image", tmp_path, flavour="skyformer").sets["test"][0], data.sets["test"][1]
    assert black["attention_mask"].tolist() == [0] + [1] * 1023  # the first pixel is black, which counts as padding
    assert black["input_ids"].dtype == other["labels"].dtype == torch.long


@given(seed=st.integers(0, 1000))
def test_grey_equals_that_of_pillow(seed):
    from PIL import Image

    from tnn.data.lra.pixels import _grey

    images = np.random.default_rng(seed).integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])
    assert np.array_equal(_grey(images), expected)


def test_colours_become_grey(tmp_path):
    write_arrays(tmp_path, np.full((50, 32, 32, 3), (255, 0, 0), np.uint8), np.zeros(50, int))
    assert ids(load("image", tmp_path, flavour="skyformer"), "test")[0] == [76] * 1024


@pytest.mark.parametrize(
    ("shape", "label", "message"),
    [
        ((20, 28, 28), 0, "images must have 32 x 32 pixels; got 28 x 28"),
        ((20, 32, 32), 10, "a label of image must be from 0 to 9; got 10"),
        ((9, 32, 32), 0, "image: the validation split is empty"),
    ],
)
def test_bad_images(tmp_path, shape, label, message):
    write_arrays(tmp_path, np.zeros(shape, np.uint8), np.full(shape[0], label))
    with pytest.raises(ValueError, match=message):
        load("image", tmp_path)


@pytest.mark.parametrize(("task", "size"), [("pathfinder", 32), ("pathx", 128)])
@pytest.mark.parametrize("parent", [False, True])
def test_pathfinder(tmp_path, task, size, parent):
    home = tmp_path / f"pathfinder{size}" if parent else tmp_path
    write_pathfinder(home, size=size)
    write_pathfinder(home, level="curv_baseline", count=2, parts=1)  # the hard set is used
    data = load(task, tmp_path)
    assert isinstance(data.sets["train"].images, ImageFiles if task == "pathx" else np.ndarray)
    parts = random_split(range(20), [16, 2, 2], generator=torch.Generator().manual_seed(42))
    for split, part in zip(data.sets, parts, strict=True):
        for k, item in zip(part, data.sets[split], strict=True):
            assert item["labels"].item() == k % 2
            assert item["pixel_values"].shape == (1, size, size)
            assert item["pixel_values"][0, 0, 0].item() == pytest.approx((k / 255 - 0.5) / 0.5, abs=1e-6)
            assert item["pixel_values"][0, -1, -1].item() == 1
    assert data.summary.endswith(f"; {size * size:,} pixels")


def test_an_easier_pathfinder_is_used_if_it_is_the_only_one(tmp_path):
    home = write_pathfinder(tmp_path, level="curv_baseline")
    assert len(load("pathfinder", tmp_path, flavour="skyformer").sets["train"]) == 16
    with (home / "metadata" / "0.npy").open("w") as file:
        file.write("imgs/0 sample_172.png 172 1\n")
    (home / "imgs" / "0" / "sample_172.png").touch()  # as in the release
    assert len(load("pathfinder", tmp_path).sets["train"]) == 16
    write_pathfinder(tmp_path, level="curv_contour_length_9")
    with pytest.raises(FileNotFoundError, match=r"there is no .*curv_contour_length_14"):
        load("pathfinder", tmp_path)


def test_bad_pathfinder(tmp_path):
    home = write_pathfinder(tmp_path)
    first, image = home / "metadata" / "9.npy", home / "imgs" / "0" / "sample_0.png"
    good = first.read_text()
    for text, message in (
        ("imgs/0 sample_0.png\n", "9.npy, line 1: needs at least 4 columns; got 2"),
        (good + "imgs/0 sample_1.png 1 2\n", "9.npy, line 11: a label of pathfinder must be from 0 to 1; got '2'"),
    ):
        first.write_text(text)
        with pytest.raises(ValueError, match=re.escape(message)):
            load("pathfinder", tmp_path)
    np.save(first, np.zeros(3))
    with pytest.raises(ValueError, match=r"9\.npy is not a UTF-8 text"):
        load("pathfinder", tmp_path)
    first.write_text(good)
    image.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"sample_0\.png is not a valid image"):
        load("pathfinder", tmp_path)
    Image.new("1", (10_000, 10_000)).save(image)
    with pytest.raises(
        ValueError, match=r"sample_0\.png is not a valid image: Image size \(100000000 pixels\) exceeds"
    ):
        load("pathfinder", tmp_path)
    with pytest.raises(ValueError, match="images must have 128 x 128 pixels; got 32 x 32"):
        load("pathx", tmp_path)
    image.unlink()
    with pytest.raises(
        FileNotFoundError, match=r"there is no .*sample_0\.png, although the metadata of its folder lists it"
    ):
        load("pathfinder", tmp_path)
    for path in (home / "metadata").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="pathfinder: the train split is empty"):
        load("pathfinder", tmp_path)


# --- batches


def batches(dataset, pad_id):
    collate = pickle.loads(pickle.dumps(collate_lra(pad_id)))
    return list(DataLoader(pickle.loads(pickle.dumps(dataset)), batch_size=2, collate_fn=collate))


def test_a_batch_of_texts_is_padded_on_the_right(tmp_path):
    rows = [("[MAX 1 2 ]", 2), ("[MAX 1 2 3 ]", 3), ("[SM 1 2 3 ]", 6)]
    data = load("listops", write_listops(tmp_path, rows))
    first, second = batches(data.sets["train"], data.tokenizer.pad_token_id)
    assert first["input_ids"].shape == first["attention_mask"].shape == (2, 6)
    assert first["input_ids"][0, -1] == 0
    assert first["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0], [1] * 6]
    assert second.keys() == {"input_ids", "labels"}  # nothing is padded
    assert first["labels"].tolist() + second["labels"].tolist() == [2, 3, 6]
    with pytest.raises(ValueError, match="pad_id must be the id of padding for texts; got None"):
        collate_lra(None)([data.sets["train"][0]])


def test_a_batch_of_pairs(tmp_path):
    data = load("retrieval", write_pairs(tmp_path))
    (batch,) = batches(data.sets["train"], 0)
    assert batch.keys() == {"input_ids", "attention_mask", "pair_input_ids", "pair_attention_mask", "labels"}
    for prefix in ("", "pair_"):
        kept = [
            row[mask.bool()].tolist()
            for row, mask in zip(batch[f"{prefix}input_ids"], batch[f"{prefix}attention_mask"], strict=True)
        ]
        assert kept == ids(data, "train", f"{prefix}input_ids")
    assert batch["labels"].tolist() == [1, 0]


def test_batches_of_one_length_are_stacked(tmp_path):
    write_arrays(tmp_path, numbered(50), np.arange(50) % 10)
    for flavour in ("tnn", "skyformer"):
        dataset = load("image", tmp_path, flavour=flavour).sets["test"]
        batch, _ = batches(dataset, None)
        assert batch.keys() == dataset[0].keys()
        assert all(torch.equal(batch[key][1], dataset[1][key]) for key in batch)
    write_pairs(tmp_path)
    (batch,) = batches(load("retrieval", tmp_path, flavour="skyformer", length=9).sets["test"], 0)
    assert batch["pair_input_ids"].shape == batch["attention_mask"].shape == (2, 9)


@pytest.mark.usefixtures("one_thread")
def test_a_model_takes_a_batch(tmp_path):
    from tnn import TNNConfig, TNNForSequenceClassification

    data = load("listops", write_listops(tmp_path, [("[MAX 1 2 ]", 2), (TREE, TREE_VALUE)]))
    sizes = {"vocab_size": len(data.tokenizer), "hidden_size": 16, "num_hidden_layers": 1, "num_labels": 10}
    model = TNNForSequenceClassification(TNNConfig(is_decoder=False, **sizes)).eval()
    (batch,) = batches(data.sets["train"], data.tokenizer.pad_token_id)
    with torch.no_grad():
        out = model(**batch)
        alone = model(data.sets["train"][0]["input_ids"][None]).logits
    assert out.loss.isfinite()
    assert torch.allclose(out.logits[:1], alone, atol=1e-5)


def test_no_index_beyond_the_end(tmp_path):
    write_arrays(tmp_path, numbered(20), np.arange(20) % 10)
    for task, write in (("listops", write_listops), ("image", None)):
        dataset = load(task, write(tmp_path) if write else tmp_path).sets["test"]
        for index in (-1, len(dataset)):
            with pytest.raises(IndexError, match=f"index {index} is not one of 0 to {len(dataset) - 1}"):
                dataset[index]


def test_light_import():
    import subprocess
    import sys

    code = "import sys, tnn.data.lra; print('torch' in sys.modules or 'PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_validation_examples_can_be_held_out_of_the_training_set(tmp_path):
    texts, labels = ["a" * (i + 1) for i in range(40)], [int(i < 10) for i in range(40)]
    write_reviews(tmp_path, texts, labels)

    def load(**options):
        data = load_lra("text", tmp_path, check_counts=False, held_out=8, **options)
        return {
            name: [(data.tokenizer.decode(row["input_ids"][:-1]), int(row["labels"])) for row in rows]
            for name, rows in data.sets.items()
        }

    loaded = load()
    assert sorted(loaded["train"] + loaded["validation"]) == sorted(zip(texts, labels, strict=True))
    assert sum(label for _, label in loaded["validation"]) == 2
    assert len(loaded["validation"]) == 8
    assert loaded["test"] == list(zip(texts, labels, strict=True))
    assert load(splits=["validation", "test"]) == {name: loaded[name] for name in ("validation", "test")}
    with pytest.raises(ValueError, match="held_out must be less than the 40 training examples; got 40"):
        load_lra("text", tmp_path, check_counts=False, held_out=40)
    with pytest.raises(ValueError, match="held_out is for tasks whose validation set is the test set; listops has"):
        load_lra("listops", write_listops(tmp_path), check_counts=False, held_out=1)
