"""Spans of a text that have a label, and the tags of words that stand for them: BIO, IOB1 and BIOES."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

OUTSIDE = "O"
MARKS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}  # BMES and BILOU have other letters
SpanKind = Literal["spans", "words"]  # spans of one or more words, or a label for each word


class Span(NamedTuple):
    """Characters `text[start:end]` and their label. There is no white space at the ends."""

    start: int
    end: int
    label: str


def split_tag(tag: str) -> tuple[str, str]:
    """The mark and the label of a tag: ("B", "PER") of "B-PER", ("O", "") of "O"; a ValueError for any other.

    >>> from tnn.data.spans import split_tag
    >>> split_tag("L-PER")
    ('E', 'PER')
    """
    mark, dash, label = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if not dash or mark not in MARKS or not label:
        why = "for tags of single words, such as parts of speech, give data.kind=words"
        raise ValueError(f"the tag {tag!r} is neither O nor one with a label, such as B-PER; {why}")
    return MARKS[mark], check_label(label)


def check_label(label: Any) -> str:
    """A label that a span may have.

    >>> from tnn.data.spans import check_label
    >>> check_label("O")
    Traceback (most recent call last):
    ...
    ValueError: the label 'O' stands for what is outside of all spans
    """
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise ValueError(f"the label must be a string; got {label!r}")
    name = str(label).strip()
    if not name:
        raise ValueError("the label is missing")
    if name == OUTSIDE:
        raise ValueError("the label 'O' stands for what is outside of all spans")
    return name


def spans_of_tags(tags: Sequence[str]) -> list[Span]:
    """Spans of words: `start` and `end` count words. All schemes are read by one rule, that of conlleval and seqeval.

    A span goes on with I or E of its label, and ends after E or S. Any other tag with a label begins one: so does an I
    after O, which IOB1 has and which a model may predict.

    >>> from tnn.data.spans import spans_of_tags
    >>> spans_of_tags(["B-PER", "I-PER", "O", "I-LOC", "S-LOC"])
    [Span(start=0, end=2, label='PER'), Span(start=3, end=4, label='LOC'), Span(start=4, end=5, label='LOC')]
    """
    spans: list[Span] = []
    is_open = False
    for place, (mark, label) in enumerate(map(split_tag, tags)):
        if mark == OUTSIDE:
            is_open = False
            continue
        if is_open and mark in "IE" and spans[-1].label == label:
            spans[-1] = spans[-1]._replace(end=place + 1)
        else:
            spans.append(Span(place, place + 1, label))
        is_open = mark in "BI"
    return spans


def covering_spans(pieces: Any, spans: Sequence[Span]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each piece (start, end) of a text, the number of the first span that has a part of it, and whether it is
    the first piece of that span; -1 outside. Pieces and spans are in the order of the text.

    >>> from tnn.data.spans import Span, covering_spans
    >>> number, begins = covering_spans([(0, 2), (3, 6), (7, 9)], [Span(3, 9, "LOC")])
    >>> number.tolist(), begins.tolist()
    ([-1, 0, 0], [False, True, False])
    """
    pieces = np.asarray(pieces, np.int64).reshape(-1, 2)
    if not spans:
        return np.full(len(pieces), -1), np.zeros(len(pieces), bool)
    starts, ends = np.array([span[:2] for span in spans]).T
    number = ends.searchsorted(pieces[:, 0], side="right")
    inside = starts[np.minimum(number, len(spans) - 1)] < pieces[:, 1]
    number = np.where(inside & (number < len(spans)), number, -1)
    return number, (number >= 0) & (number != np.concatenate([[-1], number[:-1]]))


def tags_of_words(words: Any, spans: Sequence[Span]) -> list[str]:
    """The BIO tags of words (start, end).

    >>> from tnn.data.spans import Span, tags_of_words
    >>> tags_of_words([(0, 2), (3, 6), (7, 9)], [Span(3, 9, "LOC")])
    ['O', 'B-LOC', 'I-LOC']
    """
    numbers, begins = covering_spans(words, spans)
    return [
        OUTSIDE if number < 0 else f"{'B' if begin else 'I'}-{spans[number].label}"
        for number, begin in zip(numbers.tolist(), begins.tolist(), strict=True)
    ]


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The same span without the white space at its ends; (end, end) if there is nothing else.

    >>> from tnn.data.spans import trimmed
    >>> trimmed("in Rome ", 2, 8)
    (3, 7)
    """
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, max(start, end - (len(part) - len(part.rstrip())))


def check_spans(text: str, values: Any) -> tuple[Span, ...]:
    """Spans as tables have them, {"start", "end", "label"}, in the order of the text; a ValueError names a wrong one.

    White space at the ends is left out.

    >>> from tnn.data.spans import check_spans
    >>> check_spans("in Rome", [{"start": 2, "end": 7, "label": "LOC"}])
    (Span(start=3, end=7, label='LOC'),)
    """
    if not isinstance(values, list | tuple):
        raise ValueError(f'the spans must be a list of {{"start", "end", "label"}}; got {values!r:.60}')
    numbered = []
    for number, value in enumerate(values, start=1):
        try:
            numbered.append((_checked(text, value), number))
        except ValueError as error:
            raise ValueError(f"span {number}: {error}") from None
    numbered.sort()
    for (one, first), (other, second) in pairwise(numbered):
        if other.start < one.end:
            places = f"characters {one.start} to {one.end} and {other.start} to {other.end}"
            raise ValueError(f"spans {first} and {second} overlap: {places}")
    return tuple(span for span, _ in numbered)


def _checked(text: str, value: Any) -> Span:
    if not isinstance(value, dict) or not {"start", "end", "label"} <= value.keys():
        raise ValueError(f'it must have "start", "end" and "label"; got {value!r:.60}')
    start, end = value["start"], value["end"]
    if not all(type(place) is int for place in (start, end)):
        raise ValueError(f"start and end must be numbers of characters; got {start!r} and {end!r}")
    if not 0 <= start < end <= len(text):
        raise ValueError(f"characters {start} to {end} are not in the text, which has {len(text)}")
    start, end = trimmed(text, start, end)
    if start == end:
        raise ValueError(f"characters {value['start']} to {value['end']} are white space")
    return Span(start, end, check_label(value["label"]))
