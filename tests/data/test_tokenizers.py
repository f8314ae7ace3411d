"""Tokenizers: bytes, GPT-2, trained BPE, saved ones."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tnn.data import byte_tokenizer, gpt2_tokenizer, make_tokenizer, train_bpe
from tnn.data.tokenizers import _byte_characters, is_byte_tokenizer, load_tokenizer, tokenizer_files

TOKENIZER = byte_tokenizer()
LINES = ["the cat sat on the mat\n", "the hat that the cat had\n", "\n"] * 3
TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from(["<s>", "a</s>", "<pad> <unk>", " a , b .", "\r\n\n"])


@given(text=TEXTS)
def test_every_text_is_decoded_exactly(text):
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
    with pytest.raises(ValueError, match=r"no tokenizer files; .* with a vocabulary of 260, and this model has 300"):
        load_tokenizer(tmp_path, 300)
    byte_tokenizer(mask=True).save_pretrained(tmp_path)
    assert len(load_tokenizer(tmp_path, 300)) == 261


def write_gpt2(folder, names=("encoder.json", "vocab.bpe")):
    """A vocabulary like that of GPT-2: the bytes' characters, merges, one special token."""
    folder.mkdir(exist_ok=True)
    merges = ["h e", "Ġ t", "l l", "he ll", "# #"]
    tokens = [*sorted(_byte_characters()), *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    (folder / names[0]).write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / names[1]).write_text("\n".join(["#version: 0.2", *merges, ""]))
    return tokens


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2_ids_are_moved_by_four(tmp_path, names):
    tokens = write_gpt2(tmp_path, names)
    tokenizer = gpt2_tokenizer(tmp_path)
    assert len(tokenizer) == 4 + len(tokens) + 3
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert tokenizer.tokenize("hello there##") == ["hell", "o", "Ġt", "he", "r", "e", "##"]
    assert tokenizer("hell")["input_ids"] == [4 + tokens.index("hell")]
    assert (tokenizer.padding_side, tokenizer.mask_token) == ("left", None)


def test_gpt2_cuts_words_as_gpt2_does(tmp_path):
    """Its pattern separates "'s", numbers and signs from words; a space belongs to the following word."""
    write_gpt2(tmp_path)
    backend = gpt2_tokenizer(tmp_path).backend_tokenizer
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str("it's 12ab  we'll!?")]
    assert words == ["it", "'s", "Ġ12", "ab", "Ġ", "Ġwe", "'ll", "!?"]


@given(text=TEXTS | st.sampled_from(["<|endoftext|>", "<unused0>", "<mask>", "  hello  \n\n there's 1,000"]))
def test_every_text_is_decoded_exactly_from_bpe(text, bpe):
    ids = bpe(text)["input_ids"]
    assert bpe.decode(ids) == text
    assert min(ids, default=4) >= 4


@pytest.fixture(scope="module", params=["gpt2", "trained"])
def bpe(request, tmp_path_factory):
    if request.param == "trained":
        return train_bpe(LINES, 270)
    folder = tmp_path_factory.mktemp("gpt2")
    write_gpt2(folder)
    return gpt2_tokenizer(folder)


