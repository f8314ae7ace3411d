"""Labels of texts: one class each, several classes, or a number. They are read row by row into compact arrays."""

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tnn._names import did_you_mean
from tnn.data.arrays import MOST_CLASSES

Kind = Literal["single", "several", "regression"]
LARGEST_NUMBER = 3e38  # that float32 has
FEW_CLASSES = 20  # so few may have a single example each


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of n texts. Classes are numbered in the order of `names`; a regression has none."""

    kind: Kind
    names: tuple[str, ...]
    values: NDArray[Any]  # classes or numbers: one per text, or those of a text after those of the text before
    ends: NDArray[np.int64]  # (n,) where those of each text end

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> NDArray[Any]:
        """() a class or a number; of several classes (classes,), 1 for those that the text has."""
        if self.kind == "several":
            chosen = np.zeros(len(self.names), np.float32)
            chosen[self.values[self.ends[row - 1] if row else 0 : self.ends[row]]] = 1
            return chosen
        return np.asarray(self.values[row])

    def targets(self) -> NDArray[Any]:
        """Of all texts, as in `[row]`: (n,) or (n, classes)."""
        if self.kind == "several":
            return np.stack([self[row] for row in range(len(self))])
        return self.values

    def select(self, rows: NDArray[np.int64]) -> "Labels":
        """Those of some rows, in ascending order."""
        chosen, sizes = np.zeros(len(self), bool), np.diff(self.ends, prepend=0)
        chosen[rows] = True
        return replace(self, values=self.values[np.repeat(chosen, sizes)], ends=sizes[chosen].cumsum())

    def counts(self) -> NDArray[np.int64]:
        """(classes,) how many texts have each."""
        return np.bincount(self.values, minlength=len(self.names))

    def most_frequent(self) -> int:
        """The class that most texts have."""
        return int(self.counts().argmax())

    def strata(self) -> NDArray[np.int64]:
        """(n,) what a split has equal shares of: classes; of several the rarest one. A regression has one stratum."""
        if self.kind == "regression":
            return np.zeros(len(self), np.int64)
        rarity = self.counts().argsort(kind="stable").argsort()
        result = np.full(len(self), len(self.names))  # for texts without any class
        np.minimum.at(result, np.repeat(np.arange(len(self)), np.diff(self.ends, prepend=0)), rarity[self.values])
        return result


def read_labels(
    values: Iterable[Any],
    where: str,
    kind: Kind = "single",
    *,
    separator: str | None = None,
    names: Sequence[str] | None = None,
) -> Labels:
    """The labels in a column of a table; a ValueError tells the row of the first wrong one.

    Args:
        values: of the column. Classes are strings or numbers, several are a list. None, NaN and "" are missing.
        where: the name of the table, for errors.
        kind: one class per text, several classes, or a number.
        separator: between several classes in one string.
        names: the classes that are allowed. None: all that occur, sorted; by value if all are numbers.

    >>> from tnn.data.labels import read_labels
    >>> labels = read_labels(["good", "bad", "good"], "reviews.csv")
    >>> labels.names, labels.values.tolist()
    (('bad', 'good'), [1, 0, 1])
    """
    classes = _Classes(names)
    read = _number if kind == "regression" else classes.reader(kind, separator)
    numbers: Any = array("d" if kind == "regression" else "i")
    ends = array("q")
    for row, value in enumerate(values, start=1):
        try:
            numbers.extend(read(value))
        except ValueError as error:
            raise ValueError(f"{where}, row {row}: {error}") from None
        ends.append(len(numbers))
    if kind == "regression":
        return Labels(kind, (), np.array(numbers, np.float32), np.array(ends))
    ordered = tuple(names) if names is not None else _sorted(classes.numbers)
    place = {name: number for number, name in enumerate(ordered)}
    new = np.array([place[name] for name in classes.numbers], np.int32)
    return Labels(kind, ordered, new[np.array(numbers, np.int32)], np.array(ends))


class _Classes:
    """Numbers of classes in the order in which they occur; only the known ones if there are `names`."""

    def __init__(self, names: Sequence[str] | None) -> None:
        self.closed = names is not None
        self.numbers = {name: number for number, name in enumerate(names or ())}

    def reader(self, kind: Kind, separator: str | None) -> Callable[[Any], list[int]]:
        if kind == "several":
            return lambda value: [self._number(name) for name in _several(value, separator)]
        return lambda value: [self._number(_class_name(value))]

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            if self.closed:
                raise ValueError(f"the label {name!r} is not in the training table; {did_you_mean(name, self.numbers)}")
            if len(self.numbers) == MOST_CLASSES:
                raise ValueError(f"there are more than {MOST_CLASSES:,} different labels: is this the right column?")
        return self.numbers.setdefault(name, len(self.numbers))


def _number(value: Any) -> list[float]:
    if _is_missing(value):
        raise ValueError("the label is missing")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) < LARGEST_NUMBER:  # nor is it NaN
        raise ValueError(f"the label must be a number, for data.kind=regression; got {value!r}")
    return [number]


def _several(value: Any, separator: str | None) -> list[str]:
    if isinstance(value, str) and separator is not None:
        value = [part for part in value.split(separator) if part.strip()]
    if value is None:
        raise ValueError("the labels are missing; a text without any has an empty list")
    if not isinstance(value, list | tuple):
        raise ValueError(f"there must be a list of labels, or a string and data.separator; got {value!r}")
    return list(dict.fromkeys(map(_class_name, value)))


def _class_name(value: Any) -> str:
    """1, 1.0 and "1" are one class; true is "true"."""
    if _is_missing(value):
        raise ValueError("the label is missing")
    if isinstance(value, list | tuple | dict):
        raise ValueError(f"there must be one label; got {value!r} (for lists, give data.kind=several)")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    names = sorted(names)
    values = [_value(name) for name in names]
    if all(map(math.isfinite, values)):
        return tuple(name for _, name in sorted(zip(values, names, strict=True)))
    return tuple(names)


def _value(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return math.nan


def check_trainable(labels: Labels, where: str) -> None:
    """A ValueError if nothing can be learned from these labels, or if they look like those of another kind.

    >>> from tnn.data.labels import check_trainable, read_labels
    >>> check_trainable(read_labels(["good", "good"], "reviews.csv"), "reviews.csv")
    Traceback (most recent call last):
    ...
    ValueError: reviews.csv has one label only, 'good': there must be at least two
    """
    if labels.kind == "regression":
        if not np.ptp(labels.values):
            raise ValueError(f"{where} has one label only, {labels.values[0]:g}: there must be at least two")
        return
    if labels.kind == "several" and not labels.names:
        raise ValueError(f"{where} has no labels: the list of each row is empty")
    if labels.kind == "single" and len(labels.names) == 1:
        raise ValueError(f"{where} has one label only, {labels.names[0]!r}: there must be at least two")
    if labels.kind == "single" and len(labels.names) > FEW_CLASSES and 2 * len(labels.names) > len(labels):
        found = f"{len(labels.names):,} different labels in {len(labels):,} rows"
        raise ValueError(f"{where} has {found}: is this the right column? For numbers, give data.kind=regression")
