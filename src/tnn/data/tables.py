"""Tables row by row: CSV, TSV, JSONL and Parquet files, compressed or not, and Hugging Face data sets."""

import csv
import hashlib
import io
import json
import logging
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tnn._names import did_you_mean
from tnn.data.compressed import OPENERS, reading

SEPARATORS = {"csv": ",;\t", "tsv": "\t"}  # the first that is in the first line; a spreadsheet may write any
QUOTED = re.compile(r'"[^"]*"?')
KINDS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
SPLITS = {"train": "train", "valid": "validation", "validation": "validation", "dev": "validation", "test": "test"}
WHOLE = ""  # the name of a table that is not split
UNDOUBLED = "a quote inside a quoted field must be written twice, as every spreadsheet writes it"
LONGEST_FIELD = 2**28  # characters of a field in a CSV file
ROWS_AT_ONCE = 1024
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows with named columns. This is a description: rows are read from the disk each time they are iterated."""

    name: str
    columns: tuple[str, ...]  # those of the first row
    paths: tuple[Path, ...] = ()
    dataset: Any = field(default=None, compare=False)  # of Hugging Face, in place of paths

    def rows(self) -> Iterator[Row]:
        """Values are strings in CSV and TSV files, and whatever the file holds elsewhere. A missing one is None."""
        if self.dataset is not None:
            return iter(self.dataset)
        return _read_all(self.paths)

    def column(self, name: str, option: str) -> str:
        """`name` if there is such a column; otherwise a ValueError with the nearest one. `option` is who asks."""
        if name not in self.columns:
            raise ValueError(f"{option}: {self.name} has no column {name!r}; {did_you_mean(name, self.columns)}")
        return name

    def fingerprint(self) -> str:
        """A hash of paths, sizes and modification times; no row is read."""
        if self.dataset is not None:
            return str(self.dataset._fingerprint)
        stats = [(str(path.resolve()), path.stat()) for path in self.paths]
        known = repr([(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats])
        return hashlib.sha256(known.encode()).hexdigest()


def open_tables(source: str | Path) -> dict[str, Table]:
    """The tables of a source by split: "train", "validation" and "test", or one table under "" if it is not split.

    - a file that ends in .csv, .tsv, .jsonl (or .ndjson) or .parquet; all but .parquet may be compressed (.xz, .gz).
      In a .csv, fields are separated by commas; without one in the first line by semicolons, and else by tabs;
    - a folder with such files named train, valid (or validation, or dev) and test;
    - any other folder of such files: their rows one after the other, by name;
    - "hf:PATH", "hf:NAME" or "hf:NAME:CONFIG": a Hugging Face data set.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.tables import open_tables
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "reviews.csv").write_text("text,label\\nFine.,good\\n")
    ...     table = open_tables(Path(folder, "reviews.csv"))[""]
    ...     table.columns, list(table.rows())
    (('text', 'label'), [{'text': 'Fine.', 'label': 'good'}])
    """
    if str(source).startswith("hf:"):
        return _hugging_face(str(source).removeprefix("hf:"))
    path = Path(source)
    if not str(source) or not path.exists():
        raise FileNotFoundError(f'no table at {source}: it must be a file, a folder, or "hf:" and a data set')
    if path.is_file():
        return {WHOLE: _table((path,), str(path))}
    files = sorted(file for file in path.iterdir() if file.is_file() and table_kind(file) is not None)
    if not files:
        raise ValueError(f"the folder {path} has no tables: files that end in {', '.join(KINDS)}")
    named = files_by_split(files)
    return {split: _table((file,), str(file)) for split, file in named.items()} or {
        WHOLE: _table(tuple(files), str(path))
    }


def table_kind(path: Path) -> str | None:
    """The kind "csv", "tsv", "jsonl" or "parquet" by the ending of a name, compressed or not; None: no table.

    >>> from pathlib import Path
    >>> from tnn.data.tables import table_kind
    >>> table_kind(Path("a.csv.gz")), table_kind(Path("a.txt"))
    ('csv', None)
    """
    compressed = path.suffix in OPENERS
    return KINDS.get((path.with_suffix("") if compressed else path).suffix.lower())


def files_by_split(files: Iterable[Path]) -> dict[str, Path]:
    """Those named train, valid (or validation, or dev) and test; none if there is no train.

    >>> from pathlib import Path
    >>> from tnn.data.tables import files_by_split
    >>> files_by_split([Path("dev.csv"), Path("notes.csv"), Path("train.csv")])
    {'validation': PosixPath('dev.csv'), 'train': PosixPath('train.csv')}
    """
    found: dict[str, Path] = {}
    for file in files:
        stem = re.split(r"\.", file.name, maxsplit=1)[0].lower()
        if (split := SPLITS.get(stem)) is not None:
            if split in found:
                raise ValueError(f"{file.parent} must have one file for the {split} split; {file.name} is a second one")
            found[split] = file
    return found if "train" in found else {}


def _table(paths: tuple[Path, ...], name: str) -> Table:
    for path in paths:
        if table_kind(path) is None:
            raise ValueError(f"{path} is not a table: its name must end in {', '.join(KINDS)}")
    with closing(_read_all(paths)) as rows:
        first = next(rows, None)
    if first is None:
        raise ValueError(f"the table {name} has no rows")
    return Table(name, tuple(first), paths)


def _read_all(paths: tuple[Path, ...]) -> Generator[Row, None, None]:
    for path in paths:
        yield from _read(path)


def _read(path: Path) -> Iterator[Row]:
    kind = table_kind(path)
    if kind == "parquet":
        return _read_parquet(path)
    return _read_jsonl(path) if kind == "jsonl" else _read_csv(path, SEPARATORS[str(kind)])


def _read_csv(path: Path, separators: str) -> Iterator[Row]:
    """Quoted fields may hold line ends. Every row must have as many fields as the header."""
    csv.field_size_limit(min(LONGEST_FIELD, sys.maxsize))
    with reading(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        first = text.readline()
        names = QUOTED.sub("", first)
        separator = next((one for one in separators if one in names), separators[0])
        rows = csv.reader(chain([first], text), delimiter=separator, strict=True)
        try:
            header = _check_header(next(rows, []), path)
            for row in rows:
                if not row:  # an empty line
                    continue
                if len(row) != len(header):
                    got = f"line {rows.line_num} has {len(row)}"
                    raise ValueError(f"{path} must have {len(header)} fields in each row, as its header; {got}")
                yield dict(zip(header, row, strict=True))
        except csv.Error as error:
            reason = UNDOUBLED if "expected after" in str(error) else error
            raise ValueError(f"{path}, line {rows.line_num}: {reason}") from None


def _check_header(header: list[str], path: Path) -> list[str]:
    names = [name.strip() for name in header]
    if not any(names):
        raise ValueError(f"{path} must start with a line that names its columns")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path} must name each column once; it has {name!r} twice in its first line")
    return names


def _read_jsonl(path: Path) -> Iterator[Row]:
    with reading(path) as file, io.TextIOWrapper(file, "utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: each line must be a JSON object; got {line.strip()[:40]!r}")
            yield row


def _read_parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Parquet files need pyarrow: pip install 'toeplitz-nn[datasets]'") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None


def _hugging_face(name: str) -> dict[str, Table]:
    return {
        SPLITS.get(split, split): Table(f"{split} of hf:{name}", tuple(dataset.column_names), dataset=dataset)
        for split, dataset in load_hugging_face(name).items()
    }


def load_hugging_face(name: str) -> dict[str, Any]:
    """The data sets of PATH, NAME or NAME:CONFIG by split, for the `datasets` library; its splits keep their names."""
    path, _, config = (name, "", "") if Path(name).exists() or ":" not in name else name.rpartition(":")
    try:
        import datasets  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Hugging Face data sets need datasets: pip install 'toeplitz-nn[datasets]'") from None
    try:
        with _no_reports_of_retries():
            return _load(path, config)
    except Exception as error:  # from the network, the hub, the files or the configuration
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"cannot load the Hugging Face data set {name}: {reason}") from error


def _load(path: str, config: str) -> dict[str, Any]:
    import datasets

    if any((Path(path) / file).exists() for file in ("dataset_dict.json", "state.json")):
        loaded = datasets.load_from_disk(path)
    else:
        loaded = datasets.load_dataset(path, config or None)
    return {str(k): v for k, v in loaded.items()} if isinstance(loaded, dict) else {"train": loaded}


@contextmanager
def _no_reports_of_retries() -> Iterator[None]:
    """Without a network, the hub library reports each of its attempts; the last error says it all."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
