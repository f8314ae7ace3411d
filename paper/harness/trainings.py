"""Trials that train a model. Short trainings choose the learning rate first, with the same search for every method."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from paper.harness.locks import locked
from paper.harness.trial import Metrics, Trial, TrialContext
from tnn.models import load_preset
from tnn.training import runs
from tnn.training.recipe import Recipe, load_recipe, parse_recipe, read_yaml

# tnn.training.run_recipe is imported where a model is trained: a report from records does without it.

LABELS = ("id2label", "label2id")  # fields of a configuration on which nothing depends
Measure = Callable[[Path, Recipe], Metrics]  # of the model in a folder


@dataclass(frozen=True)
class Setup:
    """A training without its seed: a recipe with changes. `paths` are the keys of its data in the data directory."""

    recipe: str
    changes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ("data.corpus",)

    def load(self, **training: Any) -> Recipe:
        """The recipe, with values of its training section changed."""
        return _load(self, **training)

    def settings(self, **training: Any) -> dict[str, Any]:
        """The values of the recipe, and of the preset that it names, that differ from the defaults."""
        settings = _settings(self, **training)
        recipe = {name: dict(v) if isinstance(v, dict) else v for name, v in settings["recipe"].items()}
        return {**settings, "recipe": recipe}  # the caller may change it


@cache  # several tables share trials, and a table is planned and concluded
def _load(setup: Setup, **training: Any) -> Recipe:
    if not training:
        return parse_recipe(_changed(_plain(setup.recipe), setup.changes), setup.recipe)
    recipe = _load(setup)  # parsed once for all seeds and learning rates
    section = recipe.training.model_validate(recipe.training.model_dump(exclude_unset=True) | training)
    return recipe.model_copy(update={"training": section})


@cache  # reading YAML takes longer than checking a recipe
def _plain(recipe: str) -> dict[str, Any]:
    return load_recipe(recipe).model_dump(mode="json", exclude_unset=True)


def _changed(values: dict[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Plain values of a recipe with some of them replaced, given as `section.key=value`."""
    values = deepcopy(values)
    for change in changes:
        path, _, text = change.partition("=")
        *section, key = path.split(".")
        (values[section[0]] if section else values)[key] = read_yaml(text)
    return values


@cache
def _settings(setup: Setup, **training: Any) -> dict[str, Any]:
    recipe = _load(setup, **training).model_dump(mode="json", exclude={"about", "name"}, exclude_defaults=True)
    model = _model_settings(setup)
    return {"recipe": recipe} if model is None else {"recipe": recipe, "model": model}


@cache
def _model_settings(setup: Setup) -> dict[str, Any] | None:
    section = _load(setup).model
    if section.preset is None:
        return None
    config = load_preset(section.preset, **section.changes)
    values = {field.name: (getattr(config, field.name, field.default), field.default) for field in fields(config)}
    return {name: value for name, (value, default) in values.items() if value != default and name not in LABELS}


@dataclass(frozen=True)
class Search:
    """The learning rates that each method tries, with seed 0 and `steps` updates each."""

    rates: tuple[float, ...]
    steps: int


