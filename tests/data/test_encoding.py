"""Documents as token ids: nothing is lost or changed, whatever the pieces and the text."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.test_tokenizers import write_gpt2
from tnn.data import byte_tokenizer, encoding, gpt2_tokenizer, make_tokenizer, open_corpus, tokenize, train_bpe
from tnn.data import tokens as module
from tnn.data.corpus import SPLITS
from tnn.data.encoding import _pieces, encode_prompt, plain_backend
from tnn.data.tokens import bpe_of, tokenizer_for

CODE = "def f(x):\n    if x:\n        return [x,\n                -x]\n\n\n    return 'it''s'  # 1,000\r\n\tx\t= 0\n"
WORDS = ["<s>", "</s>", "<pad>", "<mask>", "<unk>", "<|endoftext|>", "'s", " it's", "Ġ", "Ċ", "def", "\n    ", " , ."]
ENDS = [
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\t",
    " ",
    "  ",
    "\u00a0",
    "\u2028",
    "\x85",
    "\x0b",
    "\x1c",
    "\ufeff",
    "\0",
    "\u3000",
]
EMOJI = ["😀", "👩‍👩‍👧", "🇺🇦", "é", "e\u0301", "漢字", "नमस्ते", "👍🏽", "\u0301", "\u200d", "\ufe0f"]
NAMES = [f"{kind}{end}" for kind in ("bytes", "trained", "gpt2") for end in ("", " with a mask")]
NAMES += ["saved", "tokenizer.json"]
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8")),
    st.lists(st.sampled_from([*WORDS, *ENDS, *EMOJI, "a", "B", "7"])).map("".join),
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    write_gpt2(folder / "gpt2")
    made = {}
    for end, mask in (("", False), (" with a mask", True)):
        made[f"bytes{end}"] = byte_tokenizer(mask)
        made[f"trained{end}"] = train_bpe([CODE] * 3, 320, mask)
        made[f"gpt2{end}"] = gpt2_tokenizer(folder / "gpt2", mask)
    made["trained"].save_pretrained(folder / "saved")
    made["saved"] = make_tokenizer(folder / "saved")
    (folder / "saved" / "tokenizer_config.json").unlink()
    return made | {"tokenizer.json": make_tokenizer(folder / "saved" / "tokenizer.json")}


def random_text(generator):
    """Words, white space, names of special tokens and characters from all of Unicode, in any order."""
    characters = (chr(generator.randrange(2 ** generator.randint(1, 20))) for _ in range(8))
    plain = [character for character in characters if not "\ud800" <= character <= "\udfff"]
    return "".join(generator.choices([*WORDS, *ENDS, *EMOJI, *plain, "a", "B", "7", " a"], k=generator.randrange(30)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_texts_are_decoded_exactly(tokenizers, name):
    """By each tokenizer; as ids of a training, too, where the name of a special token is text."""
    tokenizer, generator = tokenizers[name], random.Random(name)
    backend = plain_backend(tokenizer)
    for text in (random_text(generator) for _ in range(10_000)):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        ids = backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trained", "gpt2"])
@given(
    text=TEXTS | st.text(st.sampled_from("ab \n\t\r\x1c\u3000'!")), piece=st.integers(1, 9), longest=st.integers(9, 30)
)
def test_pieces_have_the_tokens_of_the_whole(tokenizers, name, text, piece, longest):
    """Unless there is no white space for too long."""
    backend = plain_backend(tokenizers[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "PIECE", piece)
        patch.setattr(encoding, "LONGEST_PIECE", longest)
        pieces = list(_pieces(text[start : start + 3] for start in range(0, len(text), 3)))
    assert "".join(pieces) == text
    if all(before[-1:].isspace() is False and after[:1] in " \t\r\n" for before, after in pairwise(pieces)):
        ids = [id_ for piece in pieces for id_ in backend.encode(piece).ids]
        assert ids == backend.encode(text).ids
    else:
        assert max(map(len, pieces)) >= longest


def test_a_document_larger_than_memory_is_read_in_pieces():
    lengths = [len(piece) for piece in _pieces("a line\n" for _ in range(200_000))]
    assert max(lengths) < 2 * encoding.PIECE
    assert sum(lengths) == 7 * 200_000
    *full, rest = [len(piece) for piece in _pieces("x" * 1000 for _ in range(3000))]
    assert [length // encoding.LONGEST_PIECE for length in full] == [1, 1]
    assert sum(full) + rest == 3_000_000


@pytest.fixture
def sources(tmp_path):
    """Source files with indentation, blank lines, carriage returns and an end that is no line end."""
    generator, folder = random.Random(0), tmp_path / "sources"
    folder.mkdir()
    for i in range(40):
        text = "".join(generator.choices(CODE.splitlines(keepends=True), k=60)) + f"# file {i}"
        (folder / f"{i}.py").write_bytes(text.encode())
    (folder / "empty.py").touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["bytes", "bpe:300"])
@pytest.mark.parametrize("mask", [False, True])
def test_the_training_data_are_the_files(sources, tmp_path, monkeypatch, spec, mask):
    """As many line ends as in the files, and </s> between files only."""
    monkeypatch.setattr(module, "SHARD", 5000)
    monkeypatch.setattr(encoding, "PIECE", 100)
    monkeypatch.setattr(encoding, "BATCH", 1000)
    corpus = open_corpus(sources)
    tokenizer = tokenizer_for(spec, corpus, mask=mask, cache=tmp_path / "cache")
    found = []
    for split in SPLITS:
        tokens = tokenize(corpus, split, tokenizer, tmp_path / "cache")
        ends = np.flatnonzero(tokens.ids == tokenizer.eos_token_id)
        texts = [tokenizer.decode(ids[i > 0 :]) for i, ids in enumerate(np.split(tokens.ids, ends))]
        assert texts == [*filter(None, map("".join, corpus.documents(split)))]
        found += texts
        assert tokens.bytes == len("".join(texts).encode())
        assert tokens.words == sum(len(text.split()) + text.count("\n") for text in texts)
    files = [path.read_bytes().decode() for path in sources.iterdir()]
    assert sorted(found) == sorted(filter(None, files))
    line_ends = sum(text.count("\n") for text in files)
    assert sum(text.count("\n") for text in found) == line_ends > 1000


def test_documents_are_continued_after_an_interruption(sources, tmp_path, monkeypatch):
    corpus, tokenizer = open_corpus(sources), train_bpe([CODE], 280)
    monkeypatch.setattr(encoding, "PIECE", 100)
    monkeypatch.setattr(module, "SHARD", 3000)
    whole = tokenize(corpus, "train", tokenizer, tmp_path / "whole")
    original, finished = module.write_text, []

    def interrupt(path, text):
        if len(finished) == 2:
            raise KeyboardInterrupt
        original(path, text)
        finished.append(path)

    monkeypatch.setattr(module, "write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokenize(corpus, "train", tokenizer, tmp_path / "parts")
    monkeypatch.setattr(module, "write_text", original)
    parts = tokenize(corpus, "train", tokenizer, tmp_path / "parts")
    assert parts.ids.tolist() == whole.ids.tolist()
    assert parts.line_ends.tolist() == whole.line_ends.tolist()
    assert (parts.words, parts.bytes) == (whole.words, whole.bytes)


def test_lines_end_after_their_line_end_or_with_their_document(sources, tmp_path):
    corpus = open_corpus(sources)
    for tokenizer in (bpe_of(corpus, 300), byte_tokenizer()):
        tokens = tokenize(corpus, "train", tokenizer, tmp_path / "cache")
        lines = [tokenizer.decode(ids) for ids in np.split(tokens.ids, tokens.line_ends[:-1])]
        assert all("\n" not in line.rstrip() for line in lines)
        assert sum(line.endswith("</s>") for line in lines) == 35
        assert sum("\n" in line for line in lines) > 35 * 40


def test_indentation_is_learned(sources):
    tokenizer = bpe_of(open_corpus(sources), 300)
    assert "Ċ   " in [token.replace("Ġ", " ") for token in tokenizer.get_vocab()]
    separate = bpe_of(open_corpus(sources, lines="separate"), 300)
    assert [token for token in separate.get_vocab() if "Ċ" in token] == ["Ċ"]


def test_a_rule_has_its_own_tokens(sources, tmp_path):
    for lines in ("keep", "separate", "keep"):
        corpus = open_corpus(sources, lines=lines)
        tokenizer = tokenizer_for("bpe:300", corpus, mask=False, cache=tmp_path)
        text = tokenizer.decode(tokenize(corpus, "test", tokenizer, tmp_path).ids)
        assert ("\n" in text) == (lines == "keep")
    assert len([path for path in tmp_path.glob("test-*") if path.is_dir()]) == 2


@pytest.mark.slow
@given(text=TEXTS)
def test_a_prompt_is_encoded_as_the_text_of_the_training(tokenizers, text):
    for name in ("bytes", "trained", "gpt2"):
        tokenizer = tokenizers[name]
        assert encode_prompt(tokenizer, text, separate=False) == plain_backend(tokenizer).encode(text).ids
    lines = [line.removesuffix("\r") for line in text.split("\n")[:-1]] + text.split("\n")[-1:]
    ids = np.array(encode_prompt(tokenizers["trained"], text, separate=True), int)
    ends = np.flatnonzero(ids == 2)
    assert [tokenizers["trained"].decode(row[i > 0 :]) for i, row in enumerate(np.split(ids, ends))] == lines
    bytes_ = encode_prompt(tokenizers["bytes"], text, separate=True)
    assert bytes_ == [4 + byte for byte in text.encode()]
