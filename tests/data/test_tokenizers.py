"""One token a byte, and the ids of text files."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tnn.data import byte_tokenizer
from tnn.data.tokenizers import is_byte_tokenizer, load_tokenizer, read_ids, tokenizer_files

TOKENIZER = byte_tokenizer()
TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from(["<s>", "a</s>", "<pad> <unk>", " a , b .", "\r\n\n"])


@given(text=TEXTS)
def test_every_text_comes_back(text):
    ids = TOKENIZER(text)["input_ids"]
    assert ids == [4 + byte for byte in text.encode()]
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(ids, skip_special_tokens=True) == text


def test_the_vocabulary():
    assert len(TOKENIZER) == 260
    assert TOKENIZER.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>", "A"]) == [0, 1, 2, 3, 4 + 65]
    assert (TOKENIZER.bos_token_id, TOKENIZER.pad_token_id, TOKENIZER.eos_token_id) == (0, 1, 2)
    assert TOKENIZER.unk_token_id == 3
    assert TOKENIZER.mask_token is None
    assert TOKENIZER.decode([0, 4 + 65, 2], skip_special_tokens=True) == "A"


def test_a_batch_is_padded_on_the_left():
    batch = TOKENIZER(["ab", "c"], padding=True, return_tensors="pt")
    assert batch["input_ids"].tolist() == [[101, 102], [1, 103]]
    assert batch["attention_mask"].tolist() == [[1, 1], [0, 1]]


def test_with_a_mask():
    tokenizer = byte_tokenizer(mask=True)
    assert len(tokenizer) == 261
    assert tokenizer.mask_token_id == 260
    assert tokenizer("a<mask>b")["input_ids"] == [101, 260, 102]
    assert tokenizer("ü")["input_ids"] == TOKENIZER("ü")["input_ids"]


@pytest.mark.parametrize("mask", [False, True])
def test_saved_and_loaded(tmp_path, mask):
    original = byte_tokenizer(mask)
    original.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "Öl <s> <mask>\n"
    assert loaded(text)["input_ids"] == original(text)["input_ids"]
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert (loaded.padding_side, loaded.special_tokens_map) == ("left", original.special_tokens_map)
    assert is_byte_tokenizer(loaded) == (not mask)
    assert tokenizer_files(tmp_path) == sorted(tmp_path.iterdir())


def test_load_tokenizer(tmp_path):
    assert is_byte_tokenizer(load_tokenizer(tmp_path, 260))
    with pytest.raises(ValueError, match="no tokenizer files, and a vocabulary of 300; only with 260"):
        load_tokenizer(tmp_path, 300)
    byte_tokenizer(mask=True).save_pretrained(tmp_path)
    assert len(load_tokenizer(tmp_path, 300)) == 261


def test_files_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("tnn.data.tokenizers.PIECE", 5)
    text = "Schöne Grüße\r\n\n<s> €"
    (tmp_path / "text").write_bytes(text.encode())
    bytes_of = list(read_ids(tmp_path / "text", byte_tokenizer()))
    assert len(bytes_of) == 4
    assert (torch.cat(bytes_of) - 4).tolist() == list(text.encode())
    lines = list(read_ids(tmp_path / "text", byte_tokenizer(mask=True)))
    assert len(lines) == 3
    assert lines[-1].tolist()[0] == 0  # <s>


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "bytes").write_bytes(b"abc\xff")
    with pytest.raises(UnicodeDecodeError):
        list(read_ids(tmp_path / "bytes", byte_tokenizer()))


def test_import_is_light():
    code = "import sys, tnn.data; assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
