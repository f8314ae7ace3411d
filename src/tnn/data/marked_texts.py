"""Texts whose words or spans have labels, from tables and from files of tagged words. They are held in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tnn._names import did_you_mean
from tnn.data.conll import ENDINGS, Sentence, conll_ending, read_conll
from tnn.data.labelled_texts import check_text, namer
from tnn.data.labels import read_labels
from tnn.data.spans import OUTSIDE, Span, SpanKind, check_label, check_spans, spans_of_tags, split_tag
from tnn.data.tables import KINDS, WHOLE, Row, Table, files_by_split, open_tables, table_kind
from tnn.data.text_splits import assign_splits, text_keys

Words = tuple[tuple[int, int], ...]  # start and end of each in the text


@dataclass(frozen=True)
class MarkedText:
    """A text, its spans in their order, and its words if the data has them. Of the kind "words", each is a span."""

    text: str
    spans: tuple[Span, ...]
    words: Words | None
    where: str  # it was read from
    row: Row = field(default_factory=dict, compare=False)  # the columns that are printed with a prediction


@dataclass(frozen=True)
class TaggedFile:
    """Files of tagged words, one after the other."""

    name: str
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class MarkedColumns:
    """Where texts and labels are; see docs/your-labels.md."""

    kind: SpanKind = "spans"
    text: str = "text"
    spans: str | None = "spans"
    words: str = "tokens"
    tags: str | None = "tags"
    word_number: int = 1  # of a column in a file of tagged words
    tag_number: int = -1

    def labelled(self, source: Table | TaggedFile) -> Iterator[MarkedText]:
        """Texts with their labels; a ValueError names the first row, or line, that is wrong."""
        if isinstance(source, TaggedFile):
            for path in source.paths:
                for sentence in read_conll(path, self.word_number, self.tag_number):
                    yield self._of_sentence(path, sentence)
            return
        tagged = self._is_tagged(source)
        name = namer(source, str(self.tags)) if tagged else None
        source.column(self.words if tagged else self.text, f"data.{'words' if tagged else 'text'}_column")
        for number, row in enumerate(source.rows(), start=1):
            where = f"{source.name}, row {number}"
            try:
                if name is not None:
                    yield self._of_words(row.get(self.words), name(row.get(str(self.tags))), where)
                else:
                    text = check_text(row.get(self.text), f"column {self.text!r}")
                    spans = check_spans(text, row.get(str(self.spans)))
                    words = tuple((span.start, span.end) for span in spans) if self.kind == "words" else None
                    yield MarkedText(text, spans, words, where)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None

    def unlabelled(self, source: Table | TaggedFile) -> Iterator[MarkedText]:
        """Texts whose labels are to be predicted, with their columns. A .txt file must have tags: else it is a text."""
        if isinstance(source, TaggedFile):
            for path in source.paths:
                needs_tags = conll_ending(path) == ".txt"
                for sentence in read_conll(path, self.word_number, self.tag_number, tags=needs_tags):
                    if needs_tags:
                        self._of_sentence(path, sentence)
                    text, words = joined(sentence.words)
                    yield MarkedText(text, (), words, f"{path}, line {sentence.lines[0]}", {"text": text})
            return
        has_words = self.text not in source.columns and self.words in source.columns
        if not has_words:
            source.column(self.text, "data.text_column")
        for number, row in enumerate(source.rows(), start=1):
            where = f"{source.name}, row {number}"
            columns = {name: row.get(name) for name in source.columns}
            if has_words:
                text, words = joined(_words(row.get(self.words), where))
                yield MarkedText(text, (), words, where, {**columns, "text": text})
            else:
                text = check_text(row.get(self.text), f"{where}, column {self.text!r}")
                yield MarkedText(text, (), None, where, columns)

    def _is_tagged(self, table: Table) -> bool:
        """Whether the labels are tags of words."""
        options = {"data.spans_column": self.spans, "data.tags_column": self.tags}
        has = [option for option, name in options.items() if name in table.columns]
        if len(has) == 2:
            both = f"{table.name} has both spans and tags, in {self.spans!r} and {self.tags!r}"
            raise ValueError(f"{both}: give data.spans_column=null or data.tags_column=null")
        if not has:
            known = ", ".join(f"{name!r} ({option})" for option, name in options.items() if name is not None)
            near = did_you_mean(str(self.spans or self.tags), table.columns)
            raise ValueError(f"{table.name} has no column of labels, {known}; {near}")
        return has == ["data.tags_column"]

    def _of_sentence(self, path: Path, sentence: Sentence) -> MarkedText:
        for line, tag in zip(sentence.lines, sentence.tags, strict=True):
            try:
                self._check_tag(tag)
            except ValueError as error:
                raise ValueError(f"{path}, line {line}: {error}") from None
        return self._of_tags(sentence.words, sentence.tags, f"{path}, line {sentence.lines[0]}")

    def _of_words(self, words: Any, tags: Any, where: str) -> MarkedText:
        words = _words(words)
        if not isinstance(tags, list | tuple):
            raise ValueError(f"the tags must be a list; got {tags!r:.60}")
        if len(tags) != len(words):
            raise ValueError(f"there must be a tag for each word; got {len(words)} words and {len(tags)} tags")
        for number, tag in enumerate(tags, start=1):
            try:
                self._check_tag(tag)
            except ValueError as error:
                raise ValueError(f"word {number}: {error}") from None
        return self._of_tags(words, tags, where)

    def _check_tag(self, tag: Any) -> None:
        name = tag if tag == OUTSIDE else check_label(tag)  # a tag like others, where each word has one
        if self.kind == "spans":
            split_tag(name)

    def _of_tags(self, words: Sequence[str], tags: Sequence[Any], where: str) -> MarkedText:
        text, places = joined(words)
        if self.kind == "words":
            spans = [Span(*place, str(tag).strip()) for place, tag in zip(places, tags, strict=True)]
        else:
            named = spans_of_tags(list(map(str, tags)))
            spans = [Span(places[span.start][0], places[span.end - 1][1], span.label) for span in named]
        return MarkedText(text, tuple(spans), places, where)


def joined(words: Iterable[str]) -> tuple[str, Words]:
    """A text of words with single spaces between them, and where each is.

    >>> from tnn.data.marked_texts import joined
    >>> joined(["in", "Rome"])
    ('in Rome', ((0, 2), (3, 7)))
    """
    words, places, start = list(words), [], 0
    for word in words:
        places.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), tuple(places)


def _words(values: Any, where: str = "") -> list[str]:
    where = f"{where}: " if where else ""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{where}the words must be a list; got {values!r:.60}")
    if not values:
        raise ValueError(f"{where}the list of words is empty")
    return [check_text(word, f"{where}word {number}").strip() for number, word in enumerate(values, start=1)]


def open_sources(source: str | Path) -> dict[str, Table | TaggedFile]:
    """Tables, or files of tagged words, by split; under "" if they are not split. See `tnn.data.tables.open_tables`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.marked_texts import open_sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train.conll", "dev.conll"):
    ...         _ = Path(folder, name).write_text("Rome B-LOC\\n")
    ...     sorted(open_sources(folder))
    ['train', 'validation']
    """
    path = Path(source)
    if path.is_file() and conll_ending(path) is not None:
        return {WHOLE: TaggedFile(str(path), (path,))}
    if str(source) and path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and conll_ending(file) is not None)
        tables = [file for file in path.iterdir() if file.is_file() and table_kind(file) is not None]
        named = files_by_split(files)
        if named and files_by_split(tables):
            raise ValueError(f"the folder {path} has splits as tables and as files of tagged words: name one of them")
        if named:
            return {split: TaggedFile(str(file), (file,)) for split, file in named.items()}
        if files and not tables:
            return {WHOLE: TaggedFile(str(path), tuple(files))}
    elif path.is_file() and table_kind(path) is None:
        raise ValueError(f"{path} is neither tagged words ({', '.join(ENDINGS)}) nor a table ({', '.join(KINDS)})")
    return dict(open_tables(source))


def open_marked(source: str | Path, columns: MarkedColumns, seed: int = 0) -> dict[str, list[MarkedText]]:
    """The train, validation and, unless there is none, test texts of a source, each list with at least one.

    A source that is not split is, as in `tnn.data.labelled_texts.open_parts`: equal texts are in one split, and each
    label has its share in each, by the rarest one of a text. Labels that the training texts do not have are refused.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.marked_texts import MarkedColumns, open_marked
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.conll")
    ...     _ = path.write_text("\\n".join(f"in O\\nRome{number} B-LOC\\n" for number in range(40)))
    ...     texts = open_marked(path, MarkedColumns())
    >>> {split: len(texts[split]) for split in texts}
    {'train': 32, 'validation': 4, 'test': 4}
    """
    sources = open_sources(source)
    whole = sources.get("train") or sources.get(WHOLE)
    if whole is None:
        raise ValueError(f"{source} has no train split; it has {', '.join(sources)}")
    texts = list(columns.labelled(whole))
    if not texts:
        raise ValueError(f"{whole.name} has no texts")
    names = _checked_names(texts, columns.kind, whole.name)
    others = {split: sources[split] for split in ("validation", "test") if split in sources}
    cut = [] if "validation" in others else [split for split in ("validation", "test") if split not in others]
    parts = _cut(texts, whole.name, seed, cut)
    for split, other in others.items():
        parts[split] = open_whole(other, columns, names)
    return {split: parts[split] for split in ("train", "validation", "test") if split in parts}


def open_whole(source: Table | TaggedFile, columns: MarkedColumns, names: Sequence[str]) -> list[MarkedText]:
    """All texts of a source, with labels that are among these names."""
    texts = list(columns.labelled(source))
    for text in texts:
        for span in text.spans:
            if span.label not in names:
                what = f"the label {span.label!r}, of {text.text[span.start : span.end]!r:.40}, is not in the training"
                raise ValueError(f"{text.where}: {what} data; {did_you_mean(span.label, names)}")
    if not texts:
        raise ValueError(f"{source.name} has no texts")
    return texts


def names_of(texts: Iterable[MarkedText]) -> tuple[str, ...]:
    """The labels of texts, sorted; by value, if all are numbers.

    >>> from tnn.data.marked_texts import MarkedText, names_of
    >>> from tnn.data.spans import Span
    >>> names_of([MarkedText("a b", (Span(0, 1, "y"), Span(2, 3, "x")), None, "")])
    ('x', 'y')
    """
    return read_labels(([span.label for span in text.spans] for text in texts), "", "several").names


def _checked_names(texts: list[MarkedText], kind: SpanKind, where: str) -> tuple[str, ...]:
    names = names_of(texts)
    if not names:
        raise ValueError(f"{where} has no spans: every tag is O, or every list is empty")
    if kind == "words" and len(names) == 1:
        raise ValueError(f"{where} has one tag only, {names[0]!r}: there must be at least two")
    return names


def _cut(texts: list[MarkedText], where: str, seed: int, splits: list[str]) -> dict[str, list[MarkedText]]:
    if not splits:
        return {"train": texts}
    labels = read_labels(([span.label for span in text.spans] for text in texts), where, "several")
    chosen = assign_splits(text_keys(((text.text,) for text in texts), seed), labels.strata(), len(splits))
    parts = {
        split: [texts[k] for k in np.flatnonzero(chosen == number)] for number, split in enumerate(["train", *splits])
    }
    if "validation" in parts and not parts["validation"]:
        raise ValueError(f"{where} has too few texts for a validation split: no label has two different ones")
    return {split: part for split, part in parts.items() if part}
