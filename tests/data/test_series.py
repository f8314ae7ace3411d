"""Series from tables: values, gaps, times and covariates, and the windows that are made of them."""

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.series import Columns, Series, find_targets, read_series
from tnn.data.tables import open_tables
from tnn.data.times import format_time, parse_time, regular_step
from tnn.data.windows import SeriesWindows, split_in_time

DAY = Columns(time="day")
numbers = st.floats(-1e9, 1e9) | st.integers(-(10**6), 10**6) | st.none()


def table(tmp_path, text, name="a.csv"):
    (tmp_path / name).write_text(text)
    return open_tables(tmp_path / name)[""]


def read(tmp_path, text, columns=None, name="a.csv"):
    return read_series(table(tmp_path, text, name), columns or Columns())


@given(rows=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_cells_become_values_and_empty_ones_nan(rows, tmp_path_factory):
    rows = [(0.5, -1), *rows]
    text = "x,y\n" + "".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in rows)
    (series,) = read(tmp_path_factory.mktemp("table"), text)
    expected = np.array([[np.nan if v is None else float(v) for v in row] for row in rows])
    np.testing.assert_array_equal(series.values, expected)
    assert (series.name, series.known.shape, series.time_after(1)) == ("", (len(rows), 0), None)


def test_jsonl_with_missing_keys_and_words_for_missing(tmp_path):
    text = '{"x": 1, "note": "a"}\n{"note": "b"}\n{"x": null}\n{"x": "NA"}\n{"x": 2.5}\n'
    (series,) = read(tmp_path, text, name="a.jsonl")
    np.testing.assert_array_equal(series.values[:, 0], [1, np.nan, np.nan, np.nan, 2.5])


def test_parquet_with_times(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    times = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(3)]
    parquet.write_table(pyarrow.table({"t": times, "x": [1.0, None, 3.0]}), tmp_path / "a.parquet")
    (series,) = read_series(open_tables(tmp_path / "a.parquet")[""], Columns(time="t"))
    np.testing.assert_array_equal(series.values[:, 0], [1, np.nan, 3])
    assert series.time_after(2) == "2024-01-01T04:00:00"


def test_several_series_may_be_interleaved(tmp_path):
    text = "day,city,x\n1,Rome,1\n1,Oslo,5\n2,Rome,2\n2,Oslo,6\n3,Oslo,7\n"
    rome, oslo = read(tmp_path, text, Columns(time="day", series="city"))
    assert (rome.name, rome.values.tolist(), rome.time_after(1)) == ("Rome", [[1], [2]], 3)
    assert (oslo.name, oslo.values.tolist(), oslo.time_after(2)) == ("Oslo", [[5], [6], [7]], 5)


def test_rows_after_the_last_target_are_the_future_of_covariates(tmp_path):
    text = "t,x,warm\n1,5,0\n2,,1\n3,6,0\n4,,1\n5,,1\n"
    (series,) = read(tmp_path, text, Columns(known=("warm",), time="t"))
    assert (len(series), series.known[:, 0].tolist(), series.time_after(1)) == (3, [0, 1, 0, 1, 1], 4)
    (alone,) = read(tmp_path, text, Columns(target=("x",), time="t"))
    assert (len(alone), alone.time_after(1)) == (5, 6)  # without covariates, an empty row is a missing value


