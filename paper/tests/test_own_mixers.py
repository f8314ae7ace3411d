"""A mixer that a user wrote is a row of the tables, beside the paper's methods."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paper.__main__ import app
from paper.catalogue import EXPERIMENTS, find_experiment
from paper.harness.trial import Options
from paper.language import trials as language
from tnn.mixers import list_mixers, load_mixer, unregister_mixer

SOURCE = Path(__file__).parents[2] / "tests" / "mixers" / "moving_average.py"  # as a user would write it
ROW = "my_mixers:MovingAverage"


@pytest.fixture
def mixers(tmp_path, monkeypatch):
    """A folder with the user's module in it."""
    shutil.copy(SOURCE, tmp_path / "my_mixers.py")
    (tmp_path / "broken.py").write_text("import nothing_there")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("my_mixers", None)
    if ROW in list_mixers():
        unregister_mixer(ROW)


def reproduce(name, tmp_path, *words):
    folders = ["--data-dir", tmp_path / "data", "--out", tmp_path / "results", "--models", tmp_path / "runs"]
    return CliRunner().invoke(app, [name, *map(str, [*folders, *words])], catch_exceptions=False)


@pytest.mark.slow
def test_it_stands_in_the_table(mixers, tmp_path, wikitext):
    options = ("--methods", f"transformer,{ROW}", "--steps", "2", "--seeds", "1")
    done = reproduce("alm", tmp_path, *options)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "results/mini/alm.md").read_text()
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in text.splitlines() if line.startswith("| ")}
    assert set(rows) == {"method", "transformer", ROW}
    published, ours = rows[ROW][:2], rows[ROW][2:4]
    assert [cell.strip() for cell in published] == ["", ""]
    assert all(float(cell) > 1 for cell in ours)
    assert f"Not in the paper: {ROW}." in text
    records = [json.loads(line) for line in (tmp_path / "results/mini/alm.jsonl").read_text().splitlines()]
    for own, other in (("rate 0.001", "rate 0.001"), ("", "")):  # the same search, data and updates
        first, second = (
            next(r["settings"]["recipe"] for r in records if (r["row"], r["part"]) == key)
            for key in ((ROW, own), ("transformer", other))
        )
        assert first.pop("model") == {"preset": "mini-alm", "mixer": ROW}
        assert second.pop("model") == {"preset": "mini-alm-transformer"}
        assert first == second
    assert "9 trials, 9 of them measured" in reproduce("alm", tmp_path, *options).output


@pytest.mark.slow
def test_it_is_read_at_longer_lengths(mixers, tmp_path, wikitext, monkeypatch):
    monkeypatch.setattr(language, "LENGTHS", (64, 128))
    done = reproduce("extrapolation", tmp_path, "--methods", ROW, "--steps", "2", "--seeds", "1")
    assert done.exit_code == 0, done.output
    assert f"| {ROW} |" in (tmp_path / "results/mini/extrapolation.md").read_text()


@pytest.mark.slow
def test_its_speed_is_measured(mixers, tmp_path):
    done = reproduce("speed", tmp_path, "--methods", ROW, "--steps", "1")
    assert done.exit_code == 0, done.output
    assert f"| {ROW} |" in (tmp_path / "results/mini/speed.md").read_text()


@pytest.mark.parametrize("scale", ["mini", "paper"])
@pytest.mark.parametrize("name", [name for name, each in EXPERIMENTS.items() if each.takes_mixers])
def test_every_experiment_of_mixers_plans_it(mixers, name, scale):
    load_mixer(ROW)
    options = Options(scale=scale, methods=("tnn", ROW), seeds=1)
    trials = [trial for trial in find_experiment(name).plan(options) if trial.row == ROW]
    assert trials
    recipes = [
        trial.settings["recipe"] for trial in trials if "preset" in trial.settings.get("recipe", {}).get("model", {})
    ]
    assert all(recipe["model"]["mixer"] == ROW for recipe in recipes)
    assert all(":" not in str(trial.folder(_Context)) for trial in trials)


class _Context:
    models = Path("runs")


def test_mistakes_are_told_in_a_line(mixers, tmp_path):
    load_mixer(ROW)
    for name, row, message in (
        ("alm", "broken:Mixer", "mixer 'broken:Mixer': module 'broken' cannot be imported: No module named"),
        ("alm", "not_there:Mixer", "mixer 'not_there:Mixer': module 'not_there' cannot be imported: No module named"),
        ("image", ROW, f"image takes no mixer of your own, such as '{ROW}'; its rows are transformer, tnn"),
        ("lra-large", ROW, "lra-large takes no mixer of your own"),
        ("alm", "bert", "alm has no row 'bert'; there are transformer, alibi,"),
    ):
        done = reproduce(name, tmp_path, "--methods", row)
        assert done.exit_code == 1
        assert done.output.startswith(f"error: {message}")
        assert done.output.count("\n") == 1


def test_which_experiments_take_mixers():
    taking = {name for name, each in EXPERIMENTS.items() if each.takes_mixers}
    assert taking == {"alm", "extrapolation", "glue", "lra", "speed"}
