"""Sources of text: files and folders, compressed or not, Python's standard library, Hugging Face data sets."""

import codecs
import hashlib
import io
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tnn.data.compressed import reading

SPLITS = ("train", "validation", "test")
NAMED = re.compile(r"(?P<wiki>wiki\.)?(?P<split>train|valid|validation|test)\.(?P<kind>raw|tokens|txt)(\.(xz|gz))?")
KINDS = ("raw", "tokens", "txt")  # in order of preference
PARTS = {"train": (0, 18), "validation": (18, 19), "test": (19, 20)}  # of a text without splits, in twentieths
WHOLE = (0, 20)
LINE = 2**20  # bytes; a longer line is read in pieces, so that a huge line does not fill the memory
CONTINUATION = bytes(range(0x80, 0xC0))  # UTF-8 bytes that do not start a character


@dataclass(frozen=True)
class Files:
    """The text of files, one after the other, or a part of it in twentieths of all bytes."""

    paths: tuple[Path, ...]
    part: tuple[int, int] = WHOLE

    def lines(self) -> Iterator[str]:
        if self.part == WHOLE:
            for path in self.paths:
                yield from _lines(path, 0, None)
            return
        sizes = [_size(path) for path in self.paths]
        begin, end = (sum(sizes) * twentieths // WHOLE[1] for twentieths in self.part)
        for path, size in zip(self.paths, sizes, strict=True):
            if begin < size and end > 0:
                yield from _lines(path, max(begin, 0), end if end < size else None)
            begin, end = begin - size, end - size

    def fingerprint(self) -> str:
        stats = [(str(path.resolve()), path.stat()) for path in self.paths]
        return repr((self.part, [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]))


@dataclass(frozen=True)
class Rows:
    """The column "text" of a Hugging Face data set; each row is a line."""

    dataset: Any

    def lines(self) -> Iterator[str]:
        for rows in self.dataset.select_columns("text").iter(batch_size=1000):
            for text in rows["text"]:
                yield (text or "").removesuffix("\n") + "\n"

    def fingerprint(self) -> str:
        return str(self.dataset._fingerprint)


Texts = dict[str, Files | Rows]  # by split


@dataclass(frozen=True)
class Corpus:
    """A text with splits. This is a description: nothing is read before `lines` is iterated.

    `strip` removes white space around each line: WikiText has a space on both sides.
    """

    name: str
    texts: Texts
    strip: bool = False

    def splits(self) -> tuple[str, ...]:
        """Those of train, validation and test that it has."""
        return tuple(split for split in SPLITS if split in self.texts)

    def lines(self, split: str) -> Iterator[str]:
        """The lines as they are in the file, line ends included; a line over 1 MiB comes in pieces."""
        return self._text(split).lines()

    def fingerprint(self, split: str) -> str:
        """A hash of the paths, sizes and modification times of the input files; no file is read."""
        return hashlib.sha256(f"{self.strip} {self._text(split).fingerprint()}".encode()).hexdigest()

    def _text(self, split: str) -> Files | Rows:
        if split not in self.texts:
            raise ValueError(f"{self.name} has no {split} split; it has {', '.join(self.splits())}")
        return self.texts[split]


def open_corpus(
    source: str | Path,
    *,
    train: str | Path | None = None,
    validation: str | Path | None = None,
    test: str | Path | None = None,
) -> Corpus:
    """Open the text of a source. `train`, `validation` and `test` are files or folders that replace its splits.

    - "stdlib": the modules of Python's standard library, in alphabetical order;
    - a folder with train, valid (or validation) and test as .txt, .raw or .tokens files, as in WikiText
      (wiki.train.raw), or as sub-folders of text files. "FOLDER#tokens" chooses .tokens where there are .raw files too;
    - any other text file, or folder of text files: the last 5% of all bytes are the test split, the 5% before it the
      validation split;
    - "hf:PATH" or "hf:NAME:CONFIG": a Hugging Face data set with a column "text".

    Files may end in .xz or .gz; they are read as they go.

    >>> from tnn.data import open_corpus
    >>> corpus = open_corpus("stdlib")
    >>> corpus.splits(), next(corpus.lines("train")).endswith("\\n")
    (('train', 'validation', 'test'), True)
    """
    texts, strip = _find(str(source))
    given = {"train": train, "validation": validation, "test": test}
    texts |= {split: Files(_text_files(Path(path))) for split, path in given.items() if path is not None}
    return Corpus(str(source), texts, strip)


def _find(source: str) -> tuple[Texts, bool]:
    """The splits of a source, and whether to strip their lines."""
    if not source:
        raise ValueError('give a text: a file, a folder, "stdlib" or "hf:" and a data set; got an empty name')
    if source == "stdlib":
        return _cut(tuple(sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))), False
    if source.startswith("hf:"):
        return _hugging_face(source.removeprefix("hf:")), "wikitext" in source.lower()
    path, _, kind = (source, "", "") if Path(source).exists() else source.rpartition("#")
    folder = Path(path or source)
    if not folder.exists():
        raise FileNotFoundError(f'no text at {source}: it must be a file, a folder, "stdlib" or "hf:" and a data set')
    if folder.is_file():
        name = NAMED.fullmatch(folder.name)
        return _cut((folder,)), bool(name and name["wiki"])
    return _named_files(folder, kind) or (_sub_folders(folder) or _cut(_text_files(folder)), False)


