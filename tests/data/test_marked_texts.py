"""Texts with labelled spans or words, from all kinds of files; their splits; what is refused."""

import json
from itertools import chain

import pytest

from tnn.data.marked_texts import MarkedColumns, open_marked, open_sources, open_whole

COLUMNS = MarkedColumns()
WORDS = MarkedColumns("words")
TEXT, SPANS = "in New York", [{"start": 3, "end": 11, "label": "LOC"}]
TAGGED = {"tokens": ["in", "New", "York"], "tags": ["O", "B-LOC", "I-LOC"]}


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path, columns=COLUMNS):
    (source,) = open_sources(path).values()
    return [(marked.text, marked.spans) for marked in columns.labelled(source)]


def numbered(count):
    return "\n".join(f"in O\nRome{number} B-LOC\n" for number in range(count))


def test_all_sources_give_the_same_texts(tmp_path):
    expected = [(TEXT, ((3, 11, "LOC"),))]
    (tmp_path / "a.conll").write_text("in O\nNew I-LOC\nYork I-LOC\n")
    assert read(tmp_path / "a.conll") == expected
    assert read(jsonl(tmp_path / "a.jsonl", {"text": TEXT, "spans": SPANS})) == expected
    assert read(jsonl(tmp_path / "b.jsonl", TAGGED)) == expected
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    for name, row in (("a", {"text": TEXT, "spans": SPANS}), ("b", TAGGED)):
        parquet.write_table(arrow.Table.from_pylist([row]), tmp_path / f"{name}.parquet")
        assert read(tmp_path / f"{name}.parquet") == expected


@pytest.mark.slow
def test_a_hugging_face_data_set_has_names_of_classes(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["O", "B-LOC", "I-LOC"])
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner": datasets.List(names)})
    rows = datasets.Dataset.from_dict({"tokens": [TAGGED["tokens"]], "ner": [[0, 1, 2]]}, features=features)
    rows.save_to_disk(tmp_path / "saved")
    assert read(f"hf:{tmp_path / 'saved'}", MarkedColumns(tags="ner")) == [(TEXT, ((3, 11, "LOC"),))]


def test_a_tag_for_each_word(tmp_path):
    (tmp_path / "a.conll").write_text("We PRON\nrun VERB\n")
    expected = [("We run", ((0, 2, "PRON"), (3, 6, "VERB")))]
    assert read(tmp_path / "a.conll", WORDS) == expected
    assert read(jsonl(tmp_path / "a.jsonl", {"tokens": ["We", "run"], "tags": ["PRON", "VERB"]}), WORDS) == expected
    spans = [{"start": 0, "end": 2, "label": "PRON"}, {"start": 3, "end": 6, "label": "VERB"}]
    assert read(jsonl(tmp_path / "b.jsonl", {"text": "We run", "spans": spans}), WORDS) == expected
    (tmp_path / "b.conll").write_text("We O\nrun PER\n")  # O is a tag like others
    assert read(tmp_path / "b.conll", WORDS) == [("We run", ((0, 2, "O"), (3, 6, "PER")))]


def test_splits(tmp_path):
    for name, count in (("train.txt", 20), ("dev.txt", 3), ("notes.conll", 5)):
        (tmp_path / name).write_text(numbered(count))
    assert {split: len(part) for split, part in open_marked(tmp_path, COLUMNS).items()} == {
        "train": 20,
        "validation": 3,
    }
    (tmp_path / "dev.txt").rename(tmp_path / "test.txt")
    parts = open_marked(tmp_path, COLUMNS)
    assert {split: len(part) for split, part in parts.items()} == {"train": 18, "validation": 2, "test": 3}


