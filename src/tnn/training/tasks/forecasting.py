"""Forecasting: the next values of series in a table, with intervals."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import PositiveInt, field_validator, model_validator
from torch.utils.data import default_collate

from tnn import models
from tnn.data.series import Columns, Series, find_targets, read_series
from tnn.data.tables import WHOLE, Table, open_tables
from tnn.data.windows import (
    SeriesWindows,
    observed_mean_and_std,
    recent_window,
    split_in_time,
    window_at,
)
from tnn.models.configuration import check_columns
from tnn.training.fingerprints import fingerprint
from tnn.training.forecasts import compare, model_forecaster
from tnn.training.schema import Recipe, Section
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder, load_head, new_model, preset_config
from tnn.training.tasks.task import EvaluationOptions, PredictionOptions, Row, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel

STANDARD_INPUT = "-"
DIGITS = 8  # of a printed forecast
FROM_DATA = ("horizon", "targets", "known", "known_mean", "known_std")  # fields that the section `data` sets


class SeriesData(Section):
    """Series in a table. docs/your-series.md explains each key."""

    table: str
    target: tuple[str, ...] = ()  # columns to forecast; by default all columns of numbers that are nothing else
    known: tuple[str, ...] = ()  # covariates that are known in advance
    time_column: str | None = None
    series_column: str | None = None  # the name of the series of a row, in a table with several
    context: PositiveInt = 192  # values before the first forecast
    horizon: PositiveInt = 24  # values that are forecast
    origins: PositiveInt = 48  # of the forecasts in a training example, one after the other; fewer in a short series
    season: PositiveInt = 1  # of the seasonal naive forecast to compare with; 1: the last value

    @field_validator("target", "known", mode="before")
    @classmethod
    def _check(cls, names: Any) -> Any:
        names = [names] if isinstance(names, str) else names
        try:
            check_columns("the columns", names)
        except TypeError as error:
            raise ValueError(str(error)) from None
        return names

    @property
    def columns(self) -> Columns:
        return Columns(self.target, self.known, self.time_column, self.series_column)


class ForecastingRecipe(Recipe):
    data: SeriesData

    @model_validator(mode="after")
    def _check(self) -> "ForecastingRecipe":
        for name in FROM_DATA:
            if name in self.model.changes:
                raise ValueError(f"model.{name} is set by the keys of data")
        check_season(self.data)
        return self


def check_season(data: SeriesData) -> None:
    if data.season > data.context:
        raise ValueError(f"data.season must be at most {data.context}, the context; got {data.season}")


class Parts(NamedTuple):
    """Windows of the parts of all series in time."""

    train: SeriesWindows
    validation: SeriesWindows
    test: SeriesWindows


class ForecastRow(dict[str, Any]):
    """A row of a forecast, with the values that it continues, for the figure."""

    def __init__(self, row: Row, past: Any):
        super().__init__(row)
        self.past = past


@register_task("forecasting")
class Forecasting(Task[ForecastingRecipe]):
    """Quantiles of the next values of each series."""

    recipe_class = ForecastingRecipe

    places = frozenset({"data.table"})
    resumable_keys = frozenset({"data.season"})

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForForecasting,)

    # --- training

    def build(self, recipe: ForecastingRecipe) -> TrainingSetup:
        table = _open(recipe.data.table)
        targets = find_targets(table, recipe.data.columns)
        series = _read(table, recipe.data, targets)
        parts = split_windows(series, recipe.data, recipe.data.origins)
        changes = {**recipe.model.changes, **_config_of_data(recipe.data, targets, series)}
        counts = f"{len(series):,} series, {sum(map(len, series)):,} rows of {len(targets)} columns"
        return TrainingSetup(
            lambda: _make_model(recipe, changes),
            parts.train,
            parts.validation,
            default_collate,
            data_summary=f"{len(parts.train):,} windows of {counts}",
            data_fingerprint=lambda: fingerprint([[one.name, one.values, one.known] for one in series], targets),
        )

    # --- evaluation

    def evaluate(self, folder: Path, model: Any, recipe: ForecastingRecipe | None, options: EvaluationOptions) -> str:
        if options.stream or options.split == "train":
            raise ValueError(
                "forecasts are scored on the test part or with --split validation; --stream does not apply"
            )
        data = _data_of(folder, recipe)
        if options.source is not None:
            data = data.model_copy(update={"table": options.source})
        if options.length is not None:
            data = data.model_copy(update={"context": options.length})
        check_season(data)
        series = _read(_open(data.table), data, model.config.targets)
        parts = split_windows(series, data, recent=data.origins)
        windows = parts.validation if options.split == "validation" else parts.test
        return compare(model, (parts.train, parts.validation), windows, data.season)

    # --- prediction

    def predict(
        self, folder: Path, model: Any, recipe: ForecastingRecipe | None, source: str, options: PredictionOptions
    ) -> Iterator[Row]:
        data, most = _data_of(folder, recipe), model.config.horizon
        horizon = most if options.horizon is None else options.horizon
        if horizon > most:
            raise ValueError(f"horizon must be at most {most}, the horizon of the training; got {horizon}")
        with _opened(source) as table:
            series = _read(table, data, model.config.targets)
        for one in series:
            _check_continuable(one, data, model.config)
        enough = data.context + data.origins
        for (length, has_past), group in groupby(series, lambda one: (min(len(one), data.context), len(one) >= enough)):
            while batch := list(islice(group, options.batch_size)):
                quantiles = _forecast(folder, model, batch, length, data.origins if has_past else 0)
                for one, forecast in zip(batch, quantiles, strict=True):
                    yield from _rows(model.config, data, one, forecast[:horizon])

    def draw_predictions(self, rows: Sequence[Row]) -> "Figure":
        from tnn.training.forecast_figure import draw_forecasts

        return draw_forecasts(rows)

    # --- description

    def describe(self, recipe: ForecastingRecipe) -> dict[str, Any]:
        data = recipe.data
        rows: dict[str, Any] = {"data": data.table}
        if data.target:
            rows["targets"] = ", ".join(data.target)
        if data.known:
            rows["known"] = ", ".join(data.known)
        return rows | {"context": data.context, "horizon": data.horizon}

    def tokens_per_example(self, recipe: ForecastingRecipe, config: Any) -> int:
        return recipe.data.context + recipe.data.origins - 1


def _data_of(folder: Path, recipe: ForecastingRecipe | None) -> SeriesData:
    if recipe is None:
        raise ValueError(f"{folder} has no recipe of a forecasting task, so the columns of a table are not known")
    return recipe.data


def _open(source: str) -> Table:
    tables = open_tables(source)
    if len(tables) > 1:
        raise ValueError(f"{source} must be one table, which is split in time; it has {', '.join(tables)}")
    return tables.get(WHOLE) or next(iter(tables.values()))


@contextmanager
def _opened(source: str) -> Iterator[Table]:
    """The table of a file, or of standard input: JSON lines if it begins with a brace, else CSV."""
    if source != STANDARD_INPUT:
        yield _open(source)
        return
    content = sys.stdin.buffer.read()
    name = "stdin.jsonl" if content.lstrip().startswith(b"{") else "stdin.csv"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        yield _open(str(Path(folder) / name))


def _read(table: Table, data: SeriesData, targets: Sequence[str]) -> list[Series]:
    columns = data.columns
    return read_series(table, Columns(tuple(targets), columns.known, columns.time, columns.series))


def split_windows(series: Sequence[Series], data: SeriesData, origins: int = 1, recent: int = 0) -> Parts:
    """The windows of all series. Those that train have several origins, as far as the shortest series allows it.

    Those that do not train have the recent past before them if all series are long enough.
    """
    splits = [split_in_time(len(one), data.horizon) for one in series]
    shortest = min(range(len(series)), key=lambda number: splits[number].train)
    spare = splits[shortest].train - data.context - data.horizon
    if spare < 0:
        name = f"series {series[shortest].name!r}" if series[shortest].name else data.table
        needed = f"{data.context} + {data.horizon} rows, data.context and data.horizon, besides validation and test"
        got = f"it has {len(series[shortest]):,} rows, and {splits[shortest].train:,} of them are left for training"
        raise ValueError(f"{name} is too short: it must have {needed}; {got}")

    recent = recent if recent <= spare + data.horizon else 0

    def windows(parts: list[tuple[int, int]], origins: int = 1, recent: int = 0) -> SeriesWindows:
        sizes = {"context": data.context, "horizon": data.horizon, "origins": origins, "recent": recent}
        return SeriesWindows(series, parts, **sizes)

    return Parts(
        windows([(0, split.train) for split in splits], min(origins, spare + 1)),
        windows([(split.train, split.validation) for split in splits], recent=recent),
        windows([(split.validation, split.test) for split in splits], recent=recent),
    )


def _config_of_data(data: SeriesData, targets: Sequence[str], series: Sequence[Series]) -> dict[str, Any]:
    """Fields of the configuration that follow from the data: covariates are normalised as in the training part."""
    fields: dict[str, Any] = {"horizon": data.horizon, "targets": list(targets), "known": list(data.known)}
    if data.known:
        train = [one.known[: split_in_time(len(one), data.horizon).train] for one in series]
        fields["known_mean"], fields["known_std"] = observed_mean_and_std(train)
    return fields


def _make_model(recipe: ForecastingRecipe, changes: dict[str, Any]) -> "PreTrainedModel":
    if recipe.model.start_from is not None:
        return load_head(models.TNNForForecasting, checked_model_folder(recipe.model.start_from), changes)
    assert recipe.model.preset is not None
    config = preset_config(recipe.model.preset, models.TNNSeriesConfig, "a model of series", changes)
    return new_model(models.TNNForForecasting, config)


def _check_continuable(series: Series, data: SeriesData, config: Any) -> None:
    """Raises a ValueError if there is too little to forecast from."""
    name, horizon = f"series {series.name!r}" if series.name else "the series", config.horizon
    if len(series) < horizon:
        raise ValueError(f"{name} must have at least {horizon} rows, as many as are forecast; got {len(series)}")
    for target, values in zip(config.targets, series.values[-data.context :].T, strict=True):
        if np.isnan(values).all():
            raise ValueError(f"{name} must have a value in its last {len(values)} rows; column {target!r} has none")
    future = len(series.known) - len(series)
    if data.known and future < horizon:
        wanted = f"{horizon} rows after its last value, with the covariates of data.known and empty targets"
        raise ValueError(f"{name} must have {wanted}; got {future}")


def _forecast(folder: Path, model: Any, batch: Sequence[Series], length: int, recent: int) -> Any:
    """(series, horizon, targets, quantiles), from the last `length` values of each series."""
    horizon, windows = model.config.horizon, []
    for one in batch:
        window = window_at(one, len(one), length, horizon)
        del window["labels"]
        windows.append(window | (recent_window(one, len(one), length, horizon, recent) if recent else {}))
    quantiles = model_forecaster(model)({name: np.stack([one[name] for one in windows]) for name in windows[0]})
    if not np.isfinite(quantiles).all():
        raise ArithmeticError(f"forecasts of {folder} are NaN or infinite")
    return quantiles


def _rows(config: Any, data: SeriesData, series: Series, forecast: Any) -> Iterator[Row]:
    """forecast (horizon, targets, quantiles) -> a row for each step of each target."""
    levels = [f"{level:g}" for level in config.quantiles]
    for column, target in enumerate(config.targets):
        for step, values in enumerate(forecast[:, column], start=1):
            quantiles = {level: _rounded(value) for level, value in zip(levels, values, strict=True)}
            row: Row = {"series": series.name} if data.series_column is not None else {}
            if data.time_column is not None:
                row["time"] = series.time_after(step)
            row |= {"step": step, "target": target, "median": quantiles["0.5"]}
            row |= {"lower": quantiles[levels[0]], "upper": quantiles[levels[-1]], "quantiles": quantiles}
            yield ForecastRow(row, series.values[-data.context :, column])


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
