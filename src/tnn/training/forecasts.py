"""Forecasts on rolling origins, beside those of a seasonal naive forecast and of a linear autoregression."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate

from tnn.data.windows import SeriesWindows
from tnn.models.series import location_and_scale, normalise

Array = NDArray[np.float64]
Forecaster = Callable[[dict[str, Array]], Array]  # windows -> quantiles (batch, horizon, targets, quantiles)
Windows = ConcatDataset[dict[str, Any]] | Subset[dict[str, Any]]
MOST_WINDOWS = 5_000
RIDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
AT_ONCE = 256  # windows


class Scores(NamedTuple):
    """Of each target, and of all targets together in the last entry; NaN where no value is known."""

    mae: Array  # of the median
    weighted_quantile_loss: Array  # the pinball loss of all quantiles, twice, over the sum of the sizes of the values
    coverage: Array  # the share of values between the lowest and the highest quantile


def compare(model: Any, parts: Sequence[SeriesWindows], windows: SeriesWindows, season: int) -> str:
    """A table of the scores of a model on `windows`, beside those of two forecasts that learn from other `parts`."""
    levels = model.config.quantiles
    train, validation, test = (thinned(part) for part in (*parts, windows))
    learned: Windows = ConcatDataset([train, validation])
    naive = SeasonalNaive(season, model.config.horizon)
    forecasters: dict[str, Forecaster] = {
        "this model": model_forecaster(model),
        "seasonal naive" if season > 1 else "last value": naive.calibrate(learned, levels),
        "linear autoregression": LinearAutoregression(model.config).fit(train, validation).calibrate(learned, levels),
    }
    return to_table({name: score(one, test, levels) for name, one in forecasters.items()}, model.config, len(test))


def to_table(scores: Mapping[str, Scores], config: Any, windows: int) -> str:
    """One line per target and forecast, and with several targets, lines of all together.

    >>> import numpy as np
    >>> from tnn import TNNSeriesConfig
    >>> from tnn.training.forecasts import Scores, to_table
    >>> both = Scores(np.array([0.5, 0.5]), np.array([0.25, 0.25]), np.array([0.9, 0.9]))
    >>> print(to_table({"last value": both}, TNNSeriesConfig(), windows=7))
    target  forecast         MAE  weighted quantile loss  coverage of 90%
    value   last value       0.5                    0.25            90.0%
    7 forecasts of 24 steps ...
    """
    share = config.quantiles[-1] - config.quantiles[0]
    names = [*config.targets, *(["all"] if len(config.targets) > 1 else [])]
    left, middle = max(map(len, ["target", *names])), max(map(len, ["forecast", *scores]))
    lines = [f"{'target':{left}}  {'forecast':{middle}}  {'MAE':>8}  weighted quantile loss  coverage of {share:.0%}"]
    for place, target in enumerate(names):
        for name, score in scores.items():
            mae, loss, coverage = (values[place] for values in score)
            lines.append(f"{target:{left}}  {name:{middle}}  {mae:8.4g}  {loss:22.4g}  {coverage:15.1%}")
    lines.append(f"{windows:,} forecasts of {config.horizon} steps of values that were not trained on")
    return "\n".join(lines)


def score(forecaster: Forecaster, windows: Windows, levels: Sequence[float]) -> Scores:
    """How far the forecasts are from the values of all windows."""
    sums = sum(_sums(forecaster(window), window["labels"], np.array(levels)) for window in batches(windows))
    assert isinstance(sums, np.ndarray)  # (5, targets): count, errors, losses, sizes, values that are covered
    count, errors, losses, sizes, covered = np.concatenate([sums, sums.sum(1, keepdims=True)], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return Scores(errors / count, 2 * losses / sizes, covered / count)


def thinned(windows: SeriesWindows, most: int = MOST_WINDOWS) -> Subset[dict[str, Any]]:
    """Evenly spaced ones, at most so many."""
    return Subset(windows, range(0, len(windows), -(-len(windows) // most) or 1))


def batches(windows: Windows, size: int = AT_ONCE) -> Iterator[dict[str, Array]]:
    """All windows as arrays, some at a time."""
    for batch in DataLoader(windows, batch_size=size, collate_fn=default_collate):
        yield {name: value.numpy() for name, value in batch.items()}


def _sums(quantiles: Array, labels: Array, levels: Array) -> Array:
    observed = ~np.isnan(labels)
    values = np.where(observed, labels, 0)
    error = values[..., None] - quantiles  # (batch, horizon, targets, quantiles)
    pinball = np.maximum(levels * error, (levels - 1) * error).mean(-1)
    median = np.abs(error[..., list(levels).index(0.5)])
    covered = (quantiles[..., 0] <= values) & (values <= quantiles[..., -1])
    each = [observed, median, pinball, np.abs(values), covered]
    return np.stack([np.where(observed, part, 0).sum((0, 1)) for part in each])


def model_forecaster(model: Any) -> Forecaster:
    """The forecasts of a model; its intervals are calibrated if a window has the recent past, see SeriesWindows."""

    @torch.inference_mode()
    def run(window: dict[str, Array], prefix: str = "", **names: str) -> Array:
        names = {name: name for name in ("values", "known") if prefix + name in window} | names
        inputs = {name: torch.from_numpy(window[prefix + name]).to(model.device) for name in names}
        quantiles: Array = model(**inputs).quantiles.cpu().numpy()
        return quantiles

    def forecast(window: dict[str, Array]) -> Array:
        quantiles = run(window)[:, 0]
        if "recent_values" not in window:
            return quantiles
        recent = run(window, "recent_", labels="labels")
        return calibrated(quantiles, recent, window["recent_labels"], model.config.quantiles)

    return forecast


def calibrated(quantiles: Array, recent: Array, labels: Array, levels: Sequence[float]) -> Array:
    """Intervals as wide as those of recent forecasts should have been: conformalized quantile regression.

    (Romano, Patterson and Candes, 2019.) Each interval between the quantiles p and 1 - p grows or shrinks by the share
    of its width with which the recent ones would have held as many values as they should. The median stays, and so
    do all quantiles if one of them has no partner.

    Args:
        quantiles: (batch, horizon, targets, quantiles), of the forecasts.
        recent: (batch, origins, horizon, targets, quantiles), of forecasts made before.
        labels: (batch, origins + horizon - 1, targets), what came then; NaN where it is missing, or not yet known.
        levels: of the quantiles.

    >>> import numpy as np
    >>> from tnn.training.forecasts import calibrated
    >>> recent = np.tile([-1.0, 0.0, 1.0], (1, 3, 1, 1, 1))
    >>> calibrated(recent[:, 0], recent, np.array([[[2.0], [2.0], [-2.0]]]), [0.25, 0.5, 0.75]).tolist()
    [[[[-2.0, 0.0, 2.0]]]]
    """
    if not np.allclose(np.add(levels, levels[::-1]), 1):
        return quantiles  # not all are ends of intervals
    values = np.lib.stride_tricks.sliding_window_view(
        labels, quantiles.shape[1], 1
    )  # (batch, origins, targets, horizon)
    values = np.moveaxis(values, -1, 2)
    middle = len(levels) // 2
    result, median = quantiles.copy(), quantiles[..., middle]
    for low in range(middle):
        high = -1 - low
        growth = _growth(recent[..., low], recent[..., high], values, levels[high] - levels[low])[:, None]
        more = growth * (quantiles[..., high] - quantiles[..., low])
        result[..., low] = np.minimum(quantiles[..., low] - more, median)
        result[..., high] = np.maximum(quantiles[..., high] + more, median)
    return np.sort(result, -1)


def _growth(low: Array, high: Array, values: Array, share: float) -> Array:
    """(batch, targets): with so much more of their widths at both ends, intervals hold this share of the values."""
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = np.maximum(low - values, values - high) / (high - low)
    missed[~np.isfinite(missed)] = np.nan
    missed = np.where(np.isnan(missed).all((1, 2), keepdims=True), 0, missed)  # nothing is known: no growth
    growth: Array = np.nanquantile(missed, share, axis=(1, 2))
    return growth


class PointForecaster:
    """A forecast of one number, with the quantiles of its errors on other windows around it."""

    errors: Any = 0.0  # (horizon, targets, quantiles), of normalised values

    def point(self, window: dict[str, Array]) -> Array:
        """(batch, horizon, targets), of normalised values."""
        raise NotImplementedError

    def __call__(self, window: dict[str, Array]) -> Array:
        loc, scale = _normal(window)
        return (self.point(window)[..., None] + self.errors) * scale[..., None] + loc[..., None]

    def calibrate(self, windows: Windows, levels: Sequence[float]) -> "PointForecaster":
        pairs = [(self.point(window), _normalised(window, "labels")) for window in batches(windows)]
        errors = np.concatenate([labels - point for point, labels in pairs])  # (windows, horizon, targets)
        missing = np.isnan(errors).all(0)
        errors[:, missing] = 0
        self.errors = np.moveaxis(np.nanquantile(errors, levels, axis=0), 0, -1)
        self.errors[..., list(levels).index(0.5)] = 0  # the median is the forecast itself
        return self


class SeasonalNaive(PointForecaster):
    """What was one season before; the last value that is known where that is missing."""

    def __init__(self, season: int, horizon: int):
        self.season, self.horizon = season, horizon

    def point(self, window: dict[str, Array]) -> Array:
        steps = np.arange(self.horizon) % self.season - self.season
        return _filled(_normalised(window))[:, steps]


class LinearAutoregression(PointForecaster):
    """Each step from the same window by ridge regression, one for each target; known covariates are inputs too."""

    def __init__(self, config: Any):
        self.mean, self.std = np.array(config.known_mean), np.array(config.known_std)

    def fit(self, train: Windows, validation: Windows) -> "LinearAutoregression":
        """The ridge is the one that does best on `validation`."""
        inputs, outputs = self._examples(train)
        test_inputs, test_outputs = self._examples(validation)
        self.weights = [_best_ridge(inputs[c], outputs[c], test_inputs[c], test_outputs[c]) for c in range(len(inputs))]
        return self

    def point(self, window: dict[str, Array]) -> Array:
        return np.stack([x @ w for x, w in zip(self._features(window), self.weights, strict=True)], -1)

    def _examples(self, windows: Windows) -> tuple[list[Array], list[Array]]:
        """For each target, (windows, features) and (windows, horizon)."""
        parts = [(self._features(window), _normalised(window, "labels")) for window in batches(windows)]
        inputs = [np.concatenate(columns) for columns in zip(*(features for features, _ in parts), strict=True)]
        outputs = np.concatenate([labels for _, labels in parts])
        return inputs, [outputs[..., c] for c in range(outputs.shape[-1])]

    def _features(self, window: dict[str, Array]) -> list[Array]:
        """For each target, (batch, features)."""
        values = np.nan_to_num(_normalised(window))
        batch, context, count = values.shape
        more = [np.ones((batch, 1))]
        if "known" in window:
            more.append(((window["known"][:, context:] - self.mean) / self.std).reshape(batch, -1))
        return [np.concatenate([values[..., c], *more], 1) for c in range(count)]


def _best_ridge(x: Array, y: Array, test_x: Array, test_y: Array) -> Array:
    candidates = [_ridge(x, y, strength) for strength in RIDGES]
    losses = [np.nanmean(np.append((test_x @ w - test_y) ** 2, 0)) for w in candidates]
    return candidates[int(np.argmin(losses))]


def _ridge(x: Array, y: Array, strength: float) -> Array:
    """(features, horizon). Steps with the same missing values are solved together."""
    weights = np.zeros((x.shape[1], y.shape[1]))
    patterns, group = np.unique(~np.isnan(y), axis=1, return_inverse=True)
    for number, rows in enumerate(patterns.T):
        steps = group == number
        a, b = x[rows], y[rows][:, steps]
        weights[:, steps] = np.linalg.solve(a.T @ a + strength * np.eye(x.shape[1]), a.T @ b)
    return weights


def _normal(window: dict[str, Array]) -> tuple[Array, Array]:
    loc, scale = location_and_scale(torch.from_numpy(window["values"]))
    return loc.numpy(), scale.numpy()


def _normalised(window: dict[str, Array], part: str = "values") -> Array:
    """NaN where a value is missing, or its column does not change in the window."""
    values, observed = normalise(torch.from_numpy(window[part]), *map(torch.from_numpy, _normal(window)))
    return np.where(observed.numpy(), values.numpy(), np.nan)


def _filled(values: Array) -> Array:
    """(batch, n, targets) with the last known value, or 0, where one is missing."""
    places = np.where(np.isnan(values), 0, np.arange(values.shape[1])[:, None])
    return np.nan_to_num(np.take_along_axis(values, np.maximum.accumulate(places, 1), 1))