def search_trials(experiment: str, row: str, setup: Setup, search: Search | None, part: str = "") -> list[Trial]:
    """One trial per rate; the validation loss at the end decides."""
    if search is None:
        return []
    trials = []
    for rate in search.rates:
        training = {"steps": search.steps, "learning_rate": rate, "warmup_steps": max(1, search.steps // 10)}
        name = " ".join(word for word in (part, f"rate {rate:g}") if word)
        trials.append(_trial(experiment, row, name, setup, training, (), _nothing, keep=False))
    return trials


def training_trial(
    experiment: str,
    row: str,
    setup: Setup,
    seed: int,
    *,
    searches: Sequence[Trial] = (),
    measure: Measure | None = None,
    part: str = "",
) -> Trial:
    """A complete training, at the best rate of the searches or at the recipe's; `measure` adds to its metrics."""
    return _trial(experiment, row, part, setup, {"seed": seed}, tuple(searches), measure or _nothing, keep=True)


def _trial(
    experiment: str,
    row: str,
    part: str,
    setup: Setup,
    training: dict[str, Any],
    searches: tuple[Trial, ...],
    measure: Measure,
    keep: bool,
) -> Trial:
    recipe, settings = setup.load(**training), setup.settings(**training)
    if searches:
        del settings["recipe"]["training"]["learning_rate"]
        rates = [trial.settings["recipe"]["training"]["learning_rate"] for trial in searches]
        settings["search"] = {"rates": rates, "steps": searches[0].settings["recipe"]["training"]["steps"]}

    def work(context: TrialContext) -> Metrics:
        chosen = _with_paths(recipe, setup, context.data)
        if searches:
            from tnn.training.run_recipe import Diverged

            try:
                chosen = _with_rate(chosen, best_rate(searches, context))
            except Diverged as error:
                return {"failed": str(error)}
        metrics = train_once(chosen, trial.folder(context), measure)
        if not keep:
            shutil.rmtree(trial.folder(context), ignore_errors=True)
        return metrics

    trial = Trial(experiment, row, settings, work, part, recipe.training.seed, recipe.training.steps or 1.0)
    return trial


def train_once(recipe: Recipe, folder: Path, measure: Measure) -> Metrics:
    """Train, from the last checkpoint if there is one. A loss that is NaN or infinite is an outcome too."""
    from tnn.training.run_recipe import Diverged, train

    finished, done = runs.is_finished(folder), runs.step_of(runs.last_checkpoint(folder))
    rate, begun = recipe.training.learning_rate, perf_counter()
    try:
        measured = train(recipe, folder, resume=(folder / runs.RECIPE).is_file(), log=lambda text: None)
    except Diverged as error:
        return {"learning_rate": rate, "failed": str(error).split(";")[0]}
    steps = 0 if finished or recipe.training.steps is None else recipe.training.steps - done  # just now
    speed = {"seconds_per_step": (perf_counter() - begun) / steps} if steps > 0 else {}
    shutil.rmtree(folder / runs.CHECKPOINTS, ignore_errors=True)
    return {"learning_rate": rate, **measured, **speed, **measure(folder, recipe)}


def measure_trained(of: Trial, context: TrialContext, measure: Callable[[Path], Metrics]) -> Metrics:
    """Metrics of the model that another trial trains; if that training failed, this trial has failed too."""
    from tnn.training.run_recipe import Diverged

    try:
        folder = trained(of, context)
    except Diverged as error:
        return {"failed": str(error)}
    return measure(folder)


def trained(of: Trial, context: TrialContext) -> Path:
    """The folder of a trained model; if the folder is gone, the model is trained again."""
    from tnn.training.run_recipe import Diverged

    record = context.records.find(of)
    if record is not None and "failed" in record.metrics:
        raise Diverged(f"the training failed: {record.metrics['failed']}")
    folder = of.folder(context)
    with locked(of, context):
        again = {} if runs.is_finished(folder) else of.work(context)
    if "failed" in again:
        raise Diverged(f"the training failed: {again['failed']}")
    return folder


def best_rate(searches: Sequence[Trial], context: TrialContext) -> float:
    """The rate with the lowest validation loss."""
    from tnn.training.run_recipe import Diverged

    losses = {}
    for trial in searches:
        record = context.records.find(trial)
        if record is None:
            raise ValueError(f"{trial.title} must run first: its record is missing")
        loss = record.metrics.get("eval_loss")
        if loss is not None:
            losses[record.metrics["learning_rate"]] = loss
    if not losses:
        raise Diverged(f"{searches[0].row}: the loss was NaN or infinite at every learning rate that was tried")
    return min(losses, key=lambda rate: losses[rate])


def _with_rate(recipe: Recipe, rate: float) -> Recipe:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"learning_rate": rate})})


def _with_paths(recipe: Recipe, setup: Setup, data: Path) -> Recipe:
    """The recipe with the paths of its data on this machine."""
    values = recipe.model_dump(mode="json", exclude_none=True)
    values["model"] |= recipe.model.changes
    for path in setup.paths:
        section, key = path.split(".")
        values[section][key] = str(data / values[section][key])
    return parse_recipe(values, recipe.name)


def _nothing(folder: Path, recipe: Recipe) -> Metrics:
    return {}
