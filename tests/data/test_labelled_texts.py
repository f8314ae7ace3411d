"""Texts and labels from tables: splits, tokens, and what is refused."""

import csv
import json
from collections import Counter
from itertools import chain
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from tnn.data import byte_tokenizer, train_bpe
from tnn.data.labelled_texts import (
    Columns,
    LabelledTexts,
    TextEncoder,
    encode_texts,
    open_parts,
    open_whole,
    text_tokenizer,
)
from tnn.data.tables import Table, open_tables

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def rows_of(parts, columns=Columns()):  # noqa: B008
    return {split: [text for (text,) in part.texts(columns)] for split, part in parts.items()}


@pytest.mark.slow
@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdefghijklm"), st.sampled_from("xyz")), min_size=30, max_size=60),
    seed=st.integers(0, 3),
)
def test_equal_texts_are_in_one_split(rows, seed, tmp_path_factory):
    rows += [("1", "x"), ("2", "x"), ("3", "y")]
    path = write(tmp_path_factory.mktemp("table") / "a.csv", [{"text": text, "label": label} for text, label in rows])
    parts = open_parts(path, Columns(), seed)
    found = rows_of(parts)
    assert sorted(chain(*found.values())) == sorted(text for text, _ in rows)
    for one in found:
        assert all(set(found[one]).isdisjoint(found[other]) for other in found if other != one)
    labels = {text: part.labels[k] for part in parts.values() for k, (text,) in enumerate(part.texts(Columns()))}
    names = parts["train"].labels.names
    last = dict(rows)
    assert all(names[labels[text]] == last[text] for text in "123")


def test_splits_are_stratified(tmp_path):
    counts = {"many": 200, "some": 40, "three": 3, "two": 2, "one": 1}
    rows = [{"text": f"{name} {k}", "label": name} for name, count in counts.items() for k in range(count)]
    parts = open_parts(write(tmp_path / "a.csv", rows), Columns())
    shares = {
        split: Counter(part.labels.names[k] for k in part.labels.values.tolist()) for split, part in parts.items()
    }
    assert shares == {
        "train": {"many": 160, "some": 32, "three": 1, "two": 1, "one": 1},
        "validation": {"many": 20, "some": 4, "three": 1, "two": 1},
        "test": {"many": 20, "some": 4, "three": 1},
    }
    found = {split: set(texts) for split, texts in rows_of(parts).items()}
    assert set(rows_of(open_parts(tmp_path / "a.csv", Columns(), seed=1))["test"]) != found["test"]
    write(tmp_path / "a.csv", rows[::-1])
    turned = rows_of(open_parts(tmp_path / "a.csv", Columns()))
    assert {split: set(texts) for split, texts in turned.items()} == found


def test_a_table_with_splits_keeps_them(tmp_path):
    rows = [{"text": f"text {k}", "label": k % 2} for k in range(40)]
    for name in ("train", "test"):
        write(tmp_path / f"{name}.csv", rows if name == "train" else rows[:3])
    found = rows_of(open_parts(tmp_path, Columns()))
    assert {split: len(part) for split, part in found.items()} == {"train": 36, "validation": 4, "test": 3}
    write(tmp_path / "valid.csv", rows[:5])
    found = rows_of(open_parts(tmp_path, Columns()))
    assert {split: len(part) for split, part in found.items()} == {"train": 40, "validation": 5, "test": 3}
    (tmp_path / "test.csv").unlink()
    assert list(open_parts(tmp_path, Columns())) == ["train", "validation"]


@pytest.mark.slow
@pytest.mark.parametrize("make", [byte_tokenizer, lambda: train_bpe(["the cat sat on the mat"], 280)])
@given(rows=st.lists(st.tuples(texts, texts), min_size=1, max_size=4), length=st.integers(8, 24))
def test_tokens_are_those_of_the_tokenizer(make, rows, length, tmp_path_factory):
    tokenizer, folder = text_tokenizer(make(), length), tmp_path_factory.mktemp("tokens")
    for given_rows in (rows, [(text,) for text, _ in rows]):
        encoders = {whole: TextEncoder(tokenizer, whole=whole) for whole in (False, True)}
        encoded = {whole: encode_texts(given_rows, encoder, folder) for whole, encoder in encoders.items()}
        columns = list(map(list, zip(*given_rows, strict=True)))
        cut, full = (tokenizer(*columns, truncation=truncation)["input_ids"] for truncation in (True, False))
        assert [encoded[False].row(k).tolist() for k in range(len(rows))] == cut
        assert [encoded[True].row(k).tolist() for k in range(len(rows))] == full
        assert max(map(len, cut)) <= length
        for encoder in encoders.values():
            assert encoder.longer == sum(len(ids) > length for ids in full)
            assert encoder.read == len(rows)
    assert not list(folder.iterdir())  # the file has no name


