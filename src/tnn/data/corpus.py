"""Sources of text: files and folders, compressed or not, tables, Python's standard library, Hugging Face data sets."""

import hashlib
import re
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

from tnn._names import did_you_mean
from tnn.data.splits import held_out, key_of, keys_of, split_of
from tnn.data.tables import ROWS_AT_ONCE, Table, open_tables, table_kind
from tnn.data.tables import WHOLE as UNSPLIT
from tnn.data.text_files import LINE, WHOLE, bounds_of, is_text, lines_of, size_of

SPLITS = ("train", "validation", "test")
Lines = Literal["auto", "keep", "separate"]
BadFiles = Literal["refuse", "skip"]
NAMED = re.compile(r"(?P<wiki>wiki\.)?(?P<split>train|valid|validation|test)\.(?P<kind>raw|tokens|txt)(\.(xz|gz))?")
ENWIK = re.compile(r"enwik\d(\.(xz|gz))?")  # Wikipedia as XML, cut at fixed bytes
KINDS = ("raw", "tokens", "txt")  # in order of preference
PARTS = {"train": (0, 18), "validation": (18, 19), "test": (19, 20)}  # of a text without splits, in twentieths
ALL = (0, WHOLE)
CUT = "cut"  # in place of the split of a file
LARGE = 20  # a file with more than one byte in so many of its folder is cut; smaller ones are in one split as a whole
SHOWN = 40  # characters of a wrong value
SAMPLED = 100_000  # records that decide which keys are held out


