"""Labels of tokens from spans of characters, and spans from labels of tokens."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn.data.blocks import IGNORED
from tnn.data.labelled_texts import text_tokenizer
from tnn.data.marked_texts import MarkedText
from tnn.data.spans import OUTSIDE, Span, SpanKind, covering_spans, spans_of_tags, trimmed

AT_ONCE = 1024  # texts per call of the tokenizer
UNLIMITED = 10**9  # tokens: no text is cut


def token_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer for a classifier of tokens, here and in pipelines: no text is cut, `<s>` and `</s>` are around it.

    Byte-level tokens often begin with the space before a word. It is not counted in where they are.

    >>> from tnn.data import train_bpe
    >>> from tnn.data.token_labels import token_tokenizer
    >>> tokenizer = token_tokenizer(train_bpe(["in Rome"] * 3, vocab_size=300))
    >>> tokenizer("in Rome", return_offsets_mapping=True)["offset_mapping"]
    [(0, 0), (0, 2), (3, 7), (0, 0)]
    """
    from tokenizers import pre_tokenizers, processors

    backend = text_tokenizer(tokenizer, UNLIMITED).backend_tokenizer
    is_byte_level = isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel)
    if is_byte_level and '"trim_offsets":true' not in _json(backend.post_processor):
        trim = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
        backend.post_processor = processors.Sequence([trim, backend.post_processor])
    return tokenizer


def _json(part: Any) -> str:
    return "" if part is None else part.__getstate__().decode()


class EncodedText(NamedTuple):
    """The tokens of a text, `<s>` and `</s>` among them."""

    ids: NDArray[np.int64]  # (n,)
    places: NDArray[np.int64]  # (n, 2) where each is in the text
    special: NDArray[np.bool_]  # (n,)


def encode_with_places(texts: Iterable[str], tokenizer: Any) -> Iterator[EncodedText]:
    """The tokens of whole texts.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.token_labels import encode_with_places
    >>> [encoded.places.tolist() for encoded in encode_with_places(["hé"], byte_tokenizer())]
    [[[0, 1], [1, 2], [1, 2]]]
    """
    remaining = iter(texts)
    while batch := list(islice(remaining, AT_ONCE)):
        found = tokenizer(batch, return_offsets_mapping=True, return_special_tokens_mask=True)
        columns = (found[name] for name in ("input_ids", "offset_mapping", "special_tokens_mask"))
        for ids, places, special in zip(*columns, strict=True):
            yield EncodedText(np.array(ids), np.array(places).reshape(-1, 2), np.array(special, bool))


def label_names(kind: SpanKind, names: Sequence[str]) -> tuple[str, ...]:
    """What a token may be: for spans O, and the beginning and the inside of each label.

    >>> from tnn.data.token_labels import label_names
    >>> label_names("spans", ["LOC"]), label_names("words", ["ADJ", "NOUN"])
    (('O', 'B-LOC', 'I-LOC'), ('ADJ', 'NOUN'))
    """
    if kind == "words":
        return tuple(names)
    return (OUTSIDE, *(f"{mark}-{name}" for name in names for mark in "BI"))


def span_names(labels: Sequence[str]) -> tuple[SpanKind, tuple[str, ...]]:
    """The inverse of `label_names`.

    >>> from tnn.data.token_labels import span_names
    >>> span_names(["O", "B-LOC", "I-LOC"])
    ('spans', ('LOC',))
    """
    names = tuple(label[2:] for label in labels if label.startswith("B-"))
    if names and tuple(labels) == label_names("spans", names):
        return "spans", names
    return "words", tuple(labels)


