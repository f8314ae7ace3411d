"""What the paper's trainings would cost: an estimate from its recipes and models."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from paper.harness.experiment import Experiment
from paper.harness.trial import Options
from tnn.layers import count_parameters
from tnn.models import load_preset
from tnn.training.recipe import Recipe, list_recipes, load_recipe, parse_recipe
from tnn.training.tasks.registry import find_task

FLOPS = 6  # for a parameter and a token: two forward, four backward
PEAK = {"fp32": 19.5e12, "TF32": 156e12}  # operations a second of an A100
SHARE = 0.4  # of the peak, in practice
IMAGENET = 1_281_167  # pictures to train on


@dataclass(frozen=True)
class Cost:
    """Of one training."""

    parameters: int
    updates: int
    tokens: int  # of an update, at most: texts may be shorter

    @property
    def operations(self) -> float:
        return FLOPS * self.parameters * float(self.updates) * self.tokens

    def hours(self, precision: str) -> float:
        """Of a GPU."""
        return self.operations / (SHARE * PEAK[precision]) / 3600


def training_cost(recipe: Recipe) -> Cost:
    """Of a recipe that begins with random weights.

    >>> from tnn.training.recipe import load_recipe
    >>> from paper.report.cost import training_cost
    >>> cost = training_cost(load_recipe("wikitext103-alm"))
    >>> cost.tokens, cost.updates, round(cost.hours("TF32"), 1)
    (65536, 50000, 4.3)
    """
    assert recipe.model.preset is not None
    config = load_preset(recipe.model.preset, **recipe.model.changes)
    training, task = recipe.training, find_task(recipe.task)
    examples = task.examples_per_epoch(recipe) or IMAGENET  # texts are trained for a number of updates
    updates = training.steps or ceil(examples / training.batch_size * (training.epochs or 0))
    return Cost(_parameters(recipe, config), updates, training.batch_size * task.tokens_per_example(recipe, config))


def recipe_costs() -> dict[str, Cost]:
    """Of TNN in each of the paper's experiments, but for fine-tuning."""
    names = [name for name in list_recipes() if not name.startswith(("mini-", "glue-"))]
    return {name: training_cost(load_recipe(name)) for name in names}


def experiment_costs(experiment: Experiment) -> Iterator[Cost]:
    """Of all trainings that an experiment makes at paper scale, but for fine-tuning and what others make."""
    trials = {trial.key: trial for trial in experiment.plan(Options(scale="paper"))}
    for trial in trials.values():
        values = trial.settings.get("recipe", {})
        if trial.experiment == experiment.name and "preset" in values.get("model", {}):
            yield training_cost(parse_recipe({"name": trial.title, **values}))


def _parameters(recipe: Recipe, config: Any) -> int:
    with torch.device("meta"):  # shapes only
        model = find_task(recipe.task).model_class(recipe)(config)
    return count_parameters(model).trained
