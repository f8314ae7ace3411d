"""Token ids on disk: their values, made only once, and never used unfinished."""

import errno
import json
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest

from tnn.data import byte_tokenizer, encoding, make_tokenizer, open_corpus, tokenize, train_bpe
from tnn.data import tokens as module
from tnn.data.corpus import Corpus
from tnn.data.tokens import Tokens

TEXT = "the cat\n\nsat <s> on\r\nthe </s> <mask> <pad> € mat"
LINES = ["the cat", "", "sat <s> on", "the </s> <mask> <pad> € mat"]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "text").write_bytes(TEXT.encode())
    return open_corpus("stdlib", train=tmp_path / "text")


@pytest.fixture
def separate(tmp_path, corpus):
    """The same text as lines."""
    return open_corpus("stdlib", train=tmp_path / "text", lines="separate")


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(module, "SHARD", 8)


@pytest.fixture
def encoded(monkeypatch):
    """The shards that were given to the tokenizer."""
    shards = []
    original = encoding._separate_bytes
    monkeypatch.setattr(encoding, "_separate_bytes", lambda lines: shards.append("".join(lines)) or original(lines))
    return shards


def test_bytes_are_the_text_as_it_is(tmp_path, corpus):
    tokens = tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    assert tokens.ids.dtype == np.uint16
    assert bytes((tokens.ids - 4).astype(np.uint8)) == TEXT.encode()
    assert tokens.line_ends.tolist() == [8, 9, 21, len(TEXT.encode())]
    assert (tokens.words, tokens.bytes, tokens.vocab_size) == (2 + 3 + 6 + 3, len(TEXT.encode()), 260)
    assert isinstance(tokens.ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        tokens.ids[0] = 5


@pytest.mark.parametrize(("kind", "mask"), [("bytes", True), ("bpe", False), ("bpe", True)])
def test_separate_lines_with_their_end_and_no_special_token_from_text(tmp_path, separate, kind, mask):
    tokenizer = byte_tokenizer(mask) if kind == "bytes" else train_bpe(LINES, 280, mask)
    before = tokenizer("<s>")["input_ids"]
    tokens = tokenize(separate, "train", tokenizer, tmp_path / "cache")
    lines = [ids.tolist() for ids in np.split(tokens.ids, tokens.line_ends[:-1])]
    assert [line[-1] for line in lines] == [2] * 4
    assert all(id_ >= 4 and id_ != tokenizer.mask_token_id for line in lines for id_ in line[:-1])
    assert [tokenizer.decode(line[:-1]) for line in lines] == LINES
    assert tokens.line_ends[-1] == len(tokens.ids)
    assert (tokens.words, tokens.bytes, tokens.vocab_size) == (14, len(TEXT.encode()), len(tokenizer))
    assert tokenizer("<s>")["input_ids"] == before  # the tokenizer itself is left as it was


def test_many_small_batches_are_one_text(tmp_path, separate, monkeypatch):
    tokenizer = train_bpe(LINES, 280)
    whole = tokenize(separate, "train", tokenizer, tmp_path / "whole")
    monkeypatch.setattr(module, "SHARD", 10)
    monkeypatch.setattr(encoding, "BATCH", 3)
    parts = tokenize(separate, "train", tokenizer, tmp_path / "parts")
    assert parts.ids.tolist() == whole.ids.tolist()
    assert parts.line_ends.tolist() == whole.line_ends.tolist()
    assert (parts.words, parts.bytes) == (whole.words, whole.bytes)


@pytest.mark.parametrize(
    ("name", "lines"), [("wiki.train.raw", ["= A =", "", "b"]), ("train.txt", [" = A = ", " ", "  b"])]
)
def test_only_wikitext_is_stripped(tmp_path, name, lines):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / name).write_text(" = A = \n \n  b\n")
    tokenizer = train_bpe(["a"], 260)
    corpus = open_corpus(str(tmp_path / "texts"), lines="separate")
    tokens = tokenize(corpus, "train", tokenizer, tmp_path / "cache")
    assert tokenizer.decode(tokens.ids) == "".join(f"{line}</s>" for line in lines)
    assert (tokens.words, tokens.bytes) == (4 + 3, 14)


def test_a_large_vocabulary_has_wide_ids():
    assert encoding.id_type(2**16) == np.uint16
    assert encoding.id_type(2**16 + 1) == np.uint32


