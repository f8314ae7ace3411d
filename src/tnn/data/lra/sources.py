"""The texts of Long-Range Arena as they are stored: reviews of IMDb, ListOps, pairs of papers."""

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tnn.data.compressed import find_file, reading
from tnn.data.lra.listops import FILES
from tnn.data.lra.tasks import LRA_TASKS, check_label

LISTOPS_COLUMNS = ("Source", "Target")
PAIR_FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
PAIR_COLUMNS = ("label", "id1", "id2", "text1", "text2")
REVIEW_COLUMNS = ("text", "label")
SENTIMENTS = ("neg", "pos")  # folders of IMDb's archive, in the order of the labels


class Row(NamedTuple):
    """One text or two, and their class."""

    texts: tuple[str, ...]
    label: int


def open_rows(task: str, source: str | Path) -> Callable[[str], Iterator[Row]]:
    """A function that yields the rows of a split; the task text has only "train" and "test".

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra.sources import open_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "basic_val.tsv").write_text("Source\\tTarget\\n[MAX 4 7 ]\\t7\\n")
    ...     list(open_rows("listops", folder)("validation"))
    [Row(texts=('[MAX 4 7 ]',), label=7)]
    """
    if str(source).startswith("hf:"):
        if task != "text":
            raise ValueError(f"only the task text can come from {source}; {task} needs {LRA_TASKS[task].where}")
        return partial(_table_rows, _load_tables(str(source).removeprefix("hf:")), str(source))
    reader = {"text": _reviews, "listops": _listops, "retrieval": _pairs}[task]
    return partial(reader, Path(source))


def _reviews(folder: Path, split: str) -> Iterator[Row]:
    """train.tsv and test.tsv with a header, or the folders of IMDb."""
    table = find_file(folder / f"{split}.tsv")
    homes = [home for home in (folder, folder / "aclImdb") if (home / split).is_dir()]
    if table.is_file():
        for where, fields in _tsv(table, REVIEW_COLUMNS):
            yield Row(fields[:1], check_label("text", fields[1], where))
    elif homes:
        yield from _review_files(homes[0] / split)
    else:
        raise FileNotFoundError(f"there is neither {table} nor {folder / split}: text needs {LRA_TASKS['text'].where}")


def _review_files(folder: Path) -> Iterator[Row]:
    for label, sentiment in enumerate(SENTIMENTS):
        paths = sorted((folder / sentiment).glob("*.txt*"))
        if not paths:
            raise FileNotFoundError(f"there is no {folder / sentiment / '*.txt'}: text needs {LRA_TASKS['text'].where}")
        for path in paths:
            with reading(path) as file:
                yield Row((file.read().decode(),), label)


def _listops(folder: Path, split: str) -> Iterator[Row]:
    for where, fields in _tsv(_existing(folder / FILES[split], "listops"), LISTOPS_COLUMNS):
        yield Row(fields[:1], check_label("listops", fields[1], where))


def _pairs(folder: Path, split: str) -> Iterator[Row]:
    """No header. A paper is stored as Python prints its bytes, b'...'; models read it in that form."""
    path = _existing(folder / PAIR_FILES[split], "retrieval")
    for where, (label, _, _, first, second) in _tsv(path, PAIR_COLUMNS, header=False):
        yield Row((first, second), check_label("retrieval", label, where))


def _existing(path: Path, task: str) -> Path:
    stored = find_file(path)
    if not stored.is_file():
        raise FileNotFoundError(f"there is no {path}: {task} needs {LRA_TASKS[task].where}")
    return stored


def _tsv(path: Path, names: tuple[str, ...], header: bool = True) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each row, its file and line for messages, and its fields `names`."""
    with reading(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n")  # quotes and single \r belong to the text
        rows = (line.rstrip("\r\n").split("\t") for line in text)
        titles = next(rows, []) if header else list(names)
        if missing := [name for name in names if name not in titles]:
            raise ValueError(f"{path}: no column {missing[0]!r} in its first line, {' | '.join(titles)[:80]!r}")
        columns = [titles.index(name) for name in names]
        for number, row in enumerate(rows, start=2 if header else 1):
            if len(row) == len(titles):
                yield f"{path}, line {number}", tuple(row[column] for column in columns)
            elif row != [""]:
                raise ValueError(f"{path}, line {number}: needs {len(titles)} columns; got {len(row)}")


def _load_tables(name: str) -> Any:
    try:
        from datasets import load_dataset, load_from_disk
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Hugging Face data sets need datasets: pip install 'toeplitz-nn[datasets]'") from None
    folder = Path(name)
    if not folder.exists():
        return load_dataset(name)
    if (folder / "dataset_dict.json").is_file():
        return load_from_disk(folder)
    files = {split: sorted(map(str, folder.rglob(f"{split}*.parquet"))) for split in ("train", "test")}
    if not any(files.values()):
        raise FileNotFoundError(f"{folder} must hold parquet files (train*.parquet) or a saved data set")
    return load_dataset("parquet", data_files={split: paths for split, paths in files.items() if paths})


def _table_rows(tables: Any, source: str, split: str) -> Iterator[Row]:
    if split not in tables:
        raise FileNotFoundError(f"{source} has no split {split!r}; it has {', '.join(tables)}")
    table = tables[split]
    if missing := [name for name in REVIEW_COLUMNS if name not in table.column_names]:
        raise ValueError(f"{source}: no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    for rows in table.select_columns(list(REVIEW_COLUMNS)).iter(batch_size=1000):
        for text, label in zip(rows["text"], rows["label"], strict=True):
            if not isinstance(text, str):
                raise ValueError(f"{split} of {source}: a text must be a string; got {text!r}")
            yield Row((text,), check_label("text", label, f"{split} of {source}"))
