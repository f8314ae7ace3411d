"""Spans of characters as labels of tokens, and back."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data import byte_tokenizer, train_bpe
from tnn.data.blocks import IGNORED
from tnn.data.marked_texts import MarkedText, joined
from tnn.data.spans import Span, trimmed
from tnn.data.token_labels import (
    LabelledTokens,
    count_widened,
    encode_with_places,
    label_names,
    label_tokens,
    spans_of_tokens,
    token_tokenizer,
)

TAGS = label_names("spans", ["X", "Y"])
NUMBERS = {tag: number for number, tag in enumerate(TAGS)}
BYTES = token_tokenizer(byte_tokenizer())
BPE = token_tokenizer(train_bpe(["the cat sat on the mat, the Cat in New York"] * 4, 300))
characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\n  éß😀<s>")
texts = st.text(characters, min_size=1, max_size=30)
labels = st.sampled_from("XY")


@st.composite
def marked(draw, text):
    """Spans of a text that do not overlap and have no white space at their ends; some touch each other."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    spans = [Span(*trimmed(text, a, b), draw(labels)) for a, b in pairwise(cuts)]
    return [span for span in spans if span.start < span.end and draw(st.booleans())]


def there_and_back(tokenizer, text, spans):
    (encoded,) = encode_with_places([text], tokenizer)
    numbers = label_tokens(encoded, spans, "spans", NUMBERS)
    assert (numbers == IGNORED).tolist() == encoded.special.tolist()
    tags = [TAGS[number] for number in numbers if number != IGNORED]
    widened = count_widened(encoded, MarkedText(text, tuple(spans), None, ""), numbers, "spans", TAGS)
    return [found.span for found in spans_of_tokens(encoded, text, tags)], widened


@pytest.mark.slow
@given(st.data())
def test_bytes_keep_every_span(data):
    text = data.draw(texts)
    spans = data.draw(marked(text))
    assert there_and_back(BYTES, text, spans) == (spans, 0)


@pytest.mark.slow
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1), st.data())
def test_bpe_keeps_spans_of_words(words, data):
    words = ["".join(c for c in word if not c.isspace()) or "the" for word in words]
    text, places = joined(words)
    cuts = sorted(set(data.draw(st.lists(st.integers(0, len(words)), max_size=6))))
    pairs = [(a, b) for a, b in pairwise(cuts) if data.draw(st.booleans())]
    spans = [Span(places[a][0], places[b - 1][1], data.draw(labels)) for a, b in pairs]
    assert there_and_back(BPE, text, spans) == (spans, 0)


@pytest.mark.slow
@given(st.data())
def test_bpe_widens_spans_to_tokens(data):
    text = data.draw(st.text(st.sampled_from("the cat sat, New York"), min_size=1, max_size=30))
    spans = data.draw(marked(text))
    found, widened = there_and_back(BPE, text, spans)
    assert widened == len(set(spans) - set(found))
    for one in found:
        assert any(one.start <= span.start and span.label == one.label for span in spans if span.start < one.end)


def test_a_span_that_begins_inside_a_token():
    assert BPE.tokenize("the cat") == ["the", "Ġcat"]
    assert there_and_back(BPE, "the cat", [Span(5, 7, "X")]) == ([Span(4, 7, "X")], 1)
    assert there_and_back(BPE, "the cat", [Span(4, 5, "X"), Span(6, 7, "Y")]) == ([Span(4, 7, "X")], 2)


def test_the_first_token_of_a_word_has_its_label():
    text = "the yak"
    (encoded,) = encode_with_places([text], BPE)
    numbers = label_tokens(encoded, [Span(0, 3, "X"), Span(4, 7, "Y")], "words", {"X": 0, "Y": 1})
    tokens = zip(BPE.convert_ids_to_tokens(encoded.ids), numbers.tolist(), strict=True)
    assert list(tokens) == [("<s>", -100), ("the", 0), ("Ġ", -100), ("y", 1), ("a", -100), ("k", -100), ("</s>", -100)]


def test_two_spans_do_not_share_a_character():
    (encoded,) = encode_with_places(["é"], BYTES)
    assert [found.span for found in spans_of_tokens(encoded, "é", ["B-X", "B-Y"])] == [Span(0, 1, "X")]


@pytest.mark.parametrize("tokenizer", [BYTES, BPE])
def test_no_text_is_cut_and_the_tokenizer_is_kept(tokenizer, tmp_path):
    text = "the cat é " * 3000
    (encoded,) = encode_with_places([text], tokenizer)
    assert encoded.special.nonzero()[0].tolist() == [0, len(encoded.ids) - 1]
    assert encoded.places[-3:-1].max() >= len(text) - 1
    before = tokenizer.backend_tokenizer.to_str()
    assert token_tokenizer(tokenizer).backend_tokenizer.to_str() == before
    tokenizer.save_pretrained(tmp_path)
    (again,) = encode_with_places([text], type(tokenizer).from_pretrained(tmp_path))
    assert all((one == other).all() for one, other in zip(encoded, again, strict=True))


@given(st.integers(1, 50), st.integers(8, 20))
def test_windows_hold_each_token_once(size, length):
    windows = LabelledTokens([(np.arange(size), np.arange(size))], length)
    sizes = [len(window["input_ids"]) for window in windows]
    assert max(sizes) <= length
    assert max(sizes) - min(sizes) <= 1
    assert np.concatenate([window["labels"] for window in windows]).tolist() == list(range(size))
