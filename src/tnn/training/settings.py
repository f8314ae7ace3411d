"""The settings of a recipe as a table."""

from typing import Any

from tnn.training.schema import Recipe
from tnn.training.tasks.registry import find_task


def describe(recipe: Recipe, model: Any = None, data_summary: str = "", vocabulary: int | None = None) -> str:
    """One setting per line, with the size of the model, the number of examples and the vocabulary if they are given.

    >>> from tnn.training import load_recipe
    >>> from tnn.training.settings import describe
    >>> print(describe(load_recipe("wikitext103-alm")).splitlines()[0])
    recipe           wikitext103-alm
    """
    training, task = recipe.training, find_task(recipe.task)
    rows: dict[str, Any] = {"recipe": recipe.name}
    rows["model"] = recipe.model.preset or f"from {recipe.model.start_from}"
    if recipe.model.changes:
        rows["model"] += " with " + ", ".join(f"{key} {value}" for key, value in recipe.model.changes.items())
    if model is not None:
        from tnn.layers import count_parameters

        rows["parameters"] = f"{sum(count_parameters(model)):,}"
        rows["layers"] = model.config.num_hidden_layers
    rows |= task.describe(recipe)
    if data_summary:
        rows["examples"] = data_summary
    if vocabulary is not None:
        rows["vocabulary"] = f"{vocabulary:,}"
    rows["batch size"] = training.batch_size
    rows["updates"] = f"{training.steps:,}" if training.steps else f"{training.epochs:g} epochs"
    rows["warm-up"] = (
        f"{training.warmup_ratio:.0%}" if training.warmup_ratio else f"{training.warmup_steps or 0:,} updates"
    )
    rows["learning rate"] = ", ".join(f"{rate:g}" for rate in task.learning_rates(recipe))
    length = f" of {training.schedule_steps:,} updates" if training.schedule_steps else ""
    rows["schedule"] = training.schedule + length
    rows["optimizer"] = f"Adam, betas {training.betas}, epsilon {training.epsilon:g}"
    rows["weight decay"] = f"{training.weight_decay:g}, decoupled"
    rows["clipping"] = f"{training.clip:g}" if training.clip else "none"
    rows["precision"] = training.precision
    rows["seed"] = training.seed
    width = 2 + max(map(len, rows))
    return "\n".join(f"{name:{width}}{value}" for name, value in rows.items())
