"""Forecasts from a table: training, evaluation beside two baselines, prediction, and bad input."""

import csv
import io
import json
from datetime import datetime, timedelta

import numpy as np
import pytest
from typer.testing import CliRunner

from tnn.cli import app
from tnn.data.series import Series
from tnn.data.windows import SeriesWindows
from tnn.models import TNNSeriesConfig
from tnn.training.evaluation import load_model
from tnn.training.forecasts import LinearAutoregression, SeasonalNaive, batches, calibrated, model_forecaster, score
from tnn.training.recipe import load_recipe, load_saved_recipe
from tnn.training.tasks.forecasting import split_windows
from tnn.training.tasks.registry import find_task

LEVELS = TNNSeriesConfig().quantiles
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "rpe_size": 4, "rpe_num_layers": 1}
TINY = [f"model.{name}={value}" for name, value in SIZES.items()]
TINY += ["training.steps=3", "training.batch_size=4", "training.evaluate_every=3", "training.warmup_steps=1"]
TINY += ["data.context=12", "data.horizon=4"]


def run(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def good(*words, stdin=None):
    done = run(*words, stdin=stdin)
    assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"
    return done.stdout


def refused(*words, stdin=None):
    done = run(*words, stdin=stdin)
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "unexpected" not in done.stderr
    return done.stderr.strip()


def write(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def hours(count, start=0):
    return [f"{datetime(2024, 1, 1) + timedelta(hours=start + i):%Y-%m-%d %H:%M}" for i in range(count)]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(table, *changes):
    return good("train", "mini-forecast", f"data.table={table}", *TINY, *changes, "--out", "run")


def build(*changes):
    return find_task("forecasting").build(load_recipe("mini-forecast", [*TINY, *changes]))


@pytest.mark.slow
def test_one_column_from_the_table_to_the_forecast(place):
    write(place / "load.csv", {"time": hours(100), "load": np.arange(100) % 6, "note": ["x"] * 100})
    assert "validation loss" in train("load.csv", "data.time_column=time", "data.season=6")
    lines = good("evaluate", "run").splitlines()
    assert lines[0].split("  ")[-1].strip() == "coverage of 90%"
    assert [line[8:29].strip() for line in lines[1:4]] == ["this model", "seasonal naive", "linear autoregression"]
    assert lines[2].split()[3:5] == ["0", "0"]  # the season repeats exactly
    assert lines[4].startswith("7 forecasts of 4 steps")
    assert good("evaluate", "run", "load.csv", "--split", "validation", "--length", "20") != "\n".join(lines)

    printed = good("predict", "run", "load.csv", "--out", "forecast.csv", "--figure", "forecast.png")
    assert printed == ""
    rows = list(csv.DictReader(io.StringIO((place / "forecast.csv").read_text())))
    assert [row["time"] for row in rows] == hours(4, start=100)
    assert [(row["step"], row["target"]) for row in rows] == [(str(i), "load") for i in range(1, 5)]
    for row in rows:
        quantiles = json.loads(row["quantiles"])
        assert list(quantiles) == ["0.05", "0.1", "0.25", "0.5", "0.75", "0.9", "0.95"]
        assert list(quantiles.values()) == sorted(quantiles.values())
        assert [float(row[name]) for name in ("lower", "median", "upper")] == [
            quantiles[q] for q in ("0.05", "0.5", "0.95")
        ]
    assert (place / "forecast.png").stat().st_size > 5_000

    short = good("predict", "run", "-", "--horizon", "2", stdin=(place / "load.csv").read_text()).splitlines()
    assert [json.loads(line)["step"] for line in short] == [1, 2]
    assert json.loads(short[0])["median"] == float(rows[0]["median"])
    lines = "".join(json.dumps({"time": i, "load": i % 6}) + "\n" for i in range(20))
    assert len(good("predict", "run", "-", stdin=lines).splitlines()) == 4
    assert "run/kernels.png" in good("show", "run", "--length", "16")
    started = ["model.preset=null", "model.start_from=run", "data.time_column=time"]
    assert "the model is in again" in good(
        "train", "mini-forecast", "data.table=load.csv", *TINY, *started, "--out", "again"
    )


@pytest.mark.slow
def test_many_series_of_several_columns_with_covariates_and_missing_values(place):
    series = {"Rome": 90, "Oslo": 70}
    rows = [(day, city) for day in range(90) for city, count in series.items() if day < count]
    columns = {"day": [day for day, _ in rows], "city": [city for _, city in rows]}
    columns |= {"x": ["" if i % 10 == 3 else i % 7 for i in range(len(rows))], "y": [5] * len(rows)}
    columns["warm"] = [day % 2 for day, _ in rows]
    write(place / "cities.csv", columns)
    train("cities.csv", "data.time_column=day", "data.series_column=city", "data.known=warm", "data.target=[x, y]")
    config = json.loads((place / "run" / "config.json").read_text())
    assert (config["targets"], config["known"], config["horizon"]) == (["x", "y"], ["warm"], 4)
    assert config["known_mean"] == [0.5]
    lines = good("evaluate", "run").splitlines()
    assert [line.split()[0] for line in lines[1:10]] == ["x"] * 3 + ["y"] * 3 + ["all"] * 3
    assert [line.split()[-3:-1] for line in lines[4:7]] == [["0", "0"]] * 3  # a constant column

    error = refused("predict", "run", "cities.csv", "--out", "forecast.jsonl")
    assert "series 'Rome' must have 4 rows after its last value, with the covariates of data.known and empty" in error
    assert not (place / "forecast.jsonl").exists()
    with (place / "cities.csv").open("a") as file:
        file.writelines(f"{count + i},{city},,,{i % 2}\n" for city, count in series.items() for i in range(4))
    good("predict", "run", "cities.csv", "--out", "forecast.jsonl", "--figure", "forecast.svg", "--batch-size", "1")
    forecast = [json.loads(line) for line in (place / "forecast.jsonl").read_text().splitlines()]
    assert [(row["series"], row["target"], row["time"]) for row in forecast] == [
        (city, target, count + i) for city, count in series.items() for target in ("x", "y") for i in range(4)
    ]
    assert {row["median"] for row in forecast if row["target"] == "y"} == {5}


@pytest.mark.slow
def test_bad_input_for_a_trained_model(place):
    write(place / "load.csv", {"t": range(60), "load": np.arange(60) % 5})
    train("load.csv", "data.time_column=t")
    write(place / "short.csv", {"t": range(3), "load": range(3)})
    assert "the series must have at least 4 rows, as many as are forecast; got 3" in refused(
        "predict", "run", "short.csv"
    )
    write(place / "other.csv", {"t": range(9), "laod": range(9)})
    assert "has no column 'load'; did you mean 'laod'?" in refused("predict", "run", "other.csv")
    (place / "gap.csv").write_text("t,load\n" + "".join(f"{i},1\n" for i in [0, 1, 2, 3, 6, 7]))
    assert "gap.csv, row 5: the time 6 is 3 after that of the row before" in refused("predict", "run", "gap.csv")
    (place / "old.csv").write_text("t,load\n0,1\n" + "".join(f"{i},\n" for i in range(1, 20)))
    assert "must have a value in its last 12 rows; column 'load' has none" in refused("predict", "run", "old.csv")
    assert "horizon must be at most 4, the horizon of the training; got 5" in refused(
        "predict", "run", "load.csv", "--horizon", "5"
    )
    assert "no table at none.csv" in refused("predict", "run", "none.csv")
    assert "is too short: it must have 60 + 4 rows" in refused("evaluate", "run", "--length", "60")
    assert "--stream does not apply" in refused("evaluate", "run", "--stream")
    (place / "run" / "recipe.yaml").unlink()
    assert "run has no recipe of a forecasting task" in refused("predict", "run", "load.csv")


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (
            "x\n" + "1\n" * 20,
            [],
            r"a.csv is too short: it must have 12 \+ 4 rows, .*; it has 20 rows, and 12 of them are",
        ),
        ("s,x\n" + "a,1\n" * 90 + "b,1\n" * 9, ["data.series_column=s"], "series 'b' is too short"),
        ("x\n" + "1\n" * 40, ["data.season=13"], "data.season must be at most 12, the context; got 13"),
        ("x\n" + "1\n" * 40, ["model.horizon=5"], "model.horizon is set by the keys of data"),
        ("x\n" + "1\n" * 40, ["data.target=[x, x]"], "must name each column once; it has 'x' twice"),
        ("x\n" + "1\n" * 40, ["data.target=5"], "the columns must be a list of names of columns; got 5"),
        ("x\n" + "1\n" * 40, ["data.target=y"], "data.target: a.csv has no column 'y'"),
        (
            "x\n" + "1\n" * 40,
            ["model.preset=mini-alm", *[f"model.{k}={v}" for k, v in SIZES.items()]],
            "a model of seri",
        ),
        ("x\n" + "1\n" * 40, ["model.quantiles=[0.1]"], "with 0.5 among them"),
    ],
)
def test_bad_recipes_and_tables_are_told(content, changes, message, place):
    (place / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        build("data.table=a.csv", *changes).make_model()
    assert "\n" not in str(error.value)


def test_a_folder_of_splits_is_refused(place):
    for split in ("train", "test"):
        write(place / f"{split}.csv", {"x": range(50)})
    with pytest.raises(ValueError, match=r"must be one table, which is split in time; it has test, train"):
        build(f"data.table={place}")


def test_training_windows_end_before_the_validation_part_and_it_before_the_test_part(place):
    write(place / "a.csv", {"x": range(100)})
    setup = build("data.table=a.csv")
    train, validation = ([window["labels"] for window in part] for part in (setup.train, setup.validation))
    assert (train[0][0].item(), train[-1][-1].item()) == (12, 79)
    assert (validation[0][0].item(), validation[-1][-1].item()) == (80, 89)
    assert {len(labels) for labels in train} == {51}  # 48 origins
    assert {len(labels) for labels in validation} == {4}


# --- the baselines


def windows_of(values, first, last, context=24, horizon=6):
    series = Series("", np.asarray(values, float).reshape(len(values), -1), np.empty((len(values), 0)))
    return SeriesWindows([series], [(first, last)], context=context, horizon=horizon)


def test_seasonal_naive_repeats_the_last_season():
    naive = SeasonalNaive(season=4, horizon=6)
    window = {"values": np.arange(24.0).reshape(1, 24, 1)}
    assert naive(window)[0, :, 0, 0].tolist() == pytest.approx([20, 21, 22, 23, 20, 21])
    window["values"][0, 22] = np.nan
    assert naive(window)[0, :, 0, 0].tolist() == pytest.approx([20, 21, 21, 23, 20, 21])


def test_scores_of_a_known_error():
    windows = windows_of([*range(24), *[10] * 7, np.nan], 24, 32)
    levels = [0.25, 0.5, 0.75]

    def forecaster(window):
        return np.broadcast_to([7.0, 8.0, 9.0], (*window["labels"].shape, 3))

    scores = score(forecaster, windows, levels)
    assert scores.mae.tolist() == [2, 2]
    assert scores.coverage.tolist() == [0, 0]
    pinball = np.mean([0.25 * 3, 0.5 * 2, 0.75 * 1])
    assert scores.weighted_quantile_loss.tolist() == pytest.approx([2 * pinball / 10] * 2)


def test_linear_autoregression_finds_a_linear_rule_with_gaps_in_the_labels():
    rng = np.random.default_rng(0)
    values = np.zeros(600)
    for t in range(2, 600):
        values[t] = 1.6 * values[t - 1] - 0.9 * values[t - 2] + rng.standard_normal()
    values[100:110] = np.nan
    model = LinearAutoregression(TNNSeriesConfig())
    train, validation, test = (windows_of(values, *part) for part in ((0, 400), (400, 500), (500, 600)))
    model.fit(train, validation).calibrate(validation, LEVELS)
    naive = SeasonalNaive(1, 6).calibrate(validation, LEVELS)
    found, other = score(model, test, LEVELS), score(naive, test, LEVELS)
    assert found.mae[0] < 0.6 * other.mae[0]
    assert 0.75 < found.coverage[0] < 1


# --- intervals


def of_noise(scale, generator, origins=400, horizon=3):
    """Quantiles of noise with the deviation 1, and values with another one."""
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    known = np.quantile(generator.standard_normal(100_000), levels)
    recent = np.tile(known, (1, origins, horizon, 1, 1))
    return levels, recent, scale * generator.standard_normal((1, origins + horizon - 1, 1))


@pytest.mark.parametrize("scale", [0.5, 1, 3])
def test_intervals_are_as_wide_as_recent_ones_should_have_been(scale):
    levels, recent, labels = of_noise(scale, np.random.default_rng(0))
    found = calibrated(recent[:, 0], recent, labels, levels)
    low, lower, median, upper, high = found[0, 0, 0]
    assert median == recent[0, 0, 0, 0, 2]
    for ends, share in (((low, high), 0.9), ((lower, upper), 0.5)):
        assert np.mean((ends[0] <= labels) & (labels <= ends[1])) == pytest.approx(share, abs=0.02)
    assert np.all(np.diff(found) >= 0)


def test_what_is_not_known_calibrates_nothing():
    levels, recent, labels = of_noise(3, np.random.default_rng(0), origins=5)
    same = calibrated(recent[:, 0], recent, np.full_like(labels, np.nan), levels)
    assert np.array_equal(same, recent[:, 0])
    without_partner = calibrated(recent[:, 0], recent, labels, [0.1, *levels[1:]])
    assert np.array_equal(without_partner, recent[:, 0])
    constant = np.zeros_like(recent)
    assert np.array_equal(calibrated(constant[:, 0], constant, labels, levels), constant[:, 0])


@pytest.mark.slow
def test_a_prediction_is_the_forecast_that_the_evaluation_scores(place):
    """From the same row; and its intervals differ from those of the model alone, which a short table has."""
    values = np.random.default_rng(0).standard_normal(200).round(3)
    write(place / "whole.csv", {"x": values})
    train("whole.csv")
    model, data = load_model(place / "run"), load_saved_recipe(place / "run" / "recipe.yaml").data
    windows = split_windows([Series("", values[:, None], np.empty((200, 0)))], data, recent=data.origins).test
    expected = model_forecaster(model)(next(batches([windows[5]])))[0, :, 0]
    for rows, is_calibrated in ((range(185), True), (range(140, 185), False)):
        write(place / "past.csv", {"x": values[rows]})
        found = [json.loads(line)["quantiles"] for line in good("predict", "run", "past.csv").splitlines()]
        same = np.allclose([[*row.values()] for row in found], expected, atol=1e-4)
        assert same == is_calibrated


# --- acceptance


def seasons(count, seed=0):
    """A day of 24 steps, a week in which two days are quiet, a trend, and noise of 0.3."""
    t = np.arange(count)
    day = np.exp(-0.5 * ((t % 24 - 8) / 2) ** 2) + 0.8 * np.exp(-0.5 * ((t % 24 - 18) / 3) ** 2)
    week = np.where(t // 24 % 7 < 5, 1.0, 0.45)
    return 10 + 0.002 * t + 4 * day * week + 0.3 * np.random.default_rng(seed).standard_normal(count)


@pytest.mark.slow
def test_a_short_training_beats_both_baselines_on_two_seasons(place, one_thread):
    write(place / "load.csv", {"load": seasons(2000)})
    changes = ["data.context=96", "data.season=24", "training.steps=200", "training.evaluate_every=100"]
    sizes = ["model.hidden_size=32", "model.num_hidden_layers=2", "model.rpe_size=16"]
    good("train", "mini-forecast", "data.table=load.csv", *changes, *sizes, "--out", "run")
    lines = [line.split() for line in good("evaluate", "run").splitlines()[1:4]]
    (ours, our_loss, coverage), (naive, naive_loss, _), (linear, linear_loss, _) = (
        [float(value.rstrip("%")) for value in line[-3:]] for line in lines
    )
    assert ours < min(naive, linear)
    assert our_loss < min(naive_loss, linear_loss)
    assert 80 < coverage < 98