def test_settings_of_the_tokenizer_change_nothing(tmp_path, corpus):
    tokenizer = train_bpe(LINES, 280)
    first = tokenize(corpus, "train", tokenizer, tmp_path / "cache")
    tokenizer(["a", "b c"], padding="max_length", truncation=True, max_length=3)  # changes the state of the backend
    again = tokenize(corpus, "train", tokenizer, tmp_path / "cache")
    assert again.ids.filename == first.ids.filename


def test_the_second_time_nothing_is_read(tmp_path, corpus, monkeypatch):
    first = tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    monkeypatch.setattr(Corpus, "documents", None)
    second = tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    assert second.ids.tolist() == first.ids.tolist()


def test_a_saved_tokenizer_finds_the_same_tokens(tmp_path, corpus):
    tokenizer = train_bpe(LINES, 280, mask=True)
    tokenizer.save_pretrained(tmp_path / "saved")
    first = tokenize(corpus, "train", tokenizer, tmp_path / "cache")
    second = tokenize(corpus, "train", make_tokenizer(tmp_path / "saved"), tmp_path / "cache")
    assert second.ids.filename == first.ids.filename


def test_another_text_or_tokenizer_has_other_tokens(tmp_path, corpus, separate):
    first = tokenize(separate, "train", byte_tokenizer(), tmp_path / "cache")
    lines = tokenize(separate, "train", byte_tokenizer(mask=True), tmp_path / "cache")
    assert lines.ids.tolist() != first.ids.tolist()
    unsplit = byte_tokenizer()
    unsplit.split_special_tokens = False  # no longer the byte tokenizer
    assert tokenize(separate, "train", unsplit, tmp_path / "cache").ids.tolist() == lines.ids.tolist()
    (tmp_path / "text").write_text("changed")
    changed = tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    assert (changed.ids - 4).tolist() == list(b"changed")
    assert bytes((first.ids - 4).astype(np.uint8)) == TEXT.encode()  # the old tokens stay usable


