"""Labels of the words or spans of new texts. No text is cut: the model reads it whole, whatever its length."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tnn.data.blocks import collate
from tnn.data.conll import conll_ending
from tnn.data.labelled_texts import check_text
from tnn.data.marked_texts import MarkedColumns, MarkedText, open_sources
from tnn.data.spans import Span, SpanKind
from tnn.data.tables import Row, table_kind
from tnn.data.token_labels import EncodedText, encode_with_places, spans_of_tokens
from tnn.training.naive_bayes import WORD
from tnn.training.text_source import source_kind

DIGITS = 6  # of a probability
MOST_TOKENS = 2**17  # in a batch, with its padding


class FoundSpan(NamedTuple):
    span: Span
    probability: float  # of a word that of its label; of a span the mean over its tokens


class TextOutput(NamedTuple):
    """What a model says about a text."""

    marked: MarkedText
    encoded: EncodedText
    logits: NDArray[np.float32]  # (n, labels) of all tokens


def predict_spans(
    model: Any, tokenizer: Any, kind: SpanKind, columns: MarkedColumns, source: str, batch_size: int
) -> Iterator[Row]:
    """Rows with the columns of a table, or with `text`, and the `spans` that the model finds, in the order of the text.

    A span has `start`, `end`, `label`, `text` and `probability`. Spans are those of
    `transformers.pipeline("token-classification", aggregation_strategy="simple")`, without white space at their ends.
    Texts are read and computed a batch at a time.

    >>> from pathlib import Path
    >>> from tnn.training import predict
    >>> next(predict(Path("runs/names"), "She lives in Rome."))  # doctest: +SKIP
    {'text': 'She lives in Rome.', 'spans': [{'start': 13, 'end': 17, 'label': 'LOC', 'text': 'Rome', ...}]}
    """
    names = [model.config.id2label[number] for number in range(model.config.num_labels)]
    texts = _texts(source, columns)
    while batch := list(islice(texts, batch_size)):
        for output in compute(model, tokenizer, batch, batch_size):
            found = find_spans(output, kind, names)
            yield output.marked.row | {"spans": [_as_row(output.marked.text, one) for one in found]}


def _as_row(text: str, found: FoundSpan) -> Row:
    span = found.span
    shown = {"text": text[span.start : span.end], "probability": round(found.probability, DIGITS)}
    return {"start": span.start, "end": span.end, "label": span.label, **shown}


def _texts(source: str, columns: MarkedColumns) -> Iterator[MarkedText]:
    kind = source_kind(source, lambda path: table_kind(path) is not None or conll_ending(path) is not None)
    if kind == "file":
        for one in open_sources(source).values():
            yield from columns.unlabelled(one)
    elif kind == "text":
        yield _plain(source, "the command line")
    else:
        for number, line in enumerate(sys.stdin, start=1):
            yield _plain(line.removesuffix("\n"), f"line {number} of standard input")


def _plain(text: str, where: str) -> MarkedText:
    return MarkedText(check_text(text, where), (), None, where, {"text": text})


@torch.inference_mode()
def compute(model: Any, tokenizer: Any, texts: Sequence[MarkedText], batch_size: int = 32) -> Iterator[TextOutput]:
    """The outputs of a model for each token of whole texts. Very long texts are computed alone.

    >>> from tnn import TNNConfig, TNNForTokenClassification
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.marked_texts import MarkedText
    >>> from tnn.training.span_prediction import compute
    >>> config = TNNConfig(vocab_size=260, hidden_size=8, num_hidden_layers=1, is_decoder=False, num_labels=3)
    >>> model = TNNForTokenClassification(config).eval()
    >>> [output.logits.shape for output in compute(model, byte_tokenizer(), [MarkedText("Rome", (), None, "")])]
    [(4, 3)]
    """
    pad = collate(tokenizer.pad_token_id or 0)
    encoded = encode_with_places((marked.text for marked in texts), tokenizer)
    for batch in _batches(zip(texts, encoded, strict=True), batch_size):
        inputs = pad([{"input_ids": one.ids} for _, one in batch])
        del inputs["labels"]
        logits = model(**{key: value.to(model.device) for key, value in inputs.items()}).logits.float().cpu()
        for (marked, one), row in zip(batch, logits.numpy(), strict=True):
            if not np.isfinite(row[: len(one.ids)]).all():  # argmax would take a label for it
                raise ArithmeticError(f"{marked.where}: outputs of the model are NaN or infinite")
            yield TextOutput(marked, one, row[: len(one.ids)])


Pair = tuple[MarkedText, EncodedText]


def _batches(pairs: Iterable[Pair], batch_size: int) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    longest = 0
    for pair in pairs:
        longest = max(longest, len(pair[1].ids))
        if batch and (len(batch) == batch_size or longest * (len(batch) + 1) > MOST_TOKENS):
            yield batch
            batch, longest = [], len(pair[1].ids)
        batch.append(pair)
    if batch:
        yield batch


def find_spans(output: TextOutput, kind: SpanKind, names: Sequence[str]) -> list[FoundSpan]:
    """The spans that the likeliest label of each token stands for; or the label of each word, that of its first token.

    The words of a text that comes without are runs of letters and digits, and other characters one by one.

    >>> import numpy as np
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.marked_texts import MarkedText
    >>> from tnn.data.token_labels import encode_with_places
    >>> from tnn.training.span_prediction import TextOutput, find_spans
    >>> (encoded,) = encode_with_places(["Rome"], byte_tokenizer())
    >>> output = TextOutput(MarkedText("Rome", (), None, ""), encoded, np.array([[0, 9, 0]] + [[0, 0, 9]] * 3))
    >>> find_spans(output, "spans", ["O", "B-LOC", "I-LOC"])[0].span
    Span(start=0, end=4, label='LOC')
    """
    text = output.marked.text
    logits = output.logits[~output.encoded.special].astype(np.float64)
    scaled = np.exp(logits - logits.max(-1, keepdims=True))
    chosen, probability = logits.argmax(-1), 1 / scaled.sum(-1)  # of the likeliest label, whose scaled value is 1
    if kind == "spans":
        found = spans_of_tokens(output.encoded, text, [names[label] for label in chosen])
        return [FoundSpan(one.span, float(probability[one.tokens].mean())) for one in found]
    words = np.array(words_of(output.marked)).reshape(-1, 2)
    first = output.encoded.places[~output.encoded.special, 1].searchsorted(words[:, 0], side="right")
    return [
        FoundSpan(Span(start, end, names[chosen[token]]), float(probability[token]))
        for (start, end), token in zip(words.tolist(), first.tolist(), strict=True)
    ]


def words_of(marked: MarkedText) -> list[tuple[int, int]]:
    """Where the words of a text are: those of the data, those with a label, or as far as one can see.

    >>> from tnn.data.marked_texts import MarkedText
    >>> from tnn.training.span_prediction import words_of
    >>> words_of(MarkedText("to Rome!", (), None, ""))
    [(0, 2), (3, 7), (7, 8)]
    """
    return list(marked.words) if marked.words is not None else [match.span() for match in WORD.finditer(marked.text)]