def _cut(paths: tuple[Path, ...]) -> Texts:
    return {split: Files(paths, part) for split, part in PARTS.items()}


def _named_files(folder: Path, kind: str) -> tuple[Texts, bool] | None:
    named = [(match, path) for path in sorted(folder.iterdir()) if (match := NAMED.fullmatch(path.name))]
    kinds = [k for k in KINDS if any(match["kind"] == k for match, _ in named)]
    if kind and kind not in kinds:
        raise ValueError(f"{folder} has no .{kind} files; it has {', '.join(kinds) or 'none that name a split'}")
    if not named:
        return None
    texts: Texts = {}
    chosen = [(match, path) for match, path in named if match["kind"] == (kind or kinds[0])]
    for match, path in chosen:
        split = _split_name(match["split"])
        if split in texts:
            raise ValueError(f"{folder} must have one file for the {split} split; {path.name} is a second one")
        texts[split] = Files((path,))
    return texts, any(match["wiki"] for match, _ in chosen)


def _sub_folders(folder: Path) -> Texts:
    names = [name for name in ("train", "valid", "validation", "test") if (folder / name).is_dir()]
    return {_split_name(name): Files(_text_files(folder / name)) for name in names}


def _split_name(name: str) -> str:
    return "validation" if name == "valid" else name


def _text_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or all files of a folder, sorted, without hidden ones."""
    if not path.exists():
        raise FileNotFoundError(f"no text at {path}")
    if path.is_file():
        return (path,)
    all_files = (file for file in sorted(path.rglob("*")) if file.is_file())
    files = tuple(file for file in all_files if not any(p.startswith(".") for p in file.relative_to(path).parts))
    if not files:
        raise ValueError(f"the folder {path} has no files")
    return files


def _hugging_face(name: str) -> Texts:
    path, _, config = (name, "", "") if Path(name).exists() or ":" not in name else name.rpartition(":")
    try:
        import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Hugging Face data sets need datasets: pip install 'toeplitz-nn[datasets]'") from None
    try:
        if any((Path(path) / file).exists() for file in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(path)
        else:
            loaded = datasets.load_dataset(path, config or None)
    except Exception as error:  # from the network, the hub, the files or the configuration
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"cannot load the Hugging Face data set {name}: {reason}") from error
    splits = loaded if isinstance(loaded, dict) else {"train": loaded}
    for dataset in splits.values():
        if "text" not in dataset.column_names:
            raise ValueError(f'{name} has no column "text"; it has {", ".join(dataset.column_names)}')
    return {_split_name(str(split)): Rows(dataset) for split, dataset in splits.items()}


def _size(path: Path) -> int:
    if path.suffix not in (".xz", ".gz"):
        return path.stat().st_size
    with reading(path) as file:
        return file.seek(0, io.SEEK_END)


def _lines(path: Path, start: int, stop: int | None) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()  # holds an incomplete character until the next piece
    with reading(path) as file:
        stop = sys.maxsize if stop is None else _next_character(file, stop)
        start = file.seek(_next_character(file, start))
        while piece := file.readline(min(LINE, stop - start)):
            start += len(piece)
            yield decoder.decode(piece)
        decoder.decode(b"", final=True)


def _next_character(file: BinaryIO, position: int) -> int:
    """The first offset at or after `position` where a character starts, so that no character is cut in two."""
    if position == 0:
        return 0
    file.seek(position)
    after = file.read(3)
    return position + len(after) - len(after.lstrip(CONTINUATION))