def label_tokens(
    encoded: EncodedText, spans: Sequence[Span], kind: SpanKind, numbers: dict[str, int]
) -> NDArray[np.int64]:
    """(n,) the number of the label of each token; -100 for special tokens, which are not scored.

    Of the kind "spans" all tokens have one: B for the first token of a span, I for the others, also for the spaces
    inside, and O elsewhere. Of the kind "words" the first token of each word has its label; all others have -100.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.spans import Span
    >>> from tnn.data.token_labels import encode_with_places, label_tokens
    >>> (encoded,) = encode_with_places(["in É."], byte_tokenizer())
    >>> label_tokens(encoded, [Span(3, 4, "LOC")], "spans", {"O": 0, "B-LOC": 1, "I-LOC": 2}).tolist()
    [0, 0, 0, 1, 2, 0]
    """
    number, begins = covering_spans(encoded.places, spans)
    if kind == "words":
        labels = np.full(len(number), IGNORED)
        labels[begins] = [numbers[spans[k].label] for k in number[begins]]
    else:
        first = np.array([numbers[f"B-{span.label}"] for span in spans] + [0])
        inner = np.array([numbers[f"I-{span.label}"] for span in spans] + [0])
        labels = np.where(number < 0, numbers[OUTSIDE], np.where(begins, first[number], inner[number]))
    labels[encoded.special] = IGNORED
    return labels


class TokenSpan(NamedTuple):
    """A span of characters, and the tokens that it was found in."""

    span: Span
    tokens: slice  # of those that are not special


def spans_of_tokens(encoded: EncodedText, text: str, tags: Sequence[str]) -> list[TokenSpan]:
    """The spans that BIO tags stand for, one tag for each token that is not special.

    A span has no white space at its ends. If two of them have parts of one character, it belongs to the first.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.token_labels import encode_with_places, spans_of_tokens
    >>> (encoded,) = encode_with_places(["in É."], byte_tokenizer())
    >>> [found.span for found in spans_of_tokens(encoded, "in É.", ["O", "O", "I-LOC", "I-LOC", "I-LOC", "O"])]
    [Span(start=3, end=4, label='LOC')]
    """
    places, found, last = encoded.places[~encoded.special], [], 0
    for start, end, label in spans_of_tags(tags):
        first, after = trimmed(text, max(last, int(places[start, 0])), int(places[end - 1, 1]))
        if first < after:
            found.append(TokenSpan(Span(first, after, label), slice(start, end)))
            last = after
    return found


def count_widened(
    encoded: EncodedText, marked: MarkedText, labels: NDArray[np.int64], kind: SpanKind, names: Sequence[str]
) -> int:
    """How many spans the labels of the tokens do not give back: they begin or end inside a token.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.marked_texts import MarkedText
    >>> from tnn.data.spans import Span
    >>> from tnn.data.token_labels import count_widened, encode_with_places, label_tokens
    >>> marked, names = MarkedText("Rome", (Span(0, 2, "X"),), None, ""), ("O", "B-X", "I-X")
    >>> (encoded,) = encode_with_places([marked.text], byte_tokenizer())
    >>> labels = label_tokens(encoded, marked.spans, "spans", {name: k for k, name in enumerate(names)})
    >>> count_widened(encoded, marked, labels, "spans", names)
    0
    """
    if kind == "words":
        return len(marked.spans) - int((labels != IGNORED).sum())
    tags = [names[label] for label in labels[~encoded.special]]
    found = {token_span.span for token_span in spans_of_tokens(encoded, marked.text, tags)}
    return len(set(marked.spans) - found)


class LabelledTokens(Dataset[dict[str, Tensor]]):
    """`input_ids` and `labels` of texts; a text of more than `length` tokens is in windows of about the same size.

    >>> import numpy as np
    >>> from tnn.data.token_labels import LabelledTokens
    >>> windows = LabelledTokens([(np.arange(5), np.zeros(5, int)), (np.arange(2), np.ones(2, int))], length=4)
    >>> [window["input_ids"].tolist() for window in windows]
    [[0, 1], [2, 3, 4], [0, 1]]
    """

    def __init__(self, texts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], length: int) -> None:
        self.windows = [
            (torch.from_numpy(ids[start:end]), torch.from_numpy(labels[start:end]))
            for ids, labels in texts
            for start, end in _windows(len(ids), length)
        ]

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids, labels = self.windows[index]
        return {"input_ids": ids, "labels": labels}


def _windows(size: int, length: int) -> Iterator[tuple[int, int]]:
    count = -(-size // length)
    for number in range(count):
        yield number * size // count, (number + 1) * size // count
