"""Texts with labels, from tables: their splits, their tokens on disk, their examples.

Nothing but numbers is kept of a row: a table may be larger than the memory.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn.data.labels import Kind, Labels, check_trainable, read_labels
from tnn.data.tables import WHOLE, Row, Table, open_tables
from tnn.data.text_splits import assign_splits, text_keys
from tnn.data.tokenizers import highest_id

AT_ONCE = 2**20  # characters per call of the tokenizer, or one text; it takes some 150 bytes of memory for each
NO_LIMIT = 10**9  # tokenizers without one have a larger number for it
MISSING_CLASS = -1  # in Hugging Face data sets
Texts = tuple[str, ...]  # of a row: one, or a pair


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are used, and what its labels are; see `read_labels`."""

    text: str = "text"
    pair: str | None = None
    label: str = "label"
    kind: Kind = "single"
    separator: str | None = None

    def check_texts(self, table: Table) -> None:
        table.column(self.text, "data.text_column")
        if self.pair is not None:
            table.column(self.pair, "data.pair_column")

    def texts_of(self, row: Row, where: str) -> Texts:
        """The text, or both of a pair; a ValueError if one is missing or empty."""
        names = [self.text] if self.pair is None else [self.text, self.pair]
        return tuple(check_text(row.get(name), f"{where}, column {name!r}") for name in names)

    def texts(self, table: Table) -> Iterator[Texts]:
        for number, row in enumerate(table.rows(), start=1):
            yield self.texts_of(row, f"{table.name}, row {number}")

    def labels(self, table: Table, names: tuple[str, ...] | None = None) -> Labels:
        table.column(self.label, "data.label_column")
        return read_labels(_named(table, self.label), table.name, self.kind, separator=self.separator, names=names)


def check_text(value: Any, where: str) -> str:
    """The text, if it is one that a model can read.

    >>> from tnn.data.labelled_texts import check_text
    >>> check_text(" ", "reviews.csv, row 7")
    Traceback (most recent call last):
    ...
    ValueError: reviews.csv, row 7: the text is empty
    """
    if value is None:
        raise ValueError(f"{where}: the text is missing")
    if not isinstance(value, str):
        raise ValueError(f"{where}: the text must be a string; got {value!r}")
    if not value.strip():
        raise ValueError(f"{where}: the text is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: character {error.start} of the text is half of one, and no Unicode") from None
    return value


def _named(table: Table, column: str) -> Iterator[Any]:
    name = namer(table, column)
    return (name(row.get(column)) for row in table.rows())


def namer(table: Table, column: str) -> Callable[[Any], Any]:
    """Hugging Face data sets have numbers for classes, and their names beside them: a function from one to the other.

    Other tables have names, or numbers that are.

    >>> from tnn.data.labelled_texts import namer
    >>> from tnn.data.tables import Table
    >>> namer(Table("a.csv", ("label",)), "label")("good")
    'good'
    """
    feature = table.dataset.features[column] if table.dataset is not None else None
    feature = getattr(feature, "feature", feature)  # of a list
    names = getattr(feature, "names", None)
    return (lambda value: value) if names is None else partial(_name, names=names)


def _name(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_name(one, names) for one in value]
    return None if value is None or value == MISSING_CLASS else names[value]


# --- splits


class Part(NamedTuple):
    """Some rows of a table, in its order, and their labels."""

    table: Table
    rows: NDArray[np.int64]
    labels: Labels

    def texts(self, columns: Columns) -> Iterator[Texts]:
        chosen = np.zeros(self.rows[-1] + 1, bool)
        chosen[self.rows] = True
        return compress(columns.texts(self.table), chosen)