def test_equal_texts_are_in_one_split_and_rare_labels_in_each(tmp_path):
    path = tmp_path / "a.conll"
    rare = "\n".join(f"rare{number} B-RARE\n" for number in range(3))
    path.write_text(f"{numbered(60)}\n{rare}\n{numbered(60)}")
    parts = open_marked(path, COLUMNS)
    found = {split: [marked.text for marked in part] for split, part in parts.items()}
    assert {split: len(texts) for split, texts in found.items()} == {"train": 97, "validation": 13, "test": 13}
    assert len(list(chain(*found.values()))) == 123
    for one in found:
        assert all(set(found[one]).isdisjoint(found[other]) for other in found if other != one)
        assert "RARE" in {span.label for marked in parts[one] for span in marked.spans}
    again = open_marked(path, COLUMNS, seed=1)
    assert {marked.text for marked in again["test"]} != set(found["test"])


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([{"text": "a b", "spans": 7}], COLUMNS, r"row 1: the spans must be a list of .*; got 7$"),
        ([{"text": TEXT, "spans": SPANS}, {"text": " ", "spans": []}], COLUMNS, r"row 2: column 'text': the text is e"),
        ([{"text": TEXT, "spans": SPANS * 2}], COLUMNS, r"row 1: spans 1 and 2 overlap: characters 3 to 11 and 3 to"),
        (
            [{"text": TEXT, "span": SPANS}],
            COLUMNS,
            r"no column of labels, 'spans' .*; did you mean 'span'\?",
        ),
        ([{"text": TEXT, "spans": SPANS, "tags": []}], COLUMNS, r"has both spans and tags.*data.spans_column=null or"),
        ([{"txt": TEXT, "spans": SPANS}], COLUMNS, r"data.text_column: .* has no column 'text'; did you mean 'txt'\?"),
        ([{"token": [], "tags": []}], COLUMNS, r"data.words_column: .* has no column 'tokens'; did you mean 'token'\?"),
        ([TAGGED, {"tokens": [], "tags": []}], COLUMNS, r"row 2: the list of words is empty$"),
        ([{"tokens": "in", "tags": ["O"]}], COLUMNS, r"row 1: the words must be a list; got 'in'$"),
        ([{"tokens": ["in"], "tags": "O"}], COLUMNS, r"row 1: the tags must be a list; got 'O'$"),
        ([{"tokens": ["in", ""], "tags": ["O"] * 2}], COLUMNS, r"row 1: word 2: the text is empty$"),
        (
            [{"tokens": ["in"], "tags": ["O", "O"]}],
            COLUMNS,
            r"row 1: .* a tag for each word; got 1 words and 2 tags$",
        ),
        ([{"tokens": ["in"], "tags": ["NN"]}], COLUMNS, r"row 1: word 1: the tag 'NN' is neither O .*data.kind=words$"),
        ([{"tokens": ["in"], "tags": [None]}], WORDS, r"row 1: word 1: the label must be a string; got None$"),
        ([{"tokens": ["in"], "tags": [3]}], COLUMNS, r"row 1: word 1: the tag '3' is neither O"),
        ([{"text": TEXT, "spans": []}], COLUMNS, r"a.jsonl has no spans: every tag is O, or every list is empty$"),
        ([{"tokens": ["a", "b"], "tags": ["X", "X"]}], WORDS, r"a.jsonl has one tag only, 'X': there must be at least"),
        ([{"text": TEXT, "spans": SPANS}] * 9, COLUMNS, r"has too few texts for a validation split: no label has two"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, rows, columns, message):
    with pytest.raises(ValueError, match=message) as error:
        open_marked(jsonl(tmp_path / "a.jsonl", *rows), columns)
    assert "\n" not in str(error.value)


def test_files_that_are_not_what_they_seem(tmp_path):
    (tmp_path / "a.conll").write_text("in O\nRome NNP\n")
    with pytest.raises(ValueError, match=r"a.conll, line 2: the tag 'NNP' is neither O .* give data.kind=words$"):
        open_marked(tmp_path / "a.conll", COLUMNS)
    (tmp_path / "a.py").write_text("in O\n")
    with pytest.raises(ValueError, match=r"a.py is neither tagged words \(.conll, .*\) nor a table \(.csv, "):
        open_sources(tmp_path / "a.py")
    with pytest.raises(FileNotFoundError, match=r"no table at .*nowhere"):
        open_sources(tmp_path / "nowhere")
    (tmp_path / "train.conll").write_text(numbered(3))
    jsonl(tmp_path / "train.jsonl", TAGGED)
    with pytest.raises(ValueError, match=r"has splits as tables and as files of tagged words: name one of them$"):
        open_sources(tmp_path)


def test_labels_that_the_training_does_not_have(tmp_path):
    (tmp_path / "train.conll").write_text(numbered(3))
    (tmp_path / "dev.conll").write_text("in O\nRome O\n\nin O\nRome B-LOK\n")
    expected = r"dev.conll, line 4: the label 'LOK', of 'Rome', is not in the training data; did you mean 'LOC'\?$"
    with pytest.raises(ValueError, match=expected):
        open_marked(tmp_path, COLUMNS)
    (source,) = open_sources(tmp_path / "dev.conll").values()
    assert len(open_whole(source, COLUMNS, ["LOK"])) == 2


def test_inputs_of_predictions(tmp_path):
    def rows(path, columns=COLUMNS):
        (source,) = open_sources(path).values()
        return [(marked.text, marked.words, marked.row) for marked in columns.unlabelled(source)]

    words = ((0, 2), (3, 7))
    (tmp_path / "a.conll").write_text("in\nRome\n")
    assert rows(tmp_path / "a.conll") == [("in Rome", words, {"text": "in Rome"})]
    (tmp_path / "a.txt").write_text("in IN\nRome NNP\n")
    with pytest.raises(ValueError, match=r"a.txt, line 1: the tag 'IN' is neither O"):
        rows(tmp_path / "a.txt")
    assert rows(tmp_path / "a.txt", WORDS) == [("in Rome", words, {"text": "in Rome"})]
    row = {"id": 7, "tokens": ["in", "Rome"]}
    assert rows(jsonl(tmp_path / "a.jsonl", row)) == [("in Rome", words, {**row, "text": "in Rome"})]
    assert rows(jsonl(tmp_path / "b.jsonl", row | {"text": "x"})) == [("x", None, {**row, "text": "x"})]