def test_targets_are_the_columns_of_numbers_that_are_nothing_else(tmp_path):
    made = table(tmp_path, "day,city,x,note,y,warm\n1,Rome,,a,2,0\n2,Rome,5,b,3,1\n")
    assert find_targets(made, Columns(known=("warm",), time="day", series="city")) == ("x", "y")
    assert find_targets(made, Columns(target=("y",))) == ("y",)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("x,y\n1,2\n3,4 kW\n", Columns(), r"a.csv, row 2, column 'y' must be a number, or empty; got '4 kW'$"),
        ("x\n1\ninf\n", Columns(), r"a.csv, row 2, column 'x' must be finite, and at most 1e\+100 in size; got inf$"),
        ("x\n1\n1e200\n", Columns(), r"row 2, column 'x' must be finite"),
        ("x\na\n", Columns(), "has no column of numbers to forecast; it has x$"),
        ("x,y\n1,\n2,\n", Columns(target=("x", "y")), "a.csv: column 'y' has no values$"),
        ("load\n1\n", Columns(target=("laod",)), "data.target: .*a.csv has no column 'laod'; did you mean 'load'"),
        ("load\n1\n", Columns(known=("warm",)), "data.known: .* has no column 'warm'; choose from 'load'"),
        ("load\n1\n", Columns(time="t"), "data.time_column: .* has no column 't'"),
        ("load\n1\n", Columns(target=("load",), series="load"), "'load' is used by data.target already"),
        ("x,k\n1,2\n3,\n", Columns(known=("k",)), "row 2, column 'k': a covariate that is known in advance must not"),
        ("s,x\na,2\n,3\n", Columns(series="s"), "row 2: the name of the series is missing, in column 's'"),
        ("day,x\n1,2\nsoon,3\n", DAY, "row 2, column 'day': a time must be a number, a date such as .*; got 'soon'$"),
        ("day,x\n1,2\n,3\n", DAY, "row 2, column 'day': a time must be a number"),
        ("day,x\n1,2\n2,3\n2,4\n", DAY, "row 3: the time 2 is that of row 2 too; .* needs data.series_column$"),
        ("day,x\n2,2\n1,3\n", DAY, "row 2: the time 1 comes after 2: sort the rows by time$"),
        (
            "day,x\n1,2\n2,3\n5,4\n6,4\n",
            DAY,
            "row 3: the time 5 is 3 after that of the row before, and a step is 1: fill",
        ),
        ("day,x\n2024-01-01,2\n2024-01-02,3\n2024-01-04,4\n2024-01-05,5\n", DAY, "row 3: the time 2024-01-04 .*2 days"),
        (
            "day,x\n2024-01,2\n2024-02,3\n2024-04,4\n2024-05,5\n",
            DAY,
            "row 3: .* is 2 months after .* a step is 1 month:",
        ),
        ("day,x\n2024-01-01,2\n2024-01-02T00:00Z,3\n", DAY, "row 2: the time .* cannot be compared with 2024-01-01"),
    ],
)
def test_bad_tables_are_told_in_one_line(text, columns, message, tmp_path):
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, text, columns)
    assert "\n" not in str(error.value)


def test_rows_of_one_series_are_named_by_their_number_in_the_table(tmp_path):
    text = "day,city,x\n1,Rome,1\n1,Oslo,5\n2,Rome,2\n1,Oslo,6\n"
    with pytest.raises(ValueError, match=r"series 'Oslo', row 4: the time 1 is that of row 2 too"):
        read(tmp_path, text, Columns(time="day", series="city"))


STARTS = st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1)).map(lambda moment: moment.replace(microsecond=0))


@given(start=STARTS, minutes=st.integers(1, 20_000), count=st.integers(2, 6), ahead=st.integers(1, 50))
def test_regular_times_go_on(start, minutes, count, ahead):
    step = timedelta(minutes=minutes)
    times = [start + i * step for i in range(count + ahead)]
    found = regular_step(times[:count], range(1, count + 1))
    if not found.months:  # a step from one day of a month to the same one is a month
        assert found.after(times[count - 1], ahead) == times[-1]
    text = str(times[0])
    assert parse_time(text) == times[0] == parse_time(format_time(times[0], text))


