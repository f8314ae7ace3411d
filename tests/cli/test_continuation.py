"""The text of new tokens: whatever the boundaries of tokens, it is what they decode to, up to the first stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.cli.continuation import Continuation
from tnn.data import byte_tokenizer, train_bpe
from tnn.data.tokenizers import SPECIAL

TOKENIZERS = {"bytes": byte_tokenizer(), "bpe": train_bpe(["ab abc é é! \N{GRINNING FACE} aab"] * 9, 290)}
ALPHABET = "abc é!\n\N{GRINNING FACE}"


def feed(tokenizer, ids, **options):
    """The pieces that were written, and what wrote them."""
    pieces: list[str] = []
    text = Continuation(
        lambda new: tokenizer.decode(new, skip_special_tokens=True), pieces.append, most=len(ids), **options
    )
    for token in ids:
        text.add(token)
    return pieces, text


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_any_tokens_give_the_text_that_they_decode_to(name, data):
    """Also bytes that are no characters, and special tokens in between."""
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), min_size=1, max_size=40))
    pieces, text = feed(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=True)
    assert (text.finished, text.tokens) == ("length", len(ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text(ALPHABET, min_size=1, max_size=30), stops=st.lists(st.text(ALPHABET, min_size=1, max_size=4)))
def test_stop_strings(name, text, stops):
    """The one that is complete first; no piece is ever written that is a part of it."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces, found = feed(tokenizer, ids, stops=stops)
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert "".join(pieces) == (text[: min(ends)[1]] if ends else text)
    assert found.finished == ("stop" if ends else "length")


def test_text_is_written_as_soon_as_it_is_certain():
    ids = byte_tokenizer()("aé <end")["input_ids"]
    pieces, _ = feed(byte_tokenizer(), ids, stops=["<end>"])
    assert pieces == ["a", "é", " ", "<end"]  # it did not become a stop string


def test_the_end_of_a_text():
    end = list(SPECIAL.values()).index("</s>")
    ids = [*byte_tokenizer()("ab")["input_ids"], end, *byte_tokenizer()("c")["input_ids"]]
    pieces, text = feed(byte_tokenizer(), ids, eos=[end])
    assert (pieces, text.finished, text.tokens) == (["a", "b"], "eos", 3)
    assert feed(byte_tokenizer(), [*ids[:2], 4 + 0xC3])[0] == ["a", "b", "\N{REPLACEMENT CHARACTER}"]


def test_words_keep_the_spaces_between_them():
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({"<unk>": 0, "Das": 1, "und": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    pieces: list[str] = []
    text = Continuation(backend.decode, pieces.append, most=3)
    for token in (1, 2, 1):
        text.add(token)
    assert pieces == ["Das", " und", " Das"]
