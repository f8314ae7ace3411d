"""What is known about the labels of a classifier of tokens: lines for a terminal, and a page with the hardest texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np

from tnn.data.marked_texts import MarkedText
from tnn.data.spans import Span, SpanKind
from tnn.training.html import document, headlines, table
from tnn.training.label_report import HARDEST, LONGEST_TEXT, MOST_CLASSES, aligned, short_name
from tnn.training.report import printable
from tnn.training.scores import ClassCounts
from tnn.training.span_scores import FLOOR, METRIC_NAMES, count_spans, score_spans

BEFORE = 100  # characters that are shown before the first error


@dataclass(frozen=True, eq=False)
class ScoredSpans:
    """What a model found in the texts of a split."""

    split: str
    kind: SpanKind
    names: Sequence[str]
    texts: Sequence[MarkedText]
    found: Sequence[Sequence[Span]]
    losses: Sequence[float]  # the highest of a token, of each text
    floor: Sequence[Sequence[Span]] | None = None  # what is found without a neural network, if it can be known

    @cached_property
    def counts(self) -> ClassCounts:
        return count_spans(self.found, [text.spans for text in self.texts], self.names)

    @property
    def size(self) -> str:
        noun = "spans" if self.kind == "spans" else "words"
        return f"{sum(len(text.spans) for text in self.texts):,} {noun} in {len(self.texts):,} texts"

    def scores(self) -> list[tuple[str, float, str]]:
        """Name, value and, in words, that of the floor, of each metric."""
        own = score_spans(self.texts, self.found, self.kind, self.names)
        floor = {} if self.floor is None else score_spans(self.texts, self.floor, self.kind, self.names)
        beside = {metric: f"; {floor[metric]:.4f} by {FLOOR}" if floor else "" for metric in own}
        return [(METRIC_NAMES[metric], value, beside[metric]) for metric, value in own.items()]

    def by_label(self) -> tuple[list[str], list[list[str]]]:
        counts, noun = self.counts, "spans" if self.kind == "spans" else "words"
        shown = np.sort(counts.actual.argsort(kind="stable")[::-1][:MOST_CLASSES])
        columns = (counts.precision, counts.recall, counts.f1)
        rows = [[short_name(self.names[k]), f"{counts.actual[k]:,}", *(f"{x[k]:.4f}" for x in columns)] for k in shown]
        return ["label", noun, "precision", "recall", "F1"], rows


def span_text(scored: ScoredSpans) -> str:
    """The metrics, one per line, each with that of the floor; then those of each label."""
    lines = [
        f"{name:13}  {value:.4f} on {scored.split}, {scored.size}{floor}" for name, value, floor in scored.scores()
    ]
    return "\n".join([*lines, "", *aligned(*scored.by_label())])


def span_page(title: str, scored: Sequence[ScoredSpans]) -> str:
    """One HTML file: metrics, labels and the hardest texts of each split, with their spans marked."""
    return document(title, "\n".join(map(_section, scored)))


def _section(scored: ScoredSpans) -> str:
    numbers = {f"{name}{floor}": f"{value:.4f}" for name, value, floor in scored.scores()}
    parts = [f"<h2>{escape(scored.split)}, {escape(scored.size)}</h2>", headlines(numbers)]
    parts += [table(*scored.by_label(), kind="named"), "<h3>The hardest texts</h3>"]
    hardest = np.argsort(np.array(scored.losses), kind="stable")[::-1][:HARDEST]
    shown = [_hard(scored.texts[k], scored.found[k], scored.losses[k]) for k in hardest]
    return "\n".join([*parts, '<div class="spans">', *shown, "</div>"])


def _hard(text: MarkedText, found: Sequence[Span], loss: float) -> str:
    wrong = sorted(set(found) ^ set(text.spans))
    start = max(0, wrong[0].start - BEFORE) if wrong and len(text.text) > LONGEST_TEXT else 0
    return "\n".join(
        [
            f'<p class="facts">{escape(text.where)}, highest loss of a token {loss:.3f}</p>',
            f"<p>labels: {_marked(text.text, text.spans, set(found), start)}</p>",
            f"<p>found: {_marked(text.text, found, set(text.spans), start)}</p>",
        ]
    )


def _marked(text: str, spans: Sequence[Span], others: set[Span], start: int) -> str:
    """A piece of the text; spans are green if the others have them too, else red."""
    end, place = start + LONGEST_TEXT, start
    parts = ["..."] if start else []
    for span in spans:
        if span.end <= place or span.start >= end:
            continue
        first, last = max(place, span.start), min(end, span.end)
        colour = "good" if span in others else "bad"
        label = f"<small>{escape(short_name(span.label))}</small>"
        parts.append(escape(printable(text[place:first])))
        parts.append(f'<mark class="{colour}">{escape(printable(text[first:last]))}{label}</mark>')
        place = last
    parts.append(escape(printable(text[place:end])))
    return "".join([*parts, "..." if end < len(text) else ""])