@given(month=st.integers(1, 12), step=st.sampled_from([1, 3, 12]), ahead=st.integers(1, 30), last=st.booleans())
def test_months_go_on(month, step, ahead, last):
    def time_of(count):
        following = datetime(2000 + (month + count) // 12, (month + count) % 12 + 1, 1)
        return following - timedelta(days=1) if last else following

    times = [time_of(i * step) for i in range(4)]
    found = regular_step(times, range(1, 5))
    assert (found.months, found.size) == (True, step)
    assert found.after(times[-1], ahead) == time_of((3 + ahead) * step)


def test_times_are_written_as_in_the_table(tmp_path):
    for first, second, third in [
        ("2024-01", "2024-02", "2024-03"),
        ("2024-02-29", "2024-03-31", "2024-04-30"),
        ("2024-01-31 22:00", "2024-01-31 23:00", "2024-02-01 00:00"),
        ("2024-01-31T22:00:00Z", "2024-01-31T23:00:00Z", "2024-02-01T00:00:00+00:00"),
        ("7", "9", 11),
        ("0.1", "0.2", pytest.approx(0.3)),
    ]:
        (series,) = read(tmp_path, f"day,x\n{first},1\n{second},2\n", DAY)
        assert series.time_after(1) == third
    (single,) = read(tmp_path, "day,x\n2024-01-01,1\n", DAY)
    assert single.time_after(1) is None


def test_numbers_with_fractions_are_regular(tmp_path):
    text = "day,x\n" + "".join(f"{0.1 * i},{i}\n" for i in range(50))
    assert read(tmp_path, text, DAY)[0].time_after(1) == pytest.approx(5.0)


# --- windows


def made(length, known=0):
    return Series(
        "", np.arange(float(length))[:, None], np.arange(float(known))[:, None] if known else np.empty((0, 0))
    )


@given(length=st.integers(1, 400), horizon=st.integers(1, 50))
def test_parts_of_a_series(length, horizon):
    train, validation, test = split_in_time(length, horizon)
    assert test == length
    assert test - validation == validation - train == max(horizon, round(0.1 * length))


@given(
    lengths=st.lists(st.integers(5, 40), min_size=1, max_size=3),
    context=st.integers(1, 6),
    horizon=st.integers(1, 4),
    origins=st.integers(1, 4),
    first=st.integers(0, 10),
)
def test_windows_hold_each_place_once(lengths, context, horizon, origins, first):
    parts = [(first, length) for length in lengths]
    windows = SeriesWindows([made(n) for n in lengths], parts, context=context, horizon=horizon, origins=origins)
    starts = [
        row
        for length in lengths
        for row in range(max(first, context), length + 1)
        if row + origins - 1 + horizon <= length
    ]
    assert len(windows) == len(starts)
    for window, row in zip(map(windows.__getitem__, range(len(windows))), starts, strict=True):
        assert window["values"][:, 0].tolist() == list(range(row - context, row))
        assert window["labels"][:, 0].tolist() == list(range(row, row + origins - 1 + horizon))
    with pytest.raises(IndexError, match="is not one of 0 to"):
        windows[len(windows)]


def test_covariates_go_on_to_the_end_of_the_labels():
    windows = SeriesWindows([made(10, known=12)], [(6, 10)], context=3, horizon=2)
    assert windows[0]["known"][:, 0].tolist() == [3, 4, 5, 6, 7]
    assert "known" not in SeriesWindows([made(10)], [(6, 10)], context=3, horizon=2)[0]


@given(context=st.integers(1, 6), horizon=st.integers(1, 4), recent=st.integers(1, 5))
def test_the_recent_past_ends_before_the_forecast(context, horizon, recent):
    windows = SeriesWindows([made(40, known=40)], [(3, 40)], context=context, horizon=horizon, recent=recent)
    first = max(3, context + recent)
    assert len(windows) == 40 - first - horizon + 1
    for row, window in enumerate(map(windows.__getitem__, range(len(windows))), start=first):
        assert window["labels"][0].item() == row
        before = row - recent
        assert window["recent_values"][:, 0].tolist() == [*range(before - context, before)]
        assert window["recent_known"][:, 0].tolist() == [*range(before - context, row - 1 + horizon)]
        labels = window["recent_labels"][:, 0]
        assert labels[:recent].tolist() == [*range(before, row)]
        assert len(labels) == recent + horizon - 1
        assert labels[recent:].isnan().all()


def test_an_empty_table_and_a_file_of_bytes(tmp_path):
    with pytest.raises(ValueError, match="has no rows"):
        table(tmp_path, "x\n")
    (tmp_path / "b.csv").write_bytes(b"x\n1\n\xff\n")
    with pytest.raises(ValueError, match="is not a UTF-8 text"):
        read_series(open_tables(tmp_path / "b.csv")[""], Columns())