class Text(Protocol):
    """The text of a split, read anew each time."""

    def lines(self) -> Iterator[str]: ...

    def documents(self) -> Iterator[Iterator[str]]:
        """Each in pieces, which may begin and end anywhere."""

    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class Files:
    """Files, without those that are not text if they are to be skipped."""

    paths: tuple[Path, ...]
    skip_bad: bool = False

    @cached_property
    def good(self) -> tuple[Path, ...]:
        if not self.skip_bad:
            return self.paths
        good = tuple(path for path in self.paths if is_text(path))
        if not good:
            raise ValueError(f"none of {len(self.paths):,} files is UTF-8 text, the first being {self.paths[0]}")
        return good

    @cached_property
    def homes(self) -> dict[Path, str]:
        """The split of each file, or CUT if it is large, or a near duplicate of one that is."""
        sizes = {path: path.stat().st_size for path in self.good}
        keys = dict(zip(self.good, keys_of(map(self.read, self.good)), strict=True))
        total = sum(sizes.values())
        cut = {keys[path] for path, size in sizes.items() if size * LARGE > total}
        limits = held_out(key for key in keys.values() if key not in cut)
        return {path: CUT if key in cut else split_of(key, limits) for path, key in keys.items()}

    @property
    def skipped(self) -> tuple[Path, ...]:
        good = set(self.good)
        return tuple(path for path in self.paths if path not in good)

    def read(self, path: Path, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """The lines of one of them."""
        try:
            yield from lines_of(path, start, stop)
        except ValueError as error:
            if len(self.paths) == 1:
                raise
            raise ValueError(f"{error}; data.bad_files=skip leaves such files out") from None

    def fingerprint(self) -> str:
        stats = [(str(path.resolve()), path.stat()) for path in self.paths]
        known = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        return f"{known!r}{' skip' * self.skip_bad}"


@dataclass(frozen=True)
class Documents:
    """Files as documents: all, or those of one split and the parts of large files for that split."""

    files: Files
    split: str | None = None

    def lines(self) -> Iterator[str]:
        return chain.from_iterable(self.documents())

    def documents(self) -> Iterator[Iterator[str]]:
        for path in self.files.good:
            home = None if self.split is None else self.files.homes[path]
            if home == self.split:
                yield self.files.read(path)
            elif home == CUT and self.split is not None:
                yield self.files.read(path, *bounds_of(path, PARTS[self.split]))

    def fingerprint(self) -> str:
        return f"{self.split} {self.files.fingerprint()}"


@dataclass(frozen=True)
class Joined:
    """The text of files, one after the other, as one document, or a part of it in twentieths of all bytes."""

    files: Files
    part: tuple[int, int] = ALL

    def lines(self) -> Iterator[str]:
        if self.part == ALL:
            for path in self.files.good:
                yield from self.files.read(path)
            return
        sizes = [size_of(path) for path in self.files.good]
        begin, end = (sum(sizes) * place // WHOLE for place in self.part)
        for path, size in zip(self.files.good, sizes, strict=True):
            if begin < size and end > 0:
                yield from self.files.read(path, max(begin, 0), end if end < size else None)
            begin, end = begin - size, end - size

    def documents(self) -> Iterator[Iterator[str]]:
        yield self.lines()

    def fingerprint(self) -> str:
        return f"({self.part!r}, {self.files.fingerprint()})"


@dataclass(frozen=True)
class Records:
    """A column of a table; each row is a document, or one of those that a split gets by their texts."""

    table: Table
    column: str
    split: str | None = None

    def lines(self) -> Iterator[str]:
        """A row is a line."""
        return (text.removesuffix("\n") + "\n" for text in self._texts())

    def documents(self) -> Iterator[Iterator[str]]:
        for text in self._texts():
            yield (text[start : start + LINE] for start in range(0, len(text), LINE))

    def fingerprint(self) -> str:
        return repr((self.split, self.column, self.table.fingerprint()))

    def _texts(self) -> Iterator[str]:
        if self.split is None:
            return self._all()
        return (text for text in self._all() if split_of(key_of([text]), self._limits) == self.split)

    @cached_property
    def _limits(self) -> tuple[int, int]:
        return held_out(key_of([text]) for text in islice(self._all(), SAMPLED))

    def _all(self) -> Iterator[str]:
        for number, value in enumerate(self._values(), start=1):
            text = "" if value is None else value
            if not isinstance(text, str) or not _is_unicode(text):
                got = f"row {number:,} has {repr(text)[:SHOWN]}"
                raise ValueError(f"the column {self.column!r} of {self.table.name} must hold texts; {got}")
            yield text

    def _values(self) -> Iterator[Any]:
        if self.table.dataset is None:
            return (row.get(self.column) for row in self.table.rows())
        batches = self.table.dataset.select_columns(self.column).iter(ROWS_AT_ONCE)
        return (value for rows in batches for value in rows[self.column])


def _is_unicode(text: str) -> bool:
    """JSON can name half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Corpus:
    """A text with splits. This is a description: nothing is read before `lines` or `documents` is iterated.

    `separate`: each line is ended by `</s>`, which stands for the line end. Otherwise line ends are text, and `</s>`
    stands between documents. `strip` removes white space around each separate line: WikiText has a space on both sides.
    """

    name: str
    texts: Mapping[str, Text]
    separate: bool = False
    strip: bool = False

    def splits(self) -> tuple[str, ...]:
        """Those of train, validation and test that it has."""
        return tuple(split for split in SPLITS if split in self.texts)

    def lines(self, split: str) -> Iterator[str]:
        """The lines as they are in the file, line ends included; a line over 1 MiB comes in pieces."""
        return self._text(split).lines()

    def documents(self, split: str) -> Iterator[Iterator[str]]:
        """The documents, each in pieces, which may begin and end anywhere."""
        return self._text(split).documents()

    def skipped(self) -> tuple[Path, ...]:
        """The files that are left out because they are not text. All files are read, if any may be left out."""
        texts = (text for text in self.texts.values() if isinstance(text, Documents | Joined))
        return tuple(dict.fromkeys(path for text in texts for path in text.files.skipped))

    def fingerprint(self, split: str) -> str:
        """A hash of the paths, sizes and modification times of the input files; no file is read."""
        rule = str(self.strip) if self.separate else "keep"
        return hashlib.sha256(f"{rule} {self._text(split).fingerprint()}".encode()).hexdigest()

    def _text(self, split: str) -> Text:
        if split not in self.texts:
            raise ValueError(f"{self.name} has no {split} split; it has {', '.join(self.splits())}")
        return self.texts[split]


Part = tuple[Path, ...] | Table


class _Source(NamedTuple):
    """What a name stands for: files or tables by split, or under UNSPLIT if there are none."""

    parts: Mapping[str, Part]
    separate: bool = False  # lines, by default
    strip: bool = False
    joined: bool = False  # the files are one document


def open_corpus(
    source: str | Path,
    *,
    train: str | Path | None = None,
    validation: str | Path | None = None,
    test: str | Path | None = None,
    lines: Lines = "auto",
    text_column: str | None = None,
    bad_files: BadFiles = "refuse",
) -> Corpus:
    """Open the text of a source. `train`, `validation` and `test` are files, folders or tables that replace its splits.

    - "stdlib": the modules of Python's standard library, in alphabetical order;
    - a folder with train, valid (or validation) and test as .txt, .raw or .tokens files, as in WikiText
      (wiki.train.raw), or as sub-folders of text files. "FOLDER#tokens" chooses .tokens where there are .raw files too;
    - any other text file, or folder of text files: a twentieth is the validation split, another one the test split;
    - a table (.csv, .tsv, .jsonl, .parquet), or a folder of them, whose texts are in the column `text_column`;
    - "hf:PATH" or "hf:NAME:CONFIG": a Hugging Face data set, by default with the column "text".

    Files may end in .xz or .gz; they are read as they go. docs/data.md says how splits are made.

    Args:
        source: the text.
        train: replaces the training split.
        validation: replaces the validation split.
        test: replaces the test split.
        lines: "keep": line ends are text, and `</s>` stands between documents, which are files or records. "separate":
            each line is ended by `</s>`, which stands for the line end. "auto": separate for WikiText and enwik8, whose
            published results were measured so, and keep for anything else.
        text_column: the column of a table.
        bad_files: "refuse" files that are not UTF-8 text, or "skip" them.

    >>> from tnn.data import open_corpus
    >>> corpus = open_corpus("stdlib")
    >>> corpus.splits(), next(corpus.lines("train")).endswith("\\n"), corpus.separate
    (('train', 'validation', 'test'), True, False)
    """
    _check_choice("lines", lines, get_args(Lines))
    _check_choice("bad_files", bad_files, get_args(BadFiles))
    found, skip = _find(str(source), text_column), bad_files == "skip"
    separate = found.separate if lines == "auto" else lines == "separate"
    texts: dict[str, Text] = {}
    for split, part in found.parts.items():
        texts |= _texts(part, split, text_column, skip, joined=separate or found.joined)
    for split, path in zip(SPLITS, (train, validation, test), strict=True):
        if path is not None:
            texts |= _texts(_given(Path(path), text_column), split, text_column, skip, joined=separate)
    return Corpus(str(source), texts, separate, separate and found.strip)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")


def _texts(part: Part, split: str, column: str | None, skip: bool, joined: bool) -> dict[str, Text]:
    """The text of one split, or of all three if the part is not split."""
    source = part if isinstance(part, Table) else Files(part, skip)
    if split == UNSPLIT:
        return {chosen: _text(source, chosen, column, joined) for chosen in SPLITS}
    return {split: _text(source, None, column, joined)}


def _text(source: Files | Table, chosen: str | None, column: str | None, joined: bool) -> Text:
    """What a split gets of a source; None: all of it."""
    if isinstance(source, Table):
        return Records(source, source.column(column or "text", "text_column"), chosen)
    if joined:
        return Joined(source, ALL if chosen is None else PARTS[chosen])
    return Documents(source, chosen)


def _find(source: str, column: str | None) -> _Source:
    if not source:
        raise ValueError('give a text: a file, a folder, "stdlib" or "hf:" and a data set; got an empty name')
    if source == "stdlib":
        modules = tuple(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
        return _Source({UNSPLIT: modules}, joined=True)
    if source.startswith("hf:"):
        wikitext = "wikitext" in source.lower()
        return _Source(_hugging_face(source), separate=wikitext, strip=wikitext)
    path, _, kind = (source, "", "") if Path(source).exists() else source.rpartition("#")
    folder = Path(path or source)
    if not folder.exists():
        raise FileNotFoundError(f'no text at {source}: it must be a file, a folder, "stdlib" or "hf:" and a data set')
    if column is not None or is_table(folder):
        return _Source(_open_tables(folder, column))
    if folder.is_file():
        name = NAMED.fullmatch(folder.name)
        wikitext = bool(name and name["wiki"])
        return _Source({UNSPLIT: (folder,)}, wikitext or ENWIK.fullmatch(folder.name) is not None, wikitext)
    return _named_files(folder, kind) or _Source(_sub_folders(folder) or {UNSPLIT: _text_files(folder)})


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name, or all files of a folder are.

    >>> from pathlib import Path
    >>> from tnn.data.corpus import is_table
    >>> is_table(Path("reviews.csv")), is_table(Path("reviews.txt"))
    (True, False)
    """
    files = _visible_files(path) if path.is_dir() else (path,)
    return bool(files) and all(table_kind(file) is not None for file in files)


def _open_tables(path: Path, column: str | None) -> Mapping[str, Part]:
    tables = open_tables(path)
    if column is None:
        columns = next(iter(tables.values())).columns
        advice = "name the column of its texts, with data.text_column=NAME in a recipe or --text-column NAME"
        raise ValueError(f"{path} is a table: {advice}; {did_you_mean('text', columns)}")
    return tables


def _hugging_face(source: str) -> dict[str, Part]:
    tables = open_tables(source)
    return {UNSPLIT if [*tables] == ["train"] else split: table for split, table in tables.items()}


def _given(path: Path, column: str | None) -> Part:
    """A text that replaces a split."""
    if not path.exists():
        raise FileNotFoundError(f"no text at {path}")
    if not is_table(path):
        return _text_files(path)
    tables = _open_tables(path, column)
    if UNSPLIT not in tables:
        raise ValueError(f"{path} must be one table, to replace a split; it has {', '.join(tables)}")
    return tables[UNSPLIT]


def _named_files(folder: Path, kind: str) -> _Source | None:
    named = [(match, path) for path in sorted(folder.iterdir()) if (match := NAMED.fullmatch(path.name))]
    kinds = [k for k in KINDS if any(match["kind"] == k for match, _ in named)]
    if kind and kind not in kinds:
        raise ValueError(f"{folder} has no .{kind} files; it has {', '.join(kinds) or 'none that name a split'}")
    if not named:
        return None
    parts: dict[str, Part] = {}
    chosen = [(match, path) for match, path in named if match["kind"] == (kind or kinds[0])]
    for match, path in chosen:
        split = _split_name(match["split"])
        if split in parts:
            raise ValueError(f"{folder} must have one file for the {split} split; {path.name} is a second one")
        parts[split] = (path,)
    wikitext = any(match["wiki"] for match, _ in chosen)
    return _Source(parts, separate=wikitext, strip=wikitext)


def _sub_folders(folder: Path) -> Mapping[str, Part]:
    names = [name for name in ("train", "valid", "validation", "test") if (folder / name).is_dir()]
    return {_split_name(name): _text_files(folder / name) for name in names}


def _split_name(name: str) -> str:
    return "validation" if name == "valid" else name


def _text_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or all files of a folder, sorted, without hidden ones."""
    files = (path,) if path.is_file() else _visible_files(path)
    if not files:
        raise ValueError(f"the folder {path} has no files")
    return files


def _visible_files(path: Path) -> tuple[Path, ...]:
    all_files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return tuple(file for file in all_files if not any(p.startswith(".") for p in file.relative_to(path).parts))