def test_a_tokenizer_keeps_its_own_special_tokens_and_takes_their_names_for_text(tmp_path):
    tokenizer = text_tokenizer(byte_tokenizer(mask=True), 64)
    assert tokenizer("<mask>")["input_ids"] == [0, *(byte + 4 for byte in b"<mask>"), 2]
    before = tokenizer.backend_tokenizer.to_str()
    assert text_tokenizer(tokenizer, 64).backend_tokenizer.to_str() == before


def test_examples(tmp_path):
    lines = [{"text": "ab", "tags": ["x"]}, {"text": "c", "tags": []}, {"text": "d", "tags": ["y", "x"]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    columns = Columns(label="tags", kind="several")
    part = open_whole(open_tables(tmp_path / "a.jsonl")[""], columns, ("x", "y"))
    encoded = encode_texts(part.texts(columns), TextEncoder(text_tokenizer(byte_tokenizer(), 512)), tmp_path)
    dataset = LabelledTexts(encoded, part.labels)
    assert [example["labels"].tolist() for example in map(dataset.__getitem__, range(3))] == [[1, 0], [0, 0], [1, 1]]
    assert dataset[0]["input_ids"].tolist() == [0, 101, 102, 2]


def test_few_long_texts_are_encoded_at_once(tmp_path, monkeypatch):
    """The tokenizer needs much memory for each character."""
    texts = [("abc",), ("d" * 9,), ("e", "f"), ("g" * 20,), ("h",)]
    expected = list(TextEncoder(text_tokenizer(byte_tokenizer(), 16)).encode(texts))
    monkeypatch.setattr("tnn.data.labelled_texts.AT_ONCE", 10)
    read = []

    def reading():
        for text in texts:
            read.append(text)
            yield text

    rows = TextEncoder(text_tokenizer(byte_tokenizer(), 16)).encode(reading())
    first = next(rows)
    assert len(read) == 2
    assert [row.tolist() for row in (first, *rows)] == [row.tolist() for row in expected]


def test_a_tokenizer_without_a_limit_cuts_nothing():
    encoder = TextEncoder(byte_tokenizer())
    (ids,) = encoder.encode([("a" * 3000,)])
    assert (len(ids), encoder.length, encoder.longer, encoder.summary()) == (3000, None, 0, "")


def test_a_tokenizer_in_python():
    with pytest.raises(ValueError, match=r"must have a tokenizer.json; got a ByT5Tokenizer, in Python"):
        TextEncoder(ByT5Tokenizer())


class Dataset(list):
    """As much of a Hugging Face data set as a table needs."""

    def __init__(self, feature, values):
        super().__init__({"label": value} for value in values)
        self.features = {"label": feature}


def test_names_of_hugging_face_classes():
    feature = SimpleNamespace(names=["bad", "good"])
    one = Table("one", ("label",), dataset=Dataset(feature, [1, 0, 1]))
    assert Columns().labels(one).names == ("bad", "good")
    several = Table("several", ("label",), dataset=Dataset(SimpleNamespace(feature=feature), [[1, 0], []]))
    assert Columns(kind="several").labels(several).targets().tolist() == [[1, 1], [0, 0]]
    hidden = Table("hidden", ("label",), dataset=Dataset(feature, [-1]))
    with pytest.raises(ValueError, match="hidden, row 1: the label is missing"):
        Columns().labels(hidden)


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            [{"txt": "a", "label": 1}],
            Columns(),
            r"data.text_column: .*a.csv has no column 'text'; did you mean 'txt'\?",
        ),
        ([{"text": "a", "lable": 1}], Columns(), r"data.label_column: .* no column 'label'; did you mean 'lable'\?"),
        ([{"text": "a", "label": 1}], Columns(pair="b"), r"data.pair_column: .* has no column 'b'"),
        ([{"text": "a", "label": 1}, {"text": " ", "label": 2}], Columns(), "row 2, column 'text': the text is empty"),
        ([{"text": "a", "label": 1}, {"text": "b", "label": ""}], Columns(), "row 2: the label is missing"),
        ([{"text": "a", "label": 1}] * 2, Columns(), "has one label only, '1'"),
        ([{"text": "a", "label": 1}, {"text": "b", "label": 2}], Columns(), "has too few texts for a validation split"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, rows, columns, message):
    with pytest.raises(ValueError, match=message) as error:
        open_parts(write(tmp_path / "a.csv", rows), columns)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "row 1, column 'text': the text is missing"),
        (7, "row 1, column 'text': the text must be a string; got 7"),
        ("a\ud800", "row 1, column 'text': character 1 of the text is half of one"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path, text, message):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "label": "a"}))
    with pytest.raises(ValueError, match=message):
        list(Columns().texts(open_tables(tmp_path / "a.jsonl")[""]))


@pytest.mark.slow
def test_a_source_without_training_rows(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"text": "a", "label": 1}])
    datasets.DatasetDict({"test": rows}).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"has no train split; it has test"):
        open_parts(f"hf:{tmp_path / 'saved'}", Columns())
