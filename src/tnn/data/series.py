"""Series of numbers over time, from the rows of a table: checked, with NaN where a value is missing.

Nothing but numbers and times is kept of a row: a table may have many millions.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnn.data.tables import Row, Table
from tnn.data.times import Moment, Step, format_time, parse_time, regular_step

MISSING = {"", "na", "n/a", "nan", "null", "none"}  # cells without a value, in any case
LARGEST = 1e100  # the square of a value must be a number too


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are. No target: all columns of numbers that are nothing else."""

    target: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # covariates that are known in advance
    time: str | None = None
    series: str | None = None  # the name of the series that a row belongs to

    def by_option(self) -> dict[str, tuple[str, ...]]:
        """The names of columns by the key of a recipe that gives them."""
        time, series = (() if name is None else (name,) for name in (self.time, self.series))
        return {
            "data.target": self.target,
            "data.known": self.known,
            "data.time_column": time,
            "data.series_column": series,
        }


@dataclass(frozen=True)
class Series:
    """One series: `values` (n, targets), and `known` (n or more, covariates), which may go on into the future."""

    name: str
    values: NDArray[np.float64]
    known: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    last_time: Moment | None = None  # of the last of the values
    time_cell: Any = None  # as it is written
    step: Step | None = None

    def __len__(self) -> int:
        return len(self.values)

    def time_after(self, steps: int) -> Any:
        """The time of so many steps after the last value, written as in the table; None if it is not known."""
        if self.last_time is None or self.step is None:
            return None
        return format_time(self.step.after(self.last_time, steps), self.time_cell)


def read_series(table: Table, columns: Columns) -> list[Series]:
    """The series of a table in the order of their first rows; a single one has the name "".

    Rows after the last one with a target are the future if there are known covariates.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.series import Columns, read_series
    >>> from tnn.data.tables import open_tables
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "load.csv").write_text("day,load\\n2024-01-01,5\\n2024-01-02,\\n2024-01-03,7\\n")
    ...     table = open_tables(Path(folder, "load.csv"))[""]
    ...     series = read_series(table, Columns(target=("load",), time="day"))[0]
    >>> series.values.tolist(), series.time_after(1)
    ([[5.0], [nan], [7.0]], '2024-01-04')
    """
    targets = find_targets(table, columns)
    groups: dict[str, _Group] = {}
    for number, row in enumerate(table.rows(), start=1):
        where = f"{table.name}, row {number}"
        name = "" if columns.series is None else _name(row, columns.series, where)
        group = groups.setdefault(name, _Group())
        values = [_number(row.get(column), column, where) for column in targets]
        group.rows.append(number)
        group.values.extend(values)
        group.known.extend(_known_number(row.get(column), column, where) for column in columns.known)
        if not columns.known or not all(map(math.isnan, values)):
            group.last = len(group.rows) - 1
        if columns.time is not None:
            group.add_time(row.get(columns.time), columns.time, where)
    return [_series(table, name, group, targets) for name, group in groups.items()]


def find_targets(table: Table, columns: Columns) -> tuple[str, ...]:
    """The target columns, if all columns are there; by default those whose first cell with a value is a number."""
    used: dict[str, str] = {}
    for option, names in columns.by_option().items():
        for name in names:
            table.column(name, option)
            if name in used:
                raise ValueError(f"{option}: the column {name!r} is used by {used[name]} already")
            used[name] = option
    if columns.target:
        return columns.target
    numeric = _numeric_columns(table, [name for name in table.columns if name not in used])
    if not numeric:
        raise ValueError(f"{table.name} has no column of numbers to forecast; it has {', '.join(table.columns)}")
    return numeric


def _numeric_columns(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    first: dict[str, bool] = {}  # whether the first value of a column is a number
    for row in table.rows():
        for name in names:
            if name not in first and not _is_missing(row.get(name)):
                first[name] = _is_number(row[name])
        if len(first) == len(names):
            break
    return tuple(name for name in names if first.get(name))


@dataclass
class _Group:
    """The rows of one series."""

    rows: "array[int]" = field(default_factory=lambda: array("q"))  # their numbers in the table, from 1
    values: "array[float]" = field(default_factory=lambda: array("d"))  # of all targets, row by row
    known: "array[float]" = field(default_factory=lambda: array("d"))
    times: list[Moment] = field(default_factory=list)
    last: int = 0  # the row with the last value; those after it are the future of known covariates
    time_cell: Any = None  # of that row

    def add_time(self, cell: Any, column: str, where: str) -> None:
        try:
            self.times.append(parse_time(cell))
        except ValueError as error:
            raise ValueError(f"{where}, column {column!r}: {error}") from None
        if self.last == len(self.times) - 1:
            self.time_cell = cell


def _series(table: Table, name: str, group: _Group, targets: Sequence[str]) -> Series:
    where = f"{table.name}, series {name!r}" if name else table.name
    count = len(group.rows)
    values, known = np.array(group.values).reshape(count, -1), np.array(group.known).reshape(count, -1)
    for column, found in zip(targets, (~np.isnan(values)).any(0), strict=True):
        if not found:
            raise ValueError(f"{where}: column {column!r} has no values")
    try:
        step = regular_step(group.times, group.rows)
    except ValueError as error:
        raise ValueError(f"{where}, {error}") from None
    time = group.times[group.last] if group.times else None
    return Series(name, values[: group.last + 1], known, time, group.time_cell, step)


def _name(row: Row, column: str, where: str) -> str:
    if _is_missing(cell := row.get(column)):
        raise ValueError(f"{where}: the name of the series is missing, in column {column!r}")
    return str(cell)


def _known_number(cell: Any, column: str, where: str) -> float:
    if math.isnan(number := _number(cell, column, where)):
        raise ValueError(f"{where}, column {column!r}: a covariate that is known in advance must not be missing")
    return number


def _number(cell: Any, column: str, where: str) -> float:
    if _is_missing(cell):
        return math.nan
    if not _is_number(cell):
        raise ValueError(f"{where}, column {column!r} must be a number, or empty; got {str(cell)[:40]!r}")
    if not abs(float(cell)) <= LARGEST:
        raise ValueError(f"{where}, column {column!r} must be finite, and at most {LARGEST:g} in size; got {cell}")
    return float(cell)


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    return cell is None or cell != cell  # NaN


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
