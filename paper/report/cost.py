"""What the paper's trainings would cost: an estimate from its recipes and models.

The estimates depend on no record, and counting parameters takes seconds: they are kept in estimates.json.

    python -m paper.report.cost            writes that file
"""

import json
from collections import Counter
from dataclasses import astuple, dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnn._files import write_text

if TYPE_CHECKING:
    from paper.harness.experiment import Experiment
    from tnn.training.recipe import Recipe

FLOPS = 6  # per parameter and token: two forward, four backward
PEAK = {"fp32": 19.5e12, "TF32": 156e12}  # operations per second of an A100
SHARE = 0.4  # of the peak, in practice
IMAGENET = 1_281_167  # images in the training set
ESTIMATES = Path(__file__).with_name("estimates.json")


@dataclass(frozen=True)
class Cost:
    """Of one training."""

    parameters: int
    updates: int
    tokens: int  # per update, at most: texts may be shorter

    @property
    def operations(self) -> float:
        return FLOPS * self.parameters * float(self.updates) * self.tokens

    def hours(self, precision: str) -> float:
        """GPU hours."""
        return self.operations / (SHARE * PEAK[precision]) / 3600


@dataclass(frozen=True)
class Estimates:
    """At paper scale, without fine-tuning."""

    recipes: dict[str, Cost]  # one training of TNN by each recipe
    experiments: dict[str, Counter[Cost]]  # all trainings of each experiment


def load_estimates() -> Estimates:
    """As the file has them.

    >>> from paper.report.cost import load_estimates
    >>> cost = load_estimates().recipes["wikitext103-alm"]
    >>> cost.tokens, cost.updates, round(cost.hours("TF32"), 1)
    (65536, 50000, 4.3)
    """
    values = json.loads(ESTIMATES.read_text(encoding="utf-8"))
    return Estimates(
        {name: Cost(*numbers) for name, numbers in values["recipes"].items()},
        {name: Counter({Cost(*n): count for *n, count in costs}) for name, costs in values["experiments"].items()},
    )


def write_estimates() -> None:
    """Count anew, and write the file: one line per recipe, and per experiment with equal trainings counted."""
    estimates = estimate()
    recipes = {name: list(astuple(cost)) for name, cost in estimates.recipes.items()}
    experiments = {
        name: [[*astuple(cost), count] for cost, count in costs.items()]
        for name, costs in estimates.experiments.items()
    }
    sections = {"recipes": recipes, "experiments": experiments}
    parts = [
        f'  "{key}": {{\n'
        + ",\n".join(f"    {json.dumps(name)}: {json.dumps(v)}" for name, v in values.items())
        + "\n  }"
        for key, values in sections.items()
    ]
    write_text(ESTIMATES, "{\n" + ",\n".join(parts) + "\n}\n")


def estimate() -> Estimates:
    """From the recipes and models of today."""
    from paper.catalogue import EXPERIMENTS

    return Estimates(recipe_costs(), {name: Counter(experiment_costs(each)) for name, each in EXPERIMENTS.items()})


def training_cost(recipe: "Recipe") -> Cost:
    """Of a recipe that begins with random weights.

    >>> from tnn.training.recipe import load_recipe
    >>> from paper.report.cost import training_cost
    >>> cost = training_cost(load_recipe("wikitext103-alm"))
    >>> cost.tokens, cost.updates, round(cost.hours("TF32"), 1)
    (65536, 50000, 4.3)
    """
    from tnn.models import load_preset
    from tnn.training.tasks.registry import find_task

    assert recipe.model.preset is not None
    config, task = load_preset(recipe.model.preset, **recipe.model.changes), find_task(recipe.task)
    training, examples = recipe.training, task.examples_per_epoch(recipe) or IMAGENET
    updates = training.steps or ceil(examples / training.batch_size * (training.epochs or 0))
    return Cost(_parameters(recipe, config), updates, training.batch_size * task.tokens_per_example(recipe, config))


def recipe_costs() -> dict[str, Cost]:
    """Of TNN in each of the paper's experiments, but for fine-tuning."""
    from tnn.training.recipe import list_recipes, load_recipe

    names = [name for name in list_recipes() if name.startswith(("wikitext103-", "lra-", "imagenet-"))]
    return {name: training_cost(load_recipe(name)) for name in names}


def experiment_costs(experiment: "Experiment") -> list[Cost]:
    """Of all trainings that an experiment makes at paper scale, without fine-tuning and trials of other experiments."""
    from paper.harness.trial import Options
    from tnn.training.recipe import parse_recipe

    trials = {trial.key: trial for trial in experiment.plan(Options(scale="paper"))}
    return [
        training_cost(parse_recipe({"name": trial.title, **values}))
        for trial in trials.values()
        if "preset" in (values := trial.settings.get("recipe", {})).get("model", {})
        and trial.experiment == experiment.name
    ]


def _parameters(recipe: "Recipe", config: Any) -> int:
    import torch

    from tnn.layers import count_parameters
    from tnn.training.tasks.registry import find_task

    with torch.device("meta"):  # shapes only
        model = find_task(recipe.task).model_class(recipe)(config)
    return count_parameters(model).trained


if __name__ == "__main__":
    write_estimates()
