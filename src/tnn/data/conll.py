"""Files of tagged words, as the shared tasks of CoNLL have them: a word per line, a blank line between sentences."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tnn.data.compressed import OPENERS, reading

ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".txt")
DOCUMENT = "-DOCSTART-"
BLANKS = re.compile(r"[ \t]+")
NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # numbers of CoNLL-U: words that are two, and words that are left out


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, the line of each, and its tag; no tags if they were not asked for."""

    words: list[str]
    tags: list[str]
    lines: list[int]


def conll_ending(path: Path) -> str | None:
    """The ending of a file of tagged words, compressed or not; None: it is none.

    >>> from pathlib import Path
    >>> from tnn.data.conll import conll_ending
    >>> conll_ending(Path("train.bio.gz")), conll_ending(Path("train.csv"))
    ('.bio', None)
    """
    ending = (path.with_suffix("") if path.suffix in OPENERS else path).suffix.lower()
    return ending if ending in ENDINGS else None


def read_conll(path: Path, word_column: int = 1, tag_column: int = -1, *, tags: bool = True) -> Iterator[Sentence]:
    """The sentences of a file; a ValueError names the line that is none of a word.

    Columns are separated by tabs, or by blanks in a file without tabs in its first line. All lines have as many.
    Lines that begin with -DOCSTART- stand between sentences. A line that begins with # and has another number of
    columns is a comment.

    Args:
        path: of the file, which may be compressed.
        word_column: that of the word, from 1 on; from the last one on, if below 0.
        tag_column: that of the tag.
        tags: whether to read tags. A file may then have words alone.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.conll import read_conll
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.conll")
    ...     _ = path.write_text("in O\\nRome B-LOC\\n\\nYes O\\n")
    ...     [(sentence.words, sentence.tags) for sentence in read_conll(path)]
    [(['in', 'Rome'], ['O', 'B-LOC']), (['Yes'], ['O'])]
    """
    form = _form_of(path)
    word = form.column(word_column, "data.word_column")
    tag = form.column(tag_column, "data.tag_column") if tags else None
    if tag == word:
        one = "has one column" if form.columns == 1 else f"has {form.columns} columns, and both are number {word + 1}"
        raise ValueError(f"{path} must have a word and its tag on each line; it {one}")
    sentence = Sentence([], [], [])
    for number, line in _lines(path):
        cells = form.cells(line)
        if cells is None or cells[0] == DOCUMENT:
            if sentence.words:
                yield sentence
                sentence = Sentence([], [], [])
            continue
        if len(cells) != form.columns:
            if line.startswith("#"):
                continue
            got = f"line {number} has {len(cells)}, and line {form.line} has {form.columns}"
            raise ValueError(f"{path} must have the same number of columns on each line; {got}")
        if conll_ending(path) == ".conllu" and NOT_A_WORD.fullmatch(cells[0]):
            continue
        for column, what in ((word, "word"), (tag, "tag")):
            if column is not None and not cells[column].strip():
                raise ValueError(f"{path}, line {number}: the {what} is missing")
        sentence.words.append(cells[word].strip())
        sentence.lines.append(number)
        if tag is not None:
            sentence.tags.append(cells[tag].strip())
    if sentence.words:
        yield sentence


@dataclass(frozen=True)
class _Form:
    """What the first line of a word is like."""

    path: Path
    line: int
    columns: int
    has_tabs: bool

    def cells(self, line: str) -> list[str] | None:
        """None for a blank line."""
        line = line.rstrip("\r\n")
        if not line.strip(" \t"):
            return None
        return line.split("\t") if self.has_tabs else BLANKS.split(line.strip(" \t"))

    def column(self, number: int, option: str) -> int:
        place = number - 1 if number > 0 else self.columns + number
        if number == 0 or not 0 <= place < self.columns:
            raise ValueError(f"{option} must be from 1 to {self.columns} in {self.path}, or below 0; got {number}")
        return place


def _form_of(path: Path) -> _Form:
    if conll_ending(path) is None:
        raise ValueError(f"{path} is not a file of tagged words: its name must end in {', '.join(ENDINGS)}")
    for number, line in _lines(path):
        if line.strip() and not line.startswith((DOCUMENT, "#")):
            if line.lstrip().startswith(("{", "[{")):
                raise ValueError(f"{path} is not a file of tagged words: it looks like JSON; JSONL files end in .jsonl")
            form = _Form(path, number, 0, "\t" in line)
            return _Form(path, number, len(form.cells(line) or ()), form.has_tabs)
    raise ValueError(f"{path} has no words")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with reading(path) as file, io.TextIOWrapper(file, "utf-8-sig") as text:
        yield from enumerate(text, start=1)