def open_parts(
    source: str | Path, columns: Columns, seed: int = 0, names: tuple[str, ...] | None = None
) -> dict[str, Part]:
    """The train, validation and, unless there is none, test rows of a source; see `tnn.data.tables.open_tables`.

    A table that is not split is: 10% of the texts are for validation, and 10% for the test. Of a source with a test
    table, but none for validation, 10% of the training texts are. Each class has these shares, and at least one text in
    each split if it has three. Equal texts are in one split. Which texts these are depends on the texts and the seed
    alone, not on their order.

    `names` are the classes; None: those of the training table.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.labelled_texts import Columns, open_parts
    >>> rows = "".join(f"text {number},{number % 2}\\n" for number in range(40))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text(f"text,label\\n{rows}")
    ...     parts = open_parts(Path(folder, "a.csv"), Columns())
    >>> {split: len(part.rows) for split, part in parts.items()}
    {'train': 32, 'validation': 4, 'test': 4}
    """
    tables = open_tables(source)
    table = tables.get("train") or tables.get(WHOLE)
    if table is None:
        raise ValueError(f"{source} has no train split; it has {', '.join(tables)}")
    columns.check_texts(table)
    labels = columns.labels(table, names)
    check_trainable(labels, table.name)
    others = {split: tables[split] for split in ("validation", "test") if split in tables}
    cut = [split for split in ("validation", "test") if split not in others]
    if "validation" in others:
        cut = []
    elif "test" in others:
        cut = ["validation"]
    parts = _cut(table, labels, columns, seed, cut)
    for split, other in others.items():
        parts[split] = open_whole(other, columns, labels.names)
    return {split: parts[split] for split in ("train", "validation", "test") if split in parts}


def open_whole(table: Table, columns: Columns, names: tuple[str, ...]) -> Part:
    """All rows of a table, with labels that are among these names."""
    columns.check_texts(table)
    labels = columns.labels(table, names)
    return Part(table, np.arange(len(labels)), labels)


def _cut(table: Table, labels: Labels, columns: Columns, seed: int, splits: list[str]) -> dict[str, Part]:
    if not splits:
        return {"train": Part(table, np.arange(len(labels)), labels)}
    chosen = assign_splits(text_keys(columns.texts(table), seed), labels.strata(), len(splits))
    rows = {split: np.flatnonzero(chosen == number) for number, split in enumerate(["train", *splits])}
    if "validation" in rows and not len(rows["validation"]):
        raise ValueError(f"{table.name} has too few texts for a validation split: no class has two different ones")
    return {split: Part(table, some, labels.select(some)) for split, some in rows.items() if len(some)}


# --- tokens


def text_tokenizer(tokenizer: Any, length: int) -> Any:
    """The tokenizer, so that `tokenizer(text, truncation=True)` is the input of a classifier, here and in pipelines.

    A text becomes `<s> A </s>`, a pair `<s> A </s> </s> B </s>`, unless the tokenizer adds special tokens of its own.
    `truncation=True` cuts it to `length` tokens, of a pair the longer text first. The name of a special token in a text
    is treated as text.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.labelled_texts import text_tokenizer
    >>> text_tokenizer(byte_tokenizer(), length=4)("abcd", truncation=True)["input_ids"]
    [0, 101, 102, 2]
    """
    from tokenizers.processors import TemplateProcessing

    if not tokenizer.num_special_tokens_to_add(pair=True):
        bos, eos = tokenizer.bos_token or tokenizer.eos_token, tokenizer.eos_token
        if eos is None:
            raise ValueError("the tokenizer must have an end-of-text token, such as </s>")
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A {eos}",
            pair=f"{bos} $A {eos} {eos} $B {eos}",
            special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in dict.fromkeys((bos, eos))],
        )
    tokenizer.split_special_tokens = True
    tokenizer.model_max_length = length
    return tokenizer


