"""Trials of Long-Range Arena: a row is trained on a task, at the best of the learning rates that it tried there."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from filelock import FileLock

from paper.harness.trainings import search_trials, training_trial
from paper.harness.trial import Metrics, Options, Place, Trial
from paper.lra.setups import MINI, ONE_AXIS, PICTURES, RELATIVE, arena_search, arena_setup
from tnn.data.lra.pathfinder import generate_pathfinder
from tnn.layers import count_parameters
from tnn.training import runs
from tnn.training.evaluation import load_model
from tnn.training.recipe import Recipe


def arena_trials(row: str, task: str, options: Options, *, large: bool = False) -> tuple[list[Trial], list[Trial]]:
    """Of the search, and one a seed."""
    if row == (RELATIVE if task in PICTURES else ONE_AXIS):
        row = "tnn"  # a text has one axis anyway, and the other row is about texts
    experiment = "lra-large" if large else "lra"
    setup = arena_setup(row, task, options, large=large)
    searches = search_trials(experiment, row, setup, arena_search(task, options), task)
    finals = [
        training_trial(experiment, row, setup, seed, searches=searches, measure=_measure, part=task)
        for seed in range(options.seeds or 1)
    ]
    if options.scale == "paper":
        return searches, finals
    return [_prepared(trial, task) for trial in searches], [_prepared(trial, task) for trial in finals]


def longer_trial(row: str, task: str, times: int, options: Options) -> Trial:
    """A large model at mini scale with so many times the updates, at the rate that was found for fewer."""
    searches, _ = arena_trials(row, task, options, large=True)
    more = replace(options, steps=times * (options.steps or MINI[task].steps))
    setup = arena_setup(row, task, more, large=True)
    return _prepared(training_trial("lra-longer", row, setup, 0, searches=searches, measure=_measure, part=task), task)


def _prepared(trial: Trial, task: str) -> Trial:
    """Pathfinder's is the same, but that it draws its pictures first, unless the data directory has them."""
    return replace(trial, work=partial(_draw_first, work=trial.work)) if task == "pathfinder" else trial


def _draw_first(place: Place, work: Callable[[Place], Metrics]) -> Metrics:
    name = MINI["pathfinder"].folder
    if not (place.data / name).is_dir():
        place = replace(place, data=place.models / "data")
        place.data.mkdir(parents=True, exist_ok=True)
        with FileLock(place.data / f"{name}.lock"):  # another process that draws them is waited for
            generate_pathfinder(place.data / name, count=40_000, contour_length=3, distractors=0)
    return work(place)


def _measure(folder: Path, recipe: Recipe) -> Metrics:
    """Percentages; the validation set of Text is its test set."""
    found = runs.load_measured(folder)
    split = "test" if "test_accuracy" in found else "eval"
    return {
        "accuracy": 100 * found[f"{split}_accuracy"],
        "most_frequent_class": 100 * found[f"majority_{split}_accuracy"],
        "parameters": count_parameters(load_model(folder)).trained,
    }
