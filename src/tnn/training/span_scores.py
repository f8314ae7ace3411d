"""Scores of labelled spans or words, and what is reached without a neural network."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from tnn.data.marked_texts import MarkedText
from tnn.data.spans import OUTSIDE, Span, SpanKind, spans_of_tags, tags_of_words
from tnn.training.scores import Array, ClassCounts
from tnn.training.span_prediction import words_of

HEADLINES: dict[SpanKind, str] = {"spans": "micro_f1", "words": "accuracy"}
METRIC_NAMES = {
    "micro_f1": "micro F1",
    "precision": "precision",
    "recall": "recall",
    "macro_f1": "macro F1",
    "accuracy": "accuracy",
}
FLOOR = "each word's most frequent tag"


def count_spans(found: Sequence[Iterable[Span]], actual: Sequence[Iterable[Span]], names: Sequence[str]) -> ClassCounts:
    """For each label how many spans there are, were found, and were found exactly: with its start, end and label.

    >>> from tnn.data.spans import Span
    >>> from tnn.training.span_scores import count_spans
    >>> counts = count_spans([[Span(0, 2, "x"), Span(3, 4, "y")]], [[Span(0, 2, "x"), Span(3, 5, "y")]], ["x", "y"])
    >>> counts.right.tolist(), counts.micro_f1
    ([1, 0], 0.5)
    """
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((3, len(names)), np.int64)
    for some, others in zip(found, actual, strict=True):
        one, other = set(some), set(others)
        for row, spans in enumerate((other, one, one & other)):
            for span in spans:
                counts[row, place[span.label]] += 1
    return ClassCounts(*counts)


def scores_of_counts(counts: ClassCounts, kind: SpanKind) -> dict[str, float]:
    """The metrics, the headline first. Precision, recall and F1 are those of all spans together, as seqeval has them.

    >>> import numpy as np
    >>> from tnn.training.scores import ClassCounts
    >>> from tnn.training.span_scores import scores_of_counts
    >>> scores_of_counts(ClassCounts(np.array([4]), np.array([2]), np.array([2])), "spans")
    {'micro_f1': 0.66..., 'precision': 1.0, 'recall': 0.5, 'macro_f1': 0.66...}
    """
    actual, found, right = (int(x.sum()) for x in (counts.actual, counts.predicted, counts.right))
    if kind == "words":
        return {"accuracy": right / max(1, actual), "macro_f1": counts.macro_f1}
    precision, recall = right / max(1, found), right / max(1, actual)
    return {"micro_f1": counts.micro_f1, "precision": precision, "recall": recall, "macro_f1": counts.macro_f1}


def score_spans(
    texts: Sequence[MarkedText], found: Sequence[Sequence[Span]], kind: SpanKind, names: Sequence[str]
) -> dict[str, float]:
    """The metrics of what was found in texts; of spans also the share of words with the right BIO tag, `accuracy`.

    >>> from tnn.data.marked_texts import MarkedText
    >>> from tnn.data.spans import Span
    >>> from tnn.training.span_scores import score_spans
    >>> text = MarkedText("in Rome", (Span(3, 7, "LOC"),), None, "")
    >>> score_spans([text], [[]], "spans", ["LOC"])["accuracy"]
    0.5
    """
    scores = scores_of_counts(count_spans(found, [text.spans for text in texts], names), kind)
    if kind == "words":
        return scores
    right, words = 0, 0
    for text, spans in zip(texts, found, strict=True):
        places = words_of(text)
        tags = zip(tags_of_words(places, spans), tags_of_words(places, text.spans), strict=True)
        right, words = right + sum(one == other for one, other in tags), words + len(places)
    return {**scores, "accuracy": right / max(1, words)}


class WordTags:
    """The floor: each word has the tag that it had most often in training; unknown words have O, or the commonest tag.

    >>> from tnn.data.marked_texts import MarkedText
    >>> from tnn.data.spans import Span
    >>> from tnn.training.span_scores import WordTags
    >>> tags = WordTags([MarkedText("in Rome", (Span(3, 7, "LOC"),), None, "")], "spans")
    >>> tags.predict(MarkedText("Rome is in Italy", (), None, ""))
    [Span(start=0, end=4, label='LOC')]
    """

    def __init__(self, texts: Iterable[MarkedText], kind: SpanKind) -> None:
        self.kind = kind
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for text in texts:
            places = words_of(text)
            tags = [s.label for s in text.spans] if kind == "words" else tags_of_words(places, text.spans)
            for (start, end), tag in zip(places, tags, strict=True):
                counts[text.text[start:end]][tag] += 1
        self.tags = {word: _commonest(tags) for word, tags in counts.items()}
        self.unknown = OUTSIDE if kind == "spans" else _commonest(sum(counts.values(), Counter()))

    def predict(self, text: MarkedText) -> list[Span]:
        places = words_of(text)
        tags = [self.tags.get(text.text[start:end], self.unknown) for start, end in places]
        if self.kind == "words":
            return [Span(*place, tag) for place, tag in zip(places, tags, strict=True)]
        return [Span(places[s.start][0], places[s.end - 1][1], s.label) for s in spans_of_tags(tags)]


def _commonest(tags: Counter[str]) -> str:
    return min(tags, key=lambda tag: (-tags[tag], tag))


def score_token_labels(
    predictions: Array, labels: Array, kind: SpanKind, names: Sequence[str], tags: Sequence[str]
) -> dict[str, float]:
    """The metrics of labels of tokens (texts, n), as in training; those whose label is below 0 are left out.

    >>> import numpy as np
    >>> from tnn.training.span_scores import score_token_labels
    >>> labels = np.array([[-100, 0, 1, 2]])
    >>> score_token_labels(labels, labels, "spans", ["LOC"], ["O", "B-LOC", "I-LOC"])["micro_f1"]
    1.0
    """
    found: list[list[Span]] = []
    actual: list[list[Span]] = []
    for some, others in zip(predictions, labels, strict=True):
        for spans, numbers in ((found, some), (actual, others)):
            own = [tags[number] for number in numbers[others >= 0]]
            spans.append(
                spans_of_tags(own) if kind == "spans" else [Span(k, k + 1, label) for k, label in enumerate(own)]
            )
    return scores_of_counts(count_spans(found, actual, names), kind)
