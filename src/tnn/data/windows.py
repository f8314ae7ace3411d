"""Windows of series: what a forecast is made from, and the values that follow."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn.data.series import Series

TEST_SHARE = 0.1  # of a series, and as much for validation


class Split(NamedTuple):
    """Where the parts of a series end."""

    train: int
    validation: int
    test: int


def split_in_time(length: int, horizon: int) -> Split:
    """The last 10% of a series, at least a horizon, are for testing, and as much before them for validation.

    >>> from tnn.data.windows import split_in_time
    >>> split_in_time(1000, horizon=24)
    Split(train=800, validation=900, test=1000)
    """
    part = max(horizon, round(TEST_SHARE * length))
    return Split(length - 2 * part, length - part, length)


class SeriesWindows(Dataset[dict[str, Tensor]]):
    """Examples for TNNForForecasting: the `context` values up to an origin, and the `horizon` values after it.

    With several `origins`, the labels are longer: each value up to `horizon` before their end is one. `parts` says for
    each series between which rows the labels lie; what is before them is context. Every row is a first origin.

    With `recent`, there is also the example of so many origins before the first one, under names such as
    `recent_values`: forecasts like this one, with as much of their labels as is known by now.

    >>> import numpy as np
    >>> from tnn.data.series import Series
    >>> from tnn.data.windows import SeriesWindows
    >>> windows = SeriesWindows([Series("", np.arange(10.0)[:, None])], [(4, 10)], context=3, horizon=2)
    >>> len(windows), windows[0]["values"].tolist(), windows[0]["labels"].tolist()
    (5, [[1.0], [2.0], [3.0]], [[4.0], [5.0]])
    """

    def __init__(
        self,
        series: Sequence[Series],
        parts: Sequence[tuple[int, int]],
        *,
        context: int,
        horizon: int,
        origins: int = 1,
        recent: int = 0,
    ):
        self.series, self.context, self.horizon = series, context, horizon
        self.origins, self.recent = origins, recent
        self.first = [max(first, context + recent) for first, _ in parts]  # row of the first value to be forecast
        counts = [last - horizon - origins + 2 - first for first, (_, last) in zip(self.first, parts, strict=True)]
        self.ends = np.maximum(counts, 0).cumsum()

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not one of 0 to {len(self) - 1}")
        number = int(np.searchsorted(self.ends, index, side="right"))
        place = index - (int(self.ends[number - 1]) if number else 0)
        return self._window(self.series[number], self.first[number] + place)

    def _window(self, series: Series, row: int) -> dict[str, Tensor]:
        """The example whose first origin is the value before `row`."""
        window = window_at(series, row, self.context, self.horizon, self.origins)
        if self.recent:
            window |= recent_window(series, row, self.context, self.horizon, self.recent)
        return {name: torch.from_numpy(values) for name, values in window.items()}


def window_at(series: Series, row: int, context: int, horizon: int, origins: int = 1) -> dict[str, NDArray[np.float64]]:
    """Values before a row, and labels from it on, as far as there are any.

    >>> import numpy as np
    >>> from tnn.data.series import Series
    >>> from tnn.data.windows import window_at
    >>> window_at(Series("", np.arange(9.0)[:, None]), 5, context=2, horizon=3)["labels"].ravel().tolist()
    [5.0, 6.0, 7.0]
    """
    start, end = row - context, row + origins - 1 + horizon
    window = {"values": series.values[start:row], "labels": series.values[row:end]}
    if series.known.shape[1]:
        window["known"] = series.known[start:end]
    return window


def recent_window(series: Series, row: int, context: int, horizon: int, origins: int) -> dict[str, NDArray[np.float64]]:
    """The window of so many origins before `row`, under names that begin with `recent_`; labels from `row` on are NaN.

    >>> import numpy as np
    >>> from tnn.data.series import Series
    >>> from tnn.data.windows import recent_window
    >>> recent_window(Series("", np.arange(9.0)[:, None]), 5, context=2, horizon=3, origins=2)["recent_labels"].ravel()
    array([ 3.,  4., nan, nan])
    """
    window = window_at(series, row - origins, context, horizon, origins)
    known = series.values[row - origins : row]
    unknown = np.full((horizon - 1, known.shape[1]), np.nan)
    window["labels"] = np.concatenate([known, unknown])
    return {f"recent_{name}": values for name, values in window.items()}


def observed_mean_and_std(arrays: Sequence[NDArray[np.float64]]) -> tuple[list[float], list[float]]:
    """Of each column (rows, columns) of all arrays together; the deviation of a constant column is 1.

    >>> import numpy as np
    >>> from tnn.data.windows import observed_mean_and_std
    >>> observed_mean_and_std([np.array([[1.0, 5.0], [3.0, 5.0]])])
    ([2.0, 5.0], [1.0, 1.0])
    """
    rows = np.concatenate(arrays)
    std = rows.std(0)
    return rows.mean(0).tolist(), np.where(std > 0, std, 1.0).tolist()
