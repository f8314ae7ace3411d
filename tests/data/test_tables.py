"""Tables from CSV, TSV, JSONL and Parquet files, compressed or not, and from Hugging Face data sets."""

import csv
import gzip
import io
import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.tables import open_tables

cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
tables = st.lists(st.fixed_dictionaries({"text": cells, "label": cells}), min_size=1, max_size=6)


def as_csv(rows, separator=","):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_parquet(rows):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    out = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


WRITERS = {
    "a.csv": as_csv,
    "semicolons.csv": lambda rows: as_csv(rows, ";"),
    "tabs.csv": lambda rows: as_csv(rows, "\t"),
    "a.tsv": lambda rows: as_csv(rows, "\t"),
    "a.csv.gz": lambda rows: gzip.compress(as_csv(rows)),
    "a.jsonl": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "a.jsonl.xz": lambda rows: lzma.compress("\r\n\n".join(map(json.dumps, rows)).encode()),
    "a.parquet": as_parquet,
}


@pytest.mark.parametrize("name", WRITERS)
@given(rows=tables)
def test_every_format_gives_the_rows(name, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / name
    path.write_bytes(WRITERS[name](rows))
    table = open_tables(path)[""]
    assert table.columns == tuple(rows[0])
    assert list(table.rows()) == rows == list(table.rows())


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('a;b\n"1,5";2\n', {"a": "1,5", "b": "2"}),
        ('"a,b";c\n1;2\n', {"a,b": "1", "c": "2"}),
        ("a;b,c\n1;2,3\n", {"a;b": "1;2", "c": "3"}),
        ("a\n1;2\n", {"a": "1;2"}),
        ('"a\nb",c\n1,2;3\n', {"a\nb": "1", "c": "2;3"}),
    ],
)
def test_the_first_line_tells_the_separator(tmp_path, content, row):
    (tmp_path / "a.csv").write_text(content)
    assert list(open_tables(tmp_path / "a.csv")[""].rows()) == [row]


def test_a_folder_by_splits_and_a_folder_of_parts(tmp_path):
    rows = [{"text": "a"}, {"text": "b"}]
    for name in ("train.csv", "dev.jsonl", "test.tsv"):
        (tmp_path / name).write_bytes(WRITERS[f"a{name[name.index('.') :]}"](rows))
    assert {split: [*table.rows()] for split, table in open_tables(tmp_path).items()} == dict.fromkeys(
        ("validation", "test", "train"), rows
    )
    for name in ("2020.csv", "2021.csv", "notes.txt"):
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / "parts" / name).write_bytes(as_csv(rows))
    assert [*open_tables(tmp_path / "parts")[""].rows()] == rows * 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "has no rows|must start with a line that names its columns"),
        ("a.csv", b"text,label\n", "has no rows"),
        ("a.csv", b"text,label\na\n", "must have 2 fields in each row, as its header; line 2 has 1"),
        ("a.csv", b"text,text\na,b\n", "must name each column once; it has 'text' twice"),
        ("a.csv", b'text\n"a\n', "line 2"),
        ("a.csv", b'text;label\n"a, "b" c";1\n', "a.csv, line 2: a quote inside a quoted field must be written twice"),
        ("a.csv", b"text;label,\na;b\n", "must have 2 fields in each row, as its header; line 2 has 1"),
        ("a.csv", b"text\na\xff\n", "a.csv is not a UTF-8 text: see byte 6"),
        ("a.jsonl", b'{"a": 1}\n[]\n', r"line 2: each line must be a JSON object; got '\[\]'"),
        ("a.parquet", b"PAR1", "is not a Parquet file"),
        ("a.txt", b"text", "is not a table: its name must end in .csv"),
    ],
)
def test_what_is_no_table(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        list(open_tables(tmp_path / name)[""].rows())
    assert "\n" not in str(error.value)


def test_a_column_that_is_not_there(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    table = open_tables(tmp_path / "a.csv")[""]
    assert table.column("text", "data.text_column") == "text"
    with pytest.raises(ValueError, match=r"data.text_column: .*a.csv has no column 'texts'; did you mean 'text'\?"):
        table.column("texts", "data.text_column")


def test_the_fingerprint_follows_the_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\na\n")
    before = open_tables(path)[""].fingerprint()
    path.write_text("text\nab\n")
    assert open_tables(path)[""].fingerprint() != before


@pytest.mark.slow
def test_a_hugging_face_data_set(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(tmp_path / "saved")
    table = open_tables(f"hf:{tmp_path / 'saved'}")["train"]
    assert (table.columns, [*table.rows()]) == (("text", "label"), rows)


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no table at"):
        open_tables(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="has no tables"):
        open_tables(tmp_path)
