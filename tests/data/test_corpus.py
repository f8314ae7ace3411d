"""Texts from files, folders, tables, compressed files, the standard library and Hugging Face data sets."""

import gzip
import json
import lzma
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data import compressed, open_corpus, text_files
from tnn.data.corpus import SPLITS

PACK = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}


def write(folder, **files):
    """Files by name, with `__` for the dots."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_bytes(text.encode() if isinstance(text, str) else text)
    return str(folder)


def text_of(corpus, split):
    return "".join(corpus.lines(split))


@pytest.mark.parametrize("suffix", PACK)
def test_lines_are_not_changed(tmp_path, suffix):
    text = "one\r\n\n  two\u2028\x85 \rthree\x0c<s>\nlast without an end €"
    (tmp_path / f"train.txt{suffix}").write_bytes(PACK[suffix](text.encode()))
    corpus = open_corpus(str(tmp_path))
    assert list(corpus.lines("train")) == ["one\r\n", "\n", "  two\u2028\x85 \rthree\x0c<s>\n", "last without an end €"]


def documents(corpus, split):
    return ["".join(document) for document in corpus.documents(split)]


@pytest.mark.parametrize("suffix", PACK)
def test_separate_lines_are_cut_by_bytes(tmp_path, suffix):
    """As in the published results on enwik8: a rule of its name, and of any text whose lines are separate."""
    data = bytes(65 + i % 13 if i % 7 else 10 for i in range(1000))
    (tmp_path / f"enwik8{suffix}").write_bytes(PACK[suffix](data))
    for source, lines in ((tmp_path, "separate"), (tmp_path / f"enwik8{suffix}", "auto")):
        corpus = open_corpus(str(source), lines=lines)
        assert corpus.separate
        parts = [text_of(corpus, split).encode() for split in SPLITS]
        assert [len(part) for part in parts] == [900, 50, 50]
        assert b"".join(parts) == data


@pytest.mark.parametrize("suffix", PACK)
def test_a_single_file_is_cut_at_line_ends(tmp_path, suffix):
    data = b"".join(b"%d" % i * (i % 9) + b"\n" for i in range(400))
    (tmp_path / f"book{suffix}").write_bytes(PACK[suffix](data))
    for source in (tmp_path, tmp_path / f"book{suffix}"):
        corpus = open_corpus(source)
        parts = [text_of(corpus, split).encode() for split in SPLITS]
        assert b"".join(parts) == data
        assert all(part.endswith(b"\n") for part in parts)
        assert [round(len(part) / len(data), 2) for part in parts] == [0.9, 0.05, 0.05]


@given(text=st.text(st.sampled_from("aé€😀\n"), max_size=60), files=st.integers(1, 3), line=st.sampled_from([5, 2**20]))
@pytest.mark.parametrize("lines", ["keep", "separate"])
def test_splits_lose_nothing_and_cut_no_character(tmp_path_factory, lines, text, files, line):
    folder = tmp_path_factory.mktemp("texts")
    for i in range(files):
        (folder / f"{i}").write_bytes(text[i::files].encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "LINE", line)
        corpus = open_corpus(folder, lines=lines)
        parts = "".join(text_of(corpus, split) for split in SPLITS)
        assert sorted(parts) == sorted(text)
        if lines == "separate" or files == 1:
            assert parts == "".join(text[i::files] for i in range(files))


def make_files(folder, count, text=lambda i: f"text {i}\n" * (20 + i % 7)):
    folder.mkdir(exist_ok=True)
    for i in range(count):
        (folder / f"{i:03}.txt").write_text(text(i))
    return folder


def held_out(folder):
    corpus = open_corpus(folder)
    return {split: {int(text.split()[1]) for text in documents(corpus, split)} for split in SPLITS}


def test_a_folder_of_many_files_is_split_by_file_all_over_the_folder(tmp_path):
    found = held_out(make_files(tmp_path / "a", 200))
    assert {split: len(files) for split, files in found.items()} == {"train": 180, "validation": 10, "test": 10}
    assert set.union(*found.values()) == {*range(200)}
    for split in ("validation", "test"):
        assert min(found[split]) < 80
        assert max(found[split]) > 120
        assert found[split] != {*range(min(found[split]), max(found[split]) + 1)}
    assert held_out(make_files(tmp_path / "b", 200)) == found  # wherever it is
    (tmp_path / "b" / "000.txt").rename(tmp_path / "b" / "zzz.txt")
    assert held_out(tmp_path / "b") == found  # whatever it is called


def test_copies_of_a_file_are_in_one_split(tmp_path):
    """Apart from white space and case; every text is there three times."""

    def text(i):
        plain = f"Text {i // 3}\n" * 20
        return (plain, plain.upper(), plain.replace("\n", "\r\n").replace(" ", "\t"))[i % 3]

    found = held_out(make_files(tmp_path / "folder", 120, text))
    assert [len(found[split]) for split in SPLITS] == [36, 2, 2]
    assert len(set.union(*found.values())) == 40


def test_versions_of_a_file_are_in_one_split(tmp_path):
    """40 texts of 300 lines in three versions: a licence in front, and some lines changed."""

    def text(i):
        lines = [f"Text {i // 3}, line {n} of its 300 lines\n" for n in range(300)]
        for n in range(i % 3, 300, 50):
            lines[n] = f"a line of version {i % 3}\n"
        return "a licence that all have\n" * 3 + "".join(lines)

    found = {
        split: [part.splitlines()[9].split(",")[0] for part in documents(open_corpus(folder), split)]
        for folder in [make_files(tmp_path / "folder", 120, text)]
        for split in SPLITS
    }
    assert [len(found[split]) for split in SPLITS] == [108, 6, 6]
    assert [len(set(found[split])) for split in SPLITS] == [36, 2, 2]


def test_large_files_are_cut_and_small_ones_are_not(tmp_path):
    folder = make_files(tmp_path / "folder", 40)
    large = "".join(f"line {i}\n" for i in range(5000))
    (folder / "large.txt").write_text(large)
    corpus = open_corpus(folder)
    parts = {split: documents(corpus, split) for split in SPLITS}
    assert [len(parts[split]) for split in SPLITS] == [37, 3, 3]  # with a part of the large one
    assert "".join(next(part for part in parts[split] if part.startswith("line")) for split in SPLITS) == large
    assert sum(len(text) for part in parts.values() for text in part) == sum(
        path.stat().st_size for path in folder.iterdir()
    )


def test_empty_files_are_never_a_split(tmp_path):
    folder = make_files(tmp_path / "folder", 60, lambda i: f"text {i}\n" if i % 2 else " \n" * (i % 4))
    found = {split: [*filter(str.strip, documents(open_corpus(folder), split))] for split in SPLITS}
    assert [len(found[split]) for split in SPLITS] == [28, 1, 1]


@pytest.mark.parametrize("lines", ["keep", "separate"])
def test_files_that_are_not_text_are_skipped_if_asked(tmp_path, lines):
    folder = make_files(tmp_path / "folder", 50)
    good = "".join(sorted(path.read_text() for path in folder.iterdir()))
    (folder / "image.png").write_bytes(b"\x89PNG" + bytes(range(256)))
    (folder / "late.txt").write_bytes(b"text\n" * 1000 + b"\xff")
    corpus = open_corpus(folder, lines=lines)
    message = r"image.png is not a UTF-8 text: see byte 0; data.bad_files=skip leaves such files out$"
    with pytest.raises(ValueError, match=message):
        [text_of(corpus, split) for split in SPLITS]
    corpus = open_corpus(folder, lines=lines, bad_files="skip")
    assert sorted("".join(text_of(corpus, split) for split in SPLITS)) == sorted(good)
    assert [path.name for path in corpus.skipped()] == ["image.png", "late.txt"]
    for path in folder.glob("*.txt"):
        path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"none of 52 files is UTF-8 text, the first being .*000\.txt"):
        text_of(open_corpus(folder, lines=lines, bad_files="skip"), "train")


TABLES = {
    "a.csv": lambda texts: "id,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(texts)),
    "a.tsv": lambda texts: "text\n" + "".join(f'"{text}"\n' for text in texts),
    "a.jsonl": lambda texts: "".join(json.dumps({"text": text}) + "\n" for text in texts),
}


@pytest.mark.parametrize("name", TABLES)
def test_records_of_a_table_are_documents(tmp_path, name):
    texts = [f"record {i}\n\n  of lines" for i in range(100)]
    (tmp_path / name).write_text(TABLES[name](texts))
    corpus = open_corpus(tmp_path / name, text_column="text")
    parts = [documents(corpus, split) for split in SPLITS]
    assert [len(part) for part in parts] == [90, 5, 5]
    assert sorted(text for part in parts for text in part) == sorted(texts)
    assert [int(text.split()[1]) for text in parts[2]] != [*range(95, 100)]
    assert corpus.fingerprint("train") != corpus.fingerprint("test")
    (tmp_path / name).write_text(TABLES[name]([*texts, "record 3  OF lines", *texts[:7]]))  # copies
    parts = [{text.split()[1] for text in documents(corpus, split)} for split in SPLITS]
    assert [*map(len, parts)] == [90, 5, 5]
    assert len(set.union(*parts)) == 100


def test_tables_by_split_and_as_a_split(tmp_path):
    for name in ("train", "test"):
        write(tmp_path / "splits", **{f"{name}__csv": f"body\n{name}\n"})
    corpus = open_corpus(tmp_path / "splits", text_column="body", validation=tmp_path / "splits" / "test.csv")
    assert [documents(corpus, split) for split in SPLITS] == [["train"], ["test"], ["test"]]
    with pytest.raises(ValueError, match="splits must be one table, to replace a split; it has test, train"):
        open_corpus("stdlib", text_column="body", test=tmp_path / "splits")
    assert list(open_corpus(tmp_path / "splits", text_column="body", lines="separate").lines("test")) == ["test\n"]


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        (
            "a.csv",
            "id,review\n1,b\n",
            None,
            "a.csv is a table: name the column of its texts, with data.text_column=NAME in a",
        ),
        ("a.jsonl", '{"Text": "a"}', None, "--text-column NAME; did you mean 'Text'"),
        (
            "a.csv",
            "id,review\n1,b\n",
            "reviews",
            r"text_column: .*a.csv has no column 'reviews'; did you mean 'review'\?",
        ),
        ("a.txt", "text\n", "text", "a.txt is not a table: its name must end in .csv"),
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": 5}\n',
            "text",
            "the column 'text' of .*a.jsonl must hold texts; row 2 has 5",
        ),
        ("a.jsonl", '{"text": "\\ud800"}\n', "text", r"must hold texts; row 1 has '\\ud800'"),
    ],
)
def test_tables_that_are_no_texts(tmp_path, name, content, column, message):
    write(tmp_path, **{name.replace(".", "__"): content})
    with pytest.raises(ValueError, match=message) as error:
        [text_of(open_corpus(tmp_path / name, text_column=column), split) for split in SPLITS]
    assert "\n" not in str(error.value)
    if column is None:
        with pytest.raises(ValueError, match="is a table: name the column of its texts"):
            open_corpus(tmp_path)


def test_a_folder_of_files_with_a_table_among_them_is_a_folder_of_files(tmp_path):
    folder = make_files(tmp_path / "folder", 3)
    (folder / "data.csv").write_text("a,b\n1,2\n")
    assert "a,b\n" in "".join(text_of(open_corpus(folder), split) for split in SPLITS)


def test_choices_that_are_not_there():
    with pytest.raises(ValueError, match="lines must be one of auto, keep, separate; got 'kept'"):
        open_corpus("stdlib", lines="kept")
    with pytest.raises(ValueError, match="bad_files must be one of refuse, skip; got True"):
        open_corpus("stdlib", bad_files=True)


def test_a_long_line_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LINE", 10)
    corpus = open_corpus("stdlib", train=write(tmp_path, text="é" * 12 + "\nab"))
    lines = list(corpus.lines("train"))
    assert max(len(line.encode()) for line in lines) <= 10
    assert "".join(lines) == "é" * 12 + "\nab"


def test_wikitext(tmp_path):
    source = write(
        tmp_path,
        wiki__train__raw="raw\n",
        wiki__valid__raw__xz=lzma.compress(b"raw valid\n"),
        wiki__train__tokens=" tokens \n",
        wiki__test__tokens="\n",
    )
    corpus = open_corpus(source)
    assert corpus.splits() == ("train", "validation")
    assert (text_of(corpus, "train"), text_of(corpus, "validation")) == ("raw\n", "raw valid\n")
    assert corpus.separate
    assert corpus.strip
    kept = open_corpus(source, lines="keep")
    assert (kept.separate, kept.strip, documents(kept, "train")) == (False, False, ["raw\n"])
    assert kept.fingerprint("train") != corpus.fingerprint("train")
    tokens = open_corpus(source + "#tokens")
    assert (tokens.splits(), text_of(tokens, "train")) == (("train", "test"), " tokens \n")
    with pytest.raises(ValueError, match=r"has no \.txt files; it has raw, tokens"):
        open_corpus(source + "#txt")


def test_a_file_of_wikitext_is_read_as_its_folder(tmp_path):
    source = write(tmp_path, wiki__test__tokens=" tokens \n", test__txt=" indented\n")
    assert open_corpus(f"{source}/wiki.test.tokens").strip == open_corpus(source + "#tokens").strip is True
    assert not open_corpus(f"{source}/test.txt", lines="separate").strip


def test_a_folder_with_a_hash_in_its_name(tmp_path):
    assert text_of(open_corpus(write(tmp_path / "c#raw", train__txt="a")), "train") == "a"


@pytest.mark.parametrize("name", ["valid", "validation"])
def test_folders_with_splits(tmp_path, name):
    files = open_corpus(write(tmp_path / "files", train__txt="a", **{f"{name}__txt": "b"}, readme="no part of it"))
    assert (files.splits(), text_of(files, "validation"), files.strip) == (("train", "validation"), "b", False)
    write(tmp_path / "folders" / name, b="2", a="1", **{".hidden": b"\xff"})
    write(tmp_path / "folders" / name / "inner", c="3")
    folders = open_corpus(str(tmp_path / "folders"))
    assert (folders.splits(), text_of(folders, "validation")) == (("validation",), "123")


def test_files_replace_splits(tmp_path):
    source = write(tmp_path / "corpus", wiki__valid__raw="v", wiki__test__raw="t")
    write(tmp_path / "mine", text="my own")
    corpus = open_corpus(source, train=tmp_path / "mine" / "text", test=str(tmp_path / "mine"))
    assert [text_of(corpus, split) for split in SPLITS] == ["my own", "v", "my own"]


def test_stdlib():
    corpus = open_corpus("stdlib")
    sizes = [len(text_of(corpus, split).encode()) for split in SPLITS]
    assert sizes[0] > 1_000_000
    assert [round(size / sum(sizes), 3) for size in sizes] == [0.9, 0.05, 0.05]
    assert (
        documents(corpus, "test")
        == [text_of(corpus, "test")]
        == [text_of(open_corpus("stdlib", lines="separate"), "test")]
    )


def test_the_fingerprint_follows_the_input(tmp_path):
    source = write(tmp_path, train__txt="abc", test__txt="abc")
    corpus = open_corpus(source)
    first = corpus.fingerprint("train")
    assert open_corpus(source).fingerprint("train") == first != corpus.fingerprint("test")
    status = (tmp_path / "train.txt").stat()
    (tmp_path / "train.txt").write_text("abd")
    os.utime(tmp_path / "train.txt", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert corpus.fingerprint("train") != first
    whole = open_corpus(str(tmp_path / "train.txt"))
    assert len({whole.fingerprint(split) for split in SPLITS}) == 3


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a", b"abc\xff", "a is not a UTF-8 text: see byte 3"),
        ("a", b"abc\xe2\x82", "a is not a UTF-8 text: see byte 3"),  # half a character at the end
        ("a", b"line\n" * 300_000 + b"\xff", "a is not a UTF-8 text: see byte 1500000"),
        ("a.gz", gzip.compress(b"abc\xff", mtime=0), "a.gz is not a UTF-8 text: see byte 3"),
        ("a.xz", b"not compressed", "a.xz cannot be decompressed"),
        ("a.gz", b"not compressed", "a.gz cannot be decompressed"),
        ("a.xz", lzma.compress(bytes(1000))[:-20], "a.xz cannot be decompressed"),
        ("a.gz", gzip.compress(bytes(1000), mtime=0)[:-10], "a.gz cannot be decompressed"),
    ],
)
def test_files_that_are_not_text(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    corpus = open_corpus("stdlib", train=tmp_path / name)
    with pytest.raises(ValueError, match=message) as error:
        text_of(corpus, "train")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_not_a_file_is_never_read(tmp_path, make):
    make(tmp_path / "train.txt")
    with pytest.raises(ValueError, match=r"train\.txt must be a file; it is a folder, a pipe or a device"):
        text_of(open_corpus(str(tmp_path)), "train")


@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_a_compressed_file_does_not_grow_without_bound(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(compressed, "ALWAYS_ALLOWED", 2**20)
    (tmp_path / f"small{suffix}").write_bytes(PACK[suffix](bytes(2**20)))
    assert len(text_of(open_corpus("stdlib", train=tmp_path / f"small{suffix}"), "train")) == 2**20
    (tmp_path / f"bomb{suffix}").write_bytes(PACK[suffix](bytes(2**23)))
    for corpus in (open_corpus(tmp_path / f"bomb{suffix}"), open_corpus("stdlib", train=tmp_path / f"bomb{suffix}")):
        with pytest.raises(ValueError, match="grows to more than 200 times its size and 1 MiB; if that is right, dec"):
            text_of(corpus, "train")


def test_missing_files_and_splits(tmp_path):
    with pytest.raises(ValueError, match=r"give a text: .* got an empty name"):
        open_corpus("")
    with pytest.raises(FileNotFoundError, match="no text at nowhere: it must be a file, a folder"):
        open_corpus("nowhere")
    with pytest.raises(FileNotFoundError, match="no text at nowhere#raw"):
        open_corpus("nowhere#raw")
    with pytest.raises(FileNotFoundError, match="no text at nowhere"):
        open_corpus("stdlib", test="nowhere")
    with pytest.raises(ValueError, match="has no files"):
        open_corpus(str(tmp_path))
    source = write(tmp_path, train__txt="a", test__txt="b")
    with pytest.raises(ValueError, match="has no validation split; it has train, test"):
        open_corpus(source).lines("validation")
    write(tmp_path, train__txt__xz=lzma.compress(b"a"))
    with pytest.raises(ValueError, match=r"one file for the train split; train.txt.xz is a second one"):
        open_corpus(source)


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield datasets
    datasets.enable_progress_bars()


def test_hugging_face_saved_to_disk(tmp_path, datasets):
    rows = datasets.Dataset.from_dict({"text": ["one", "", "two\n", None, "a\nb"], "id": range(5)})
    datasets.DatasetDict({"train": rows, "validation": rows.select([0])}).save_to_disk(tmp_path / "both")
    rows.save_to_disk(tmp_path / "alone")
    corpus = open_corpus(f"hf:{tmp_path / 'both'}", lines="separate")
    assert corpus.splits() == ("train", "validation")
    kept = open_corpus(f"hf:{tmp_path / 'both'}")
    assert [*filter(None, documents(kept, "train"))] == ["one", "two\n", "a\nb"]
    assert list(corpus.lines("train")) == ["one\n", "\n", "two\n", "\n", "a\nb\n"]
    assert list(corpus.lines("validation")) == ["one\n"]
    assert corpus.fingerprint("train") != corpus.fingerprint("validation")
    assert kept.fingerprint("train") == open_corpus(f"hf:{tmp_path / 'both'}").fingerprint("train")
    assert kept.fingerprint("train") != corpus.fingerprint("train")
    alone = open_corpus(f"hf:{tmp_path / 'alone'}")
    assert [[*filter(None, documents(alone, split))] for split in SPLITS] == [["a\nb"], ["one"], ["two\n"]]


def test_hugging_face_folders(tmp_path, datasets):
    write(tmp_path / "texts", train__txt="one\n\ntwo", test__txt="three")
    corpus = open_corpus(f"hf:{tmp_path / 'texts'}")
    assert (corpus.splits(), documents(corpus, "train")) == (("train", "test"), ["one", "", "two"])
    assert corpus.fingerprint("train") == open_corpus(f"hf:{tmp_path / 'texts'}").fingerprint("train")
    write(tmp_path / "json", train__jsonl='{"line": "a"}\n')
    with pytest.raises(ValueError, match="has no column 'text'; choose from 'line'"):
        open_corpus(f"hf:{tmp_path / 'json'}")


def test_hugging_face_names(datasets, monkeypatch):
    calls = []

    def load_dataset(*arguments):
        calls.append(arguments)
        raise ConnectionError("cannot reach the hub\nand more lines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for name in ("Salesforce/wikitext:wikitext-2-raw-v1", "owner/name"):
        with pytest.raises(ValueError, match=f"cannot load the Hugging Face data set {name}: cannot reach the hub$"):
            open_corpus(f"hf:{name}")
    assert calls == [("Salesforce/wikitext", "wikitext-2-raw-v1"), ("owner/name", None)]


def test_without_the_package_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'toeplitz-nn\[datasets\]'"):
        open_corpus("hf:owner/name")


def test_opening_is_light():
    code = "import sys; from tnn.data import open_corpus; list(open_corpus('stdlib').lines('test'));"
    code += "assert not {'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
