"""What is known about the predictions of a classifier: lines for a terminal, and a page with its hardest texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from typing import Any

import numpy as np

from tnn.data.labelled_texts import LabelledTexts, Part
from tnn.training.html import document, headlines, table
from tnn.training.report import printable
from tnn.training.scores import (
    BASELINES,
    METRIC_NAMES,
    Array,
    ClassCounts,
    confusion_matrix,
    count_classes,
    decide,
    losses,
    score,
)

MOST_CLASSES = 50  # in a table: the most frequent ones
MOST_PREDICTED = 12  # classes of a confusion matrix on a terminal
HARDEST = 20  # texts
LONGEST_NAME, LONGEST_TEXT = 24, 600  # characters
ENOUGH = 4 * LONGEST_TEXT + 4  # tokens: a character has up to four


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """The outputs of a model for the texts of a split."""

    split: str
    part: Part
    dataset: LabelledTexts
    logits: Array  # (n, labels)
    baseline: Array  # predictions of the most frequent class, or of the mean
    counted: Array | None = None  # predictions of naive Bayes on words, where it can predict
    cut: str = ""  # in words, what became of long texts

    @property
    def names(self) -> tuple[str, ...]:
        return self.part.labels.names

    @cached_property
    def targets(self) -> Array:
        return self.part.labels.targets()

    @cached_property
    def predictions(self) -> Array:
        return decide(self.part.labels.kind, self.logits)

    def scores(self) -> Iterator[tuple[str, float, str]]:
        """Name, value and, in words, what is reached without a neural network, of each metric."""
        kind, classes = self.part.labels.kind, len(self.names)
        floors = {BASELINES[kind]: score(kind, self.baseline, self.targets, classes)}
        if self.counted is not None:
            floors["naive Bayes on words"] = score(kind, self.counted, self.targets, classes)
        for metric, value in score(kind, self.predictions, self.targets, classes).items():
            yield METRIC_NAMES[metric], value, ", ".join(f"{floors[name][metric]:.4f} by {name}" for name in floors)

    def by_class(self) -> ClassCounts:
        return count_classes(self.predictions, self.targets, len(self.names))

    def confusion(self) -> Array | None:
        """Texts of each class (rows) by prediction (columns); None if a text has several, or there are too many."""
        if self.part.labels.kind != "single" or len(self.names) > MOST_CLASSES:
            return None
        return confusion_matrix(self.predictions, self.targets, len(self.names))

    def label(self, values: Array) -> str:
        """A label or a prediction in words."""
        if self.part.labels.kind == "regression":
            return f"{float(values):.4g}"
        chosen = np.flatnonzero(values) if self.part.labels.kind == "several" else [int(values)]
        return ", ".join(self.names[number] for number in chosen) or "none"


def label_text(scored: ScoredTexts) -> str:
    """The metrics, one per line, each with that of the baseline; then those of each class, and the confusion matrix."""
    lines = [
        f"{name:13}  {value:.4f} on {scored.split}, {len(scored.dataset):,} examples; {floors}"
        for name, value, floors in scored.scores()
    ]
    if scored.cut:
        lines.append(scored.cut)
    if scored.names:
        lines += ["", *aligned(*_class_table(scored))]
    matrix = scored.confusion()
    if matrix is not None and len(matrix) <= MOST_PREDICTED:
        lines += ["", *aligned(*_confusion_table(scored, matrix))]
    return "\n".join(lines)


def _class_table(scored: ScoredTexts) -> tuple[list[str], list[list[str]]]:
    counts = scored.by_class()
    shown = np.sort(counts.actual.argsort(kind="stable")[::-1][:MOST_CLASSES])
    columns = (counts.precision, counts.recall, counts.f1)
    rows = [[short_name(scored.names[k]), f"{counts.actual[k]:,}", *(f"{x[k]:.4f}" for x in columns)] for k in shown]
    return ["class", "examples", "precision", "recall", "F1"], rows


def _confusion_table(scored: ScoredTexts, matrix: Array) -> tuple[list[str], list[list[str]]]:
    names = [short_name(name) for name in scored.names]
    rows = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, matrix, strict=True)]
    return ["class / predicted", *names], rows


def short_name(name: str) -> str:
    name = " ".join(printable(name).split())
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return ["  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]) for name, *cells in [head, *rows]]


# --- the page


def label_page(title: str, scored: Sequence[ScoredTexts], tokenizer: Any) -> str:
    """One HTML file: metrics, classes, confusion matrix and the hardest texts of each split."""
    return document(title, "\n".join(_section(one, tokenizer) for one in scored))


def _section(scored: ScoredTexts, tokenizer: Any) -> str:
    numbers = {f"{name}; {floors}": f"{value:.4f}" for name, value, floors in scored.scores()}
    parts = [f"<h2>{escape(scored.split)}, {len(scored.dataset):,} examples</h2>", headlines(numbers)]
    if scored.cut:
        parts.append(f"<p>{escape(scored.cut)}</p>")
    if scored.names:
        parts.append(table(*_class_table(scored), kind="named"))
    if (matrix := scored.confusion()) is not None:
        parts += ["<h3>Confusion matrix</h3>", table(*_confusion_table(scored, matrix), kind="named")]
    head = ["row", "label", "prediction", "loss", "text"]
    return "\n".join([*parts, "<h3>The hardest texts</h3>", table(head, _hardest_rows(scored, tokenizer), "texts")])


def _hardest_rows(scored: ScoredTexts, tokenizer: Any) -> list[list[str]]:
    loss = losses(scored.part.labels.kind, scored.logits, scored.targets)
    return [
        [
            f"{scored.part.rows[k] + 1:,}",
            scored.label(scored.targets[k]),
            scored.label(scored.predictions[k]),
            f"{loss[k]:.3f}",
            _text(scored.dataset[k]["input_ids"].tolist(), tokenizer),
        ]
        for k in loss.argsort()[::-1][:HARDEST]
    ]


def _text(ids: list[int], tokenizer: Any) -> str:
    """What the model has read; the two texts of a pair with a bar between them."""
    special, ids = set(tokenizer.all_special_ids), ids[:ENOUGH]
    texts = [tokenizer.decode(list(part)) for is_special, part in groupby(ids, special.__contains__) if not is_special]
    text = printable(" | ".join(texts))
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