def test_the_mask_of_gpt2_is_last(tmp_path):
    write_gpt2(tmp_path)
    plain, masked = gpt2_tokenizer(tmp_path), gpt2_tokenizer(tmp_path, mask=True)
    assert masked.mask_token_id == len(plain) == len(masked) - 1
    assert masked("hell<mask>")["input_ids"] == [*plain("hell")["input_ids"], len(plain)]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("encoder.json", "[1, 2]", "must hold a JSON object that maps tokens to ids"),
        ("encoder.json", "no JSON", "must hold a JSON object that maps tokens to ids"),
        ("encoder.json", '{"a": 0, "b": 2}', "must number its 2 tokens from 0 to 1"),
        ("encoder.json", '{"a": 0, "b": 1}', "lacks 254 of the 256 bytes"),
        ("vocab.bpe", "x y\n", "vocab.bpe does not fit .*encoder.json"),
        ("vocab.bpe", "justone\n", "vocab.bpe does not fit .*encoder.json"),
    ],
)
def test_bad_gpt2_files(tmp_path, file, text, message):
    write_gpt2(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        gpt2_tokenizer(tmp_path)
    assert "\n" not in str(error.value)


def test_train_bpe_has_the_size_asked_for():
    tokenizer = train_bpe(iter(LINES), 270)
    assert len(tokenizer) == 270
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>"]) == [0, 1, 2, 3]
    assert "the" in tokenizer.get_vocab()
    masked = train_bpe(iter(LINES), 270, mask=True)
    assert (len(masked), masked.mask_token_id) == (271, 270)
    assert len(train_bpe(["ab"], 1000)) == 261  # there is only one pair
    assert "\n    " in train_bpe(["a\n     b\n     c"] * 2, 300).decode(range(260, 265))  # a line end and indentation
    with pytest.raises(ValueError, match=r"at least 260.*got 259"):
        train_bpe(LINES, 259)
    with pytest.raises(ValueError, match=r"vocab_size must be at most 10,000,000; got 9,223,372,036,854,775,807"):
        train_bpe(LINES, 2**63 - 1)


def test_train_bpe_is_the_same_each_time():
    assert train_bpe(LINES, 275).get_vocab() == train_bpe(LINES, 275).get_vocab()


def test_an_error_in_the_texts_is_not_lost():
    def texts():
        yield "a line"
        raise ValueError("the file is damaged")

    with pytest.raises(ValueError, match="damaged"):
        train_bpe(texts(), 270)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "trained"])
def test_bpe_saved_and_loaded(tmp_path, kind, mask):
    write_gpt2(tmp_path / "gpt2")
    original = train_bpe(LINES, 270, mask) if kind == "trained" else gpt2_tokenizer(tmp_path / "gpt2", mask)
    original.save_pretrained(tmp_path / "saved")
    text = "hello <s> the cat's <mask> Öl\n"
    loaders = AutoTokenizer.from_pretrained, lambda f: load_tokenizer(f, 9999), lambda f: make_tokenizer(str(f), mask)
    for load in loaders:
        loaded = load(tmp_path / "saved")
        assert loaded(text)["input_ids"] == original(text)["input_ids"]
        assert loaded.get_vocab() == original.get_vocab()
        assert (loaded.padding_side, loaded.special_tokens_map) == ("left", original.special_tokens_map)
        assert loaded.decode(loaded(text)["input_ids"]) == text
        assert not is_byte_tokenizer(loaded)


def test_make_tokenizer(tmp_path):
    assert is_byte_tokenizer(make_tokenizer("bytes"))
    assert make_tokenizer("bytes", mask=True).mask_token_id == 260
    write_gpt2(tmp_path)
    assert make_tokenizer(tmp_path, mask=True).get_vocab() == gpt2_tokenizer(tmp_path, mask=True).get_vocab()


@pytest.mark.parametrize("beside", [True, False])
def test_a_tokenizer_json(tmp_path, beside):
    """With its tokenizer_config.json or without, by file and by folder."""
    train_bpe(LINES, 270, mask=True).save_pretrained(tmp_path)
    if not beside:
        (tmp_path / "tokenizer_config.json").unlink()
    for spec in (tmp_path / "tokenizer.json", str(tmp_path)):
        tokenizer = make_tokenizer(spec, mask=True)
        assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1, 2)
        assert (tokenizer.mask_token_id, len(tokenizer)) == (270, 271)


def test_files_that_are_not_tokenizers(tmp_path):
    with pytest.raises(FileNotFoundError, match='no tokenizer nowhere: it must be "bytes", a folder or'):
        make_tokenizer("nowhere")
    with pytest.raises(FileNotFoundError, match=r"neither encoder.json and vocab.bpe nor"):
        make_tokenizer(tmp_path)
    train_bpe(LINES, 260).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no mask token"):
        make_tokenizer(tmp_path, mask=True)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="does not hold a tokenizer") as error:
        make_tokenizer(tmp_path)
    assert "\n" not in str(error.value)


def test_import_is_light():
    code = "import sys, tnn.data; assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
