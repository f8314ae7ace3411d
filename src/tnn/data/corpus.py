"""Where texts come from: files and folders, packed or not, Python's own library, and Hugging Face data sets."""

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
KINDS = ("raw", "tokens", "txt")  # the first that a folder has is taken
PARTS = {"train": (0, 18), "validation": (18, 19), "test": (19, 20)}  # twentieths of a text that has no splits
WHOLE = (0, 20)
LINE = 2**20  # bytes; a longer line counts as several, so that a text on one line is not held whole
CONTINUATION = bytes(range(0x80, 0xC0))  # bytes that begin no character


@dataclass(frozen=True)
class Files:
    """The text of files, one after the other; or of some twentieths of their bytes."""

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
    """Texts in splits. It is a description: nothing is read before `lines` is iterated.

    `strip` says that white space around a line is no part of the text: WikiText sets a space on each side.
    """

    name: str
    texts: Texts
    strip: bool = False

    def splits(self) -> tuple[str, ...]:
        """Those it has of train, validation and test."""
        return tuple(split for split in SPLITS if split in self.texts)

    def lines(self, split: str) -> Iterator[str]:
        """The lines with their line ends, as they stand in the file; a line over 1 MiB comes in pieces."""
        return self._text(split).lines()

    def fingerprint(self, split: str) -> str:
        """Another one whenever the input is another: paths, sizes, times. Nothing is read."""
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
    """The texts of a source, and files that take the place of its splits.

    - "stdlib": the modules of Python's standard library, in the order of their names;
    - a folder with train, valid (or validation) and test as .txt, .raw or .tokens files, as WikiText has them
      (wiki.train.raw), or as sub-folders of texts. "FOLDER#tokens" asks for these where there are .raw files too;
    - any other text file or folder of them: of all bytes, the last 5% are the test, the 5% before the validation;
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
    """The splits of a source, and whether their lines are to be stripped."""
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
    found = [(match, path) for path in sorted(folder.iterdir()) if (match := NAMED.fullmatch(path.name))]
    kinds = [k for k in KINDS if any(match["kind"] == k for match, _ in found)]
    if kind and kind not in kinds:
        raise ValueError(f"{folder} has no .{kind} files; it has {', '.join(kinds) or 'none that name a split'}")
    if not found:
        return None
    texts: Texts = {}
    chosen = [(match, path) for match, path in found if match["kind"] == (kind or kinds[0])]
    for match, path in chosen:
        split = _split_name(match["split"])
        if split in texts:
            raise ValueError(f"{folder} has two files for the {split} split: {path.name} is one too many")
        texts[split] = Files((path,))
    return texts, any(match["wiki"] for match, _ in chosen)


def _sub_folders(folder: Path) -> Texts:
    names = [name for name in ("train", "valid", "validation", "test") if (folder / name).is_dir()]
    return {_split_name(name): Files(_text_files(folder / name)) for name in names}


def _split_name(name: str) -> str:
    return "validation" if name == "valid" else name


def _text_files(path: Path) -> tuple[Path, ...]:
    """A file, or all files of a folder in the order of their names, but hidden ones."""
    if not path.exists():
        raise FileNotFoundError(f"no text at {path}")
    if path.is_file():
        return (path,)
    inside = (file for file in sorted(path.rglob("*")) if file.is_file())
    files = tuple(file for file in inside if not any(p.startswith(".") for p in file.relative_to(path).parts))
    if not files:
        raise ValueError(f"the folder {path} has no files")
    return files


def _hugging_face(name: str) -> Texts:
    path, _, config = (name, "", "") if Path(name).exists() or ":" not in name else name.rpartition(":")
    try:
        import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Hugging Face data sets need more: pip install 'toeplitz-nn[datasets]'") from None
    try:
        if any((Path(path) / file).exists() for file in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(path)
        else:
            loaded = datasets.load_dataset(path, config or None)
    except Exception as error:  # of the network, of the hub, of the files, of the configuration
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
    decoder = codecs.getincrementaldecoder("utf-8")()  # keeps the rest of a character for the next piece
    with reading(path) as file:
        stop = sys.maxsize if stop is None else _next_character(file, stop)
        start = file.seek(_next_character(file, start))
        while piece := file.readline(min(LINE, stop - start)):
            start += len(piece)
            yield decoder.decode(piece)
        decoder.decode(b"", final=True)


def _next_character(file: BinaryIO, position: int) -> int:
    """The first place from `position` on where a character begins: a cut does not divide one."""
    if position == 0:
        return 0
    file.seek(position)
    after = file.read(3)
    return position + len(after) - len(after.lstrip(CONTINUATION))
