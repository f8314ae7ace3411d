"""Texts from files, folders, compressed files, the standard library and Hugging Face data sets."""

import gzip
import lzma
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data import compressed, open_corpus
from tnn.data import corpus as module
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


@pytest.mark.parametrize("suffix", PACK)
def test_a_single_file_is_cut_by_bytes(tmp_path, suffix):
    data = bytes(65 + i % 13 if i % 7 else 10 for i in range(1000))
    (tmp_path / f"enwik{suffix}").write_bytes(PACK[suffix](data))
    for source in (tmp_path, tmp_path / f"enwik{suffix}"):
        corpus = open_corpus(str(source))
        parts = [text_of(corpus, split).encode() for split in SPLITS]
        assert [len(part) for part in parts] == [900, 50, 50]
        assert b"".join(parts) == data


@given(text=st.text(st.sampled_from("aé€😀\n"), max_size=60), files=st.integers(1, 3), line=st.sampled_from([5, 2**20]))
def test_splits_lose_nothing_and_cut_no_character(tmp_path_factory, text, files, line):
    folder = tmp_path_factory.mktemp("texts")
    for i in range(files):
        (folder / f"{i}").write_bytes(text[i::files].encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LINE", line)
        corpus = open_corpus(str(folder))
        assert "".join(text_of(corpus, split) for split in SPLITS) == "".join(text[i::files] for i in range(files))


def test_a_long_line_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LINE", 10)
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
    assert corpus.strip
    tokens = open_corpus(source + "#tokens")
    assert (tokens.splits(), text_of(tokens, "train")) == (("train", "test"), " tokens \n")
    with pytest.raises(ValueError, match=r"has no \.txt files; it has raw, tokens"):
        open_corpus(source + "#txt")


def test_a_file_of_wikitext_is_read_as_its_folder(tmp_path):
    source = write(tmp_path, wiki__test__tokens=" tokens \n", test__txt=" indented\n")
    assert open_corpus(f"{source}/wiki.test.tokens").strip == open_corpus(source + "#tokens").strip is True
    assert not open_corpus(f"{source}/test.txt").strip


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
    corpus = open_corpus(f"hf:{tmp_path / 'both'}")
    assert corpus.splits() == ("train", "validation")
    assert list(corpus.lines("train")) == ["one\n", "\n", "two\n", "\n", "a\nb\n"]
    assert list(corpus.lines("validation")) == ["one\n"]
    assert corpus.fingerprint("train") != corpus.fingerprint("validation")
    assert corpus.fingerprint("train") == open_corpus(f"hf:{tmp_path / 'both'}").fingerprint("train")
    assert open_corpus(f"hf:{tmp_path / 'alone'}").splits() == ("train",)


def test_hugging_face_folders(tmp_path, datasets):
    write(tmp_path / "texts", train__txt="one\n\ntwo", test__txt="three")
    corpus = open_corpus(f"hf:{tmp_path / 'texts'}")
    assert (corpus.splits(), list(corpus.lines("train"))) == (("train", "test"), ["one\n", "\n", "two\n"])
    assert corpus.fingerprint("train") == open_corpus(f"hf:{tmp_path / 'texts'}").fingerprint("train")
    write(tmp_path / "json", train__jsonl='{"line": "a"}\n')
    with pytest.raises(ValueError, match='has no column "text"; it has line'):
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
