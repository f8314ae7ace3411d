"""Trials of Long-Range Arena: a row is trained on a task, at the best learning rate of its search on that task."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from filelock import FileLock

from paper.harness.trainings import search_trials, training_trial
from paper.harness.trial import Metrics, Options, Trial, TrialContext
from paper.lra.setups import IMAGE_TASKS, MINI, ONE_AXIS, RELATIVE, lra_search, lra_setup
from tnn.data.lra.pathfinder import generate_pathfinder
from tnn.layers import count_parameters
from tnn.training import runs
from tnn.training.evaluation import load_model
from tnn.training.recipe import Recipe


def lra_trials(row: str, task: str, options: Options, *, large: bool = False) -> tuple[list[Trial], list[Trial]]:
    """The trials of the search, and one training per seed."""
    if row == (RELATIVE if task in IMAGE_TASKS else ONE_AXIS):
        row = "tnn"  # a text has one axis anyway; the other variant differs on texts only
    experiment = "lra-large" if large else "lra"
    setup = lra_setup(row, task, options, large=large)
    searches = search_trials(experiment, row, setup, lra_search(task, options), task)
    finals = [
        training_trial(experiment, row, setup, seed, searches=searches, measure=measure_accuracy, part=task)
        for seed in range(options.seeds or 1)
    ]
    if options.scale == "paper":
        return searches, finals
    return [with_data(trial, task) for trial in searches], [with_data(trial, task) for trial in finals]


def longer_trial(row: str, task: str, times: int, options: Options) -> Trial:
    """A large model at mini scale with `times` as many updates, at the learning rate of the shorter training."""
    searches, _ = lra_trials(row, task, options, large=True)
    more = replace(options, steps=times * (options.steps or MINI[task].steps))
    setup = lra_setup(row, task, more, large=True)
    return with_data(
        training_trial("lra-longer", row, setup, 0, searches=searches, measure=measure_accuracy, part=task), task
    )


def with_data(trial: Trial, task: str) -> Trial:
    """For Pathfinder: generate its images first, unless the data directory has them."""
    return replace(trial, work=partial(_generate_first, work=trial.work)) if task == "pathfinder" else trial


def _generate_first(context: TrialContext, work: Callable[[TrialContext], Metrics]) -> Metrics:
    name = MINI["pathfinder"].folder
    if not (context.data / name).is_dir():
        context = replace(context, data=context.models / "data")
        context.data.mkdir(parents=True, exist_ok=True)
        with FileLock(context.data / f"{name}.lock"):  # wait for another process that generates them
            generate_pathfinder(context.data / name, count=40_000, contour_length=3, distractors=0)
    return work(context)


def measure_accuracy(folder: Path, recipe: Recipe) -> Metrics:
    """In percent; the validation set of Text is its test set."""
    measured = runs.load_measured(folder)
    split = "test" if "test_accuracy" in measured else "eval"
    return {
        "accuracy": 100 * measured[f"{split}_accuracy"],
        "most_frequent_class": 100 * measured[f"majority_{split}_accuracy"],
        "parameters": count_parameters(load_model(folder)).trained,
    }