def test_continues_after_an_interruption(tmp_path, separate, small_shards, encoded, monkeypatch):
    cache = tmp_path / "cache"
    original = module.write_text
    finished = []

    def interrupt(path, text):
        if finished:
            raise KeyboardInterrupt  # ids of the second shard are written, the progress is not
        original(path, text)
        finished.append(path)

    monkeypatch.setattr(module, "write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokenize(separate, "train", byte_tokenizer(), cache)
    assert len(encoded) == 2
    assert [path.suffix for path in cache.iterdir() if path.is_dir()] == [".part"]
    monkeypatch.setattr(module, "write_text", original)
    encoded.clear()
    tokens = tokenize(separate, "train", byte_tokenizer(), cache)
    assert encoded == ["\nsat <s> on\r\n", LINES[-1]]
    assert bytes((tokens.ids - 4).astype(np.uint8)) == TEXT.encode()
    assert tokens.line_ends.tolist() == [8, 9, 21, len(TEXT.encode())]
    assert (tokens.words, tokens.bytes) == (14, len(TEXT.encode()))
    assert [path.suffix for path in cache.iterdir() if path.is_dir()] == [""]


def test_a_full_disk(tmp_path, separate, small_shards, encoded, monkeypatch):
    calls = []

    def fsync(_):
        calls.append(1)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", fsync)
    with pytest.raises(OSError, match=r"no space left for tokens in .*cache; finished parts are kept"):
        tokenize(separate, "train", byte_tokenizer(), tmp_path / "cache")
    monkeypatch.undo()
    monkeypatch.setattr(module, "SHARD", 8)
    assert tokenize(separate, "train", byte_tokenizer(), tmp_path / "cache").bytes == len(TEXT.encode())


def _tokenize_and_report(folder, start, queue):
    corpus = open_corpus("stdlib", train=folder / "text")
    start.wait()
    tokens = tokenize(corpus, "train", byte_tokenizer(), folder / "cache", progress=False)
    queue.put((int(tokens.ids.astype(np.int64).sum()), tokens.bytes, str(tokens.ids.filename)))


def test_two_processes_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 1000)  # also in the children, which are forked
    data = bytes(97 + i * i % 23 if i % 50 else 10 for i in range(100_000))
    (tmp_path / "text").write_bytes(data)
    context = multiprocessing.get_context("fork")
    start, queue = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_tokenize_and_report, args=(tmp_path, start, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    reports = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert reports[0] == reports[1]
    assert reports[0][:2] == (sum(data) + 4 * len(data), len(data))


def test_pickles_hold_the_path_only(tmp_path):
    (tmp_path / "text").write_bytes(b"a" * 100_000)
    tokens = tokenize(open_corpus("stdlib", train=tmp_path / "text"), "train", byte_tokenizer(), tmp_path / "cache")
    pickled = pickle.dumps(tokens)
    assert len(pickled) < 1000
    assert pickle.loads(pickled).ids.tolist() == tokens.ids.tolist()
    held = Tokens(np.array([5, 6]), np.array([2]), words=1, bytes=2, vocab_size=260)
    assert pickle.loads(pickle.dumps(held)).ids.tolist() == [5, 6]


def test_empty_texts(tmp_path):
    (tmp_path / "text").write_text("")
    corpus = open_corpus("stdlib", train=tmp_path / "text")
    for tokenizer in (byte_tokenizer(), byte_tokenizer(mask=True)):
        with pytest.raises(ValueError, match="the train split of stdlib is empty"):
            tokenize(corpus, "train", tokenizer, tmp_path / "cache")
    (tmp_path / "text").write_text("five.")
    corpus = open_corpus(str(tmp_path / "text"), lines="separate")
    with pytest.raises(ValueError, match=r"the validation split of .*text is empty"):
        tokenize(corpus, "validation", byte_tokenizer(), tmp_path / "cache")


def test_a_missing_split(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    with pytest.raises(ValueError, match="has no test split; it has train"):
        tokenize(open_corpus(str(tmp_path)), "test", byte_tokenizer(), tmp_path / "cache")


def test_a_tokenizer_without_an_end(tmp_path, corpus):
    tokenizer = train_bpe(LINES, 280)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="an end-of-text token"):
        tokenize(corpus, "train", tokenizer, tmp_path / "cache")


def test_progress_only_on_a_terminal(tmp_path, corpus, capsys, monkeypatch):
    tokenize(corpus, "train", byte_tokenizer(), tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    tokenize(corpus, "train", byte_tokenizer(), tmp_path / "told")
    assert "tokenizing train" in capsys.readouterr().err
    tokenize(corpus, "train", byte_tokenizer(), tmp_path / "silent", progress=False)
    assert capsys.readouterr().err == ""


def damage_json(**changes):
    def damage(folder):
        values = json.loads((folder / "progress.json").read_text())
        (folder / "progress.json").write_text(json.dumps(values | changes))

    return damage


def damage_numbers(name, dtype, index, value):
    def damage(folder):
        numbers = np.fromfile(folder / name, dtype)
        numbers[index] = value
        numbers.tofile(folder / name)

    return damage


DAMAGE = {
    "no progress": (lambda folder: (folder / "progress.json").unlink(), "No such file"),
    "no JSON": (lambda folder: (folder / "progress.json").write_text("{"), "Expecting property name"),
    "a list": (
        lambda folder: (folder / "progress.json").write_text("[]"),
        "must have the keys vocab_size, shards, ids",
    ),
    "unknown key": (damage_json(nope=1), "must have the keys"),
    "wrong type": (damage_json(words="8"), "must hold numbers above 0"),
    "nothing": (damage_json(ids=0), "must hold numbers above 0"),
    "too few ids": (damage_json(ids=10), r"ids\.bin must have 20 bytes; it has 100"),
    "too many lines": (damage_json(lines=2**62), r"line_ends\.bin must have \d+ bytes; it has 32"),
    "another type": (damage_json(vocab_size=2**20), r"ids\.bin must have 200 bytes; it has 100"),
    "an odd id": (damage_numbers("ids.bin", np.uint16, 5, 260), "there is an id 260 in a vocabulary of 260"),
    "lines back": (damage_numbers("line_ends.bin", np.int64, 1, 3), "lines do not end one after the other"),
    "last line": (damage_numbers("line_ends.bin", np.int64, -1, 99), "lines do not end one after the other"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_tokens_are_named_and_made_again_on_request(tmp_path, corpus, name):
    damage, message = DAMAGE[name]
    tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    (folder,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    damage(folder)
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"^the tokens in {folder} are damaged: .*{message}.*; delete that fold"):
            tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    shutil.rmtree(folder)
    tokens = tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    assert bytes((tokens.ids - 4).astype(np.uint8)) == TEXT.encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda part: (part / "ids.bin").write_bytes(b""),
        lambda part: (part / "progress.json").write_text("[1]"),
        damage_json(ids=10**9),
        damage_json(vocab_size=70_000),
    ],
)
def test_an_interrupted_text_that_was_damaged_is_begun_again(tmp_path, corpus, damage):
    tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    (folder,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    damage(folder.rename(f"{folder}.part"))
    tokens = tokenize(corpus, "train", byte_tokenizer(), tmp_path / "cache")
    assert bytes((tokens.ids - 4).astype(np.uint8)) == TEXT.encode()
