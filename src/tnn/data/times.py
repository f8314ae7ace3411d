"""Times of series: numbers, dates and months at regular steps, checked and continued."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

Moment = int | float | datetime
TOLERANCE = 1e-6  # of a step, between times that are numbers with a fraction
MONTH = re.compile(r"\d{4}-\d\d")
EXAMPLES = "a number, a date such as 2024-01-31 or a time such as 2024-01-31 15:00"


def parse_time(cell: Any) -> Moment:
    """A number, or a date in the form of ISO 8601: a day, a month, or a day and a time.

    >>> from tnn.data.times import parse_time
    >>> parse_time("7"), parse_time("2024-01-31 15:00"), parse_time("2024-02")
    (7, datetime.datetime(2024, 1, 31, 15, 0), datetime.datetime(2024, 2, 1, 0, 0))
    """
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime.combine(cell, time())
    text = str(cell).strip()
    for parse in (int, float, _parse_date):
        try:
            moment = parse(text)
        except ValueError:
            continue
        if isinstance(moment, datetime) or math.isfinite(moment):
            return moment
    raise ValueError(f"a time must be {EXAMPLES}; got {cell!r}")


def _parse_date(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}-01" if MONTH.fullmatch(text) else text)


def format_time(moment: Moment, like: Any) -> Any:
    """A time as another one was written in its table.

    >>> from datetime import datetime
    >>> from tnn.data.times import format_time
    >>> format_time(datetime(2024, 2, 1), "2024-01-31"), format_time(8, "7")
    ('2024-02-01', 8)
    """
    if not isinstance(moment, datetime):
        return moment
    if type(like) is date:
        return moment.date().isoformat()
    text = like.strip() if isinstance(like, str) else ""
    if MONTH.fullmatch(text):
        return f"{moment:%Y-%m}"
    if len(text) == len("2024-01-31"):
        return moment.date().isoformat()
    precision = "minutes" if len(text) == len("2024-01-31 15:00") else "auto"
    return moment.isoformat(" " if " " in text else "T", precision)


@dataclass(frozen=True)
class Step:
    """From one time to the next: a number, a time span, or a number of months."""

    size: Any
    months: bool = False

    def after(self, moment: Moment, count: int) -> Moment:
        """The time of `count` steps later.

        >>> from datetime import datetime
        >>> from tnn.data.times import Step
        >>> Step(1, months=True).after(datetime(2024, 11, 1), 3)
        datetime.datetime(2025, 2, 1, 0, 0)
        """
        if not self.months:
            return moment + count * self.size
        assert isinstance(moment, datetime)
        year, month = divmod(_month(moment) + count * self.size, 12)
        if _ends_month(moment):  # the last day of each month
            following = moment.replace(year=year + (month == 11), month=(month + 1) % 12 + 1, day=1)
            return following - timedelta(days=1)
        return moment.replace(year=year, month=month + 1)

    def __str__(self) -> str:
        return f"{self.size} {'month' if self.size == 1 else 'months'}" if self.months else str(self.size)


def regular_step(times: Sequence[Moment], rows: Sequence[int]) -> Step | None:
    """The step between times that ascend regularly; None of a single time. Otherwise a ValueError that names the row.

    >>> from datetime import datetime
    >>> from tnn.data.times import regular_step
    >>> str(regular_step([datetime(2024, 1, 31), datetime(2024, 2, 29), datetime(2024, 3, 31)], [1, 2, 3]))
    '1 month'
    >>> regular_step([1, 2, 5, 6], [1, 2, 3, 4])
    Traceback (most recent call last):
    ValueError: row 3: the time 5 is 3 after that of the row before, and a step is 1: fill the gap with rows ...
    """
    _check_order(times, rows)
    if len(times) < 2:
        return None
    months = _are_monthly(times)
    step = Step(Counter(_differences(times, months)).most_common(1)[0][0], months)
    for index, difference in enumerate(_differences(times, months), start=1):
        if not _equal(difference, step.size):
            row, moment = rows[index], times[index]
            gap = f"the time {moment} is {Step(difference, months)} after that of the row before, and a step is {step}"
            advice = "fill the gap with rows whose cells are empty, or do without data.time_column"
            raise ValueError(f"row {row}: {gap}: {advice}")
    return step


def _differences(times: Sequence[Any], months: bool) -> Iterator[Any]:
    ordinals = map(_month, times) if months else times
    return (after - before for before, after in pairwise(ordinals))


def _check_order(times: Sequence[Moment], rows: Sequence[int]) -> None:
    for index in range(1, len(times)):
        before, moment, row = times[index - 1], times[index], rows[index]
        try:
            ascends, same = moment > before, moment == before  # type: ignore[operator]
        except TypeError:
            raise ValueError(f"row {row}: the time {moment} cannot be compared with {before}") from None
        if same:
            advice = "a table with several series needs data.series_column"
            raise ValueError(f"row {row}: the time {moment} is that of row {rows[index - 1]} too; {advice}")
        if not ascends:
            raise ValueError(f"row {row}: the time {moment} comes after {before}: sort the rows by time")


def _are_monthly(times: Sequence[Moment]) -> bool:
    """Whether all times are on one day of their month, or on its last, at one time of the day."""
    dates = [moment for moment in times if isinstance(moment, datetime)]
    if len(dates) < len(times):
        return False
    same_day = len({moment.day for moment in dates}) == 1 or all(map(_ends_month, dates))
    same_time = len({moment.timetz() for moment in dates}) == 1
    return same_day and same_time and len({*map(_month, dates)}) == len(dates)


def _month(moment: datetime) -> int:
    return 12 * moment.year + moment.month - 1


def _ends_month(moment: datetime) -> bool:
    return (moment + timedelta(days=1)).day == 1


def _equal(a: Any, b: Any) -> bool:
    return bool(abs(a - b) <= TOLERANCE * abs(b)) if isinstance(b, float) else bool(a == b)
