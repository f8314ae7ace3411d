"""Spans and the tags of words: against the rules of conlleval, and there and back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.spans import Span, check_spans, covering_spans, spans_of_tags, split_tag, tags_of_words

tags = st.sampled_from(["O", *(f"{mark}-{label}" for mark in "BIES" for label in ("X", "Y-Z"))])


def conlleval(tags):
    """The rules of the script of CoNLL-2000, which seqeval has too, written out."""
    spans, start = [], None
    before, kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, label = tag.partition("-")
        ends = (
            before in ("E", "S")
            or (before in ("B", "I") and mark in ("B", "S", "O"))
            or (before not in ("O", ".") and kind != label)
        )
        if start is not None and ends:
            spans.append((start, place, kind))
            start = None
        begins = (
            mark in ("B", "S")
            or (before in ("E", "S", "O") and mark in ("E", "I"))
            or (mark not in ("O", ".") and kind != label)
        )
        if begins:
            start = place
        before, kind = mark, label
    return spans


@pytest.mark.slow
@given(st.lists(tags, max_size=12))
def test_tags_are_read_by_the_rules_of_conlleval(tags):
    assert spans_of_tags(tags) == conlleval(tags)


@pytest.mark.parametrize(
    "tags",
    [
        ["B-X", "I-X", "B-X", "O", "B-Y"],  # BIO
        ["I-X", "I-X", "B-X", "O", "I-Y"],  # IOB1: B only after a span of the same label
        ["B-X", "E-X", "S-X", "O", "S-Y"],  # BIOES
        ["B-X", "L-X", "U-X", "O", "U-Y"],  # BILOU
    ],
)
def test_all_schemes(tags):
    assert spans_of_tags(tags) == [(0, 2, "X"), (2, 3, "X"), (4, 5, "Y")]


@pytest.mark.slow
@given(st.lists(tags, max_size=12))
def test_bio_tags_there_and_back(tags):
    spans = spans_of_tags(tags)
    words = [(2 * place, 2 * place + 1) for place in range(len(tags))]
    of_text = [Span(words[span.start][0], words[span.end - 1][1], span.label) for span in spans]
    assert spans_of_tags(tags_of_words(words, of_text)) == spans


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8), st.data())
def test_spans_that_cover_pieces(sizes, data):
    pieces, end = [], 0
    for gap, size in sizes:
        pieces.append((end + gap, end + gap + size))
        end += gap + size
    cuts = sorted(data.draw(st.sets(st.integers(0, end + 1), max_size=6)))
    spans = [Span(a, b, "X") for k, (a, b) in enumerate(pairwise(cuts)) if k % 2 == 0]
    numbers, begins = covering_spans(pieces, spans)
    slow = [next((k for k, s in enumerate(spans) if s.start < b and s.end > a), -1) for a, b in pieces]
    assert numbers.tolist() == slow
    before = [-1, *slow][: len(slow)]
    assert begins.tolist() == [one >= 0 and one != other for one, other in zip(slow, before, strict=True)]


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("NN", r"the tag 'NN' is neither O nor one with a label, such as B-PER; .* give data.kind=words$"),
        ("X-PER", r"the tag 'X-PER' is neither O"),
        ("B-", r"the tag 'B-' is neither O"),
        ("B-O", r"the label 'O' stands for what is outside"),
        ("", r"the tag '' is neither O"),
    ],
)
def test_tags_that_are_none(tag, message):
    with pytest.raises(ValueError, match=message):
        split_tag(tag)


def span(start, end, label="X"):
    return {"start": start, "end": end, "label": label}


def test_spans_of_a_row():
    row = [span(7, 10, 5), span(0, 4) | {"text": "more", "probability": 0.5}]
    assert check_spans("in a  Rome", row) == ((0, 4, "X"), (7, 10, "5"))
    assert check_spans("a b", []) == ()


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (None, r"the spans must be a list of .*; got None"),
        ('[{"start": 0}]', r"the spans must be a list"),
        ([[0, 2, "X"]], r"span 1: it must have \"start\", \"end\" and \"label\"; got \[0, 2, 'X'\]"),
        ([span(0, 2), span(1.0, 2)], r"span 2: start and end must be numbers of characters; got 1.0 and 2"),
        ([span(True, 2)], r"span 1: start and end must be numbers"),
        ([span(0, 2), span(3, 9)], r"span 2: characters 3 to 9 are not in the text, which has 6"),
        ([span(-2, 3)], r"span 1: characters -2 to 3 are not in the text"),
        ([span(3, 3)], r"span 1: characters 3 to 3 are not in the text"),
        ([span(2, 3)], r"span 1: characters 2 to 3 are white space"),
        ([span(3, 6), span(0, 4)], r"spans 2 and 1 overlap: characters 0 to 4 and 3 to 6"),
        ([span(0, 2, "")], r"span 1: the label is missing"),
        ([span(0, 2, None)], r"span 1: the label must be a string; got None"),
        ([span(0, 2, "O")], r"span 1: the label 'O' stands for what is outside of all spans"),
    ],
)
def test_spans_that_are_wrong(spans, message):
    with pytest.raises(ValueError, match=message):
        check_spans("in Rom", spans)