class TextEncoder:
    """What `tokenizer(text, truncation=True)` makes of texts, or of pairs; with `whole`, nothing is cut off.

    `length` is that of the tokenizer, None if it has none; `read` and `longer` count the texts so far, and those with
    more tokens than that.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.labelled_texts import TextEncoder, text_tokenizer
    >>> tokenizer, texts = text_tokenizer(byte_tokenizer(), length=4), [("a",), ("abc",)]
    >>> encoder = TextEncoder(tokenizer)
    >>> [ids.tolist() for ids in encoder.encode(texts)], encoder.longer, encoder.read
    ([[0, 101, 2], [0, 101, 102, 2]], 1, 2)
    >>> [ids.tolist() for ids in TextEncoder(tokenizer, whole=True).encode(texts)]
    [[0, 101, 2], [0, 101, 102, 103, 2]]
    """

    def __init__(self, tokenizer: Any, *, whole: bool = False) -> None:
        self.whole, self.read, self.longer = whole, 0, 0
        self.length = tokenizer.model_max_length if tokenizer.model_max_length < NO_LIMIT else None
        self.pad_id = tokenizer.pad_token_id or 0
        self.dtype = np.dtype(np.uint16 if highest_id(tokenizer) < 2**16 else np.uint32)
        self._backend = _backend(tokenizer, None if whole else self.length)

    def encode(self, texts: Iterable[Texts]) -> Iterator[NDArray[Any]]:
        """The token ids of each text."""
        for batch in _batches(texts):
            for encoding in self._backend.encode_batch_fast([text if len(text) > 1 else text[0] for text in batch]):
                ids = np.array(encoding.ids, self.dtype)
                self.read += 1
                self.longer += self._is_longer(len(ids), encoding)
                yield ids

    def _is_longer(self, tokens: int, encoding: Any) -> bool:
        if self.length is None or tokens < self.length:
            return False
        return tokens > self.length if self.whole else bool(encoding.overflowing)

    def summary(self, advice: str = "--whole reads them to the end") -> str:
        """In words how many texts were cut, or longer than that; empty if none was. The advice is for cut ones."""
        if not self.longer:
            return ""
        counts, tokens = f"{self.longer:,} of {self.read:,}", f"{self.length:,} tokens"
        if self.whole:
            return f"{counts} texts are longer than {tokens}, and were read whole"
        return f"{counts} texts are longer than {tokens}, and were cut; {advice}"


def _backend(tokenizer: Any, length: int | None) -> Any:
    """Twice as fast as the tokenizer itself, which also makes an attention mask and lists of all."""
    from tokenizers import Tokenizer

    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError(f"the tokenizer must have a tokenizer.json; got a {type(tokenizer).__name__}, in Python")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.encode_special_tokens = tokenizer.split_special_tokens
    backend.no_padding()
    backend.no_truncation()
    if length is not None:
        backend.enable_truncation(length, direction=tokenizer.truncation_side)
    return backend


def _batches(texts: Iterable[Texts]) -> Iterator[list[Texts]]:
    batch, characters = [], 0
    for text in texts:
        batch.append(text)
        characters += sum(map(len, text))
        if characters >= AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class EncodedTexts(NamedTuple):
    """Token ids of many texts, one after the other, in a file that is mapped into memory and has no name."""

    ids: NDArray[Any]
    ends: NDArray[np.int64]

    def row(self, row: int) -> Tensor:
        start = self.ends[row - 1] if row else 0
        return torch.from_numpy(self.ids[start : self.ends[row]].astype(np.int64))


def encode_texts(texts: Iterable[Texts], encoder: TextEncoder, folder: Path) -> EncodedTexts:
    """The token ids of many texts, or of pairs. `folder` has room for the file."""
    ends = array("q", [0])
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as file:
        for ids in encoder.encode(texts):
            file.write(ids.tobytes())
            ends.append(ends[-1] + len(ids))
        file.flush()
        return EncodedTexts(np.memmap(file, encoder.dtype, "r"), np.array(ends[1:]))


class LabelledTexts(Dataset[dict[str, Tensor]]):
    """`input_ids` and `labels` of texts; `tnn.data.blocks.collate` makes batches of them.

    >>> from pathlib import Path
    >>> from tempfile import gettempdir
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.labelled_texts import LabelledTexts, TextEncoder, encode_texts, text_tokenizer
    >>> from tnn.data.labels import read_labels
    >>> encoder = TextEncoder(text_tokenizer(byte_tokenizer(), length=512))
    >>> encoded = encode_texts([("ab",), ("c",)], encoder, Path(gettempdir()))
    >>> LabelledTexts(encoded, read_labels(["x", "y"], "a.csv"))[1]
    {'input_ids': tensor([  0, 103,   2]), 'labels': tensor(1)}
    """

    def __init__(self, texts: EncodedTexts, labels: Labels) -> None:
        self.texts, self.labels = texts, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        label = torch.from_numpy(self.labels[index])
        return {"input_ids": self.texts.row(index), "labels": label if label.is_floating_point() else label.long()}
