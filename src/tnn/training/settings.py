"""What a recipe decides, as a table in the order of the paper's."""

from typing import Any

from tnn.training.recipe import GlueRecipe, ImageRecipe, LraRecipe, Recipe


def describe(recipe: Recipe, model: Any = None, found: str = "", vocabulary: int | None = None) -> str:
    """One setting a line; with a model, its size too, and what was found in the data.

    >>> from tnn.training.recipe import load_recipe
    >>> print(describe(load_recipe("wikitext103-alm")).splitlines()[0])
    recipe           wikitext103-alm
    """
    training = recipe.training
    rows: dict[str, Any] = {"recipe": recipe.name}
    rows["model"] = recipe.model.preset or f"from {recipe.model.start_from}"
    if recipe.model.changes:
        rows["model"] += " with " + ", ".join(f"{key} {value}" for key, value in recipe.model.changes.items())
    if model is not None:
        from tnn.layers import count_parameters

        rows["parameters"] = f"{sum(count_parameters(model)):,}"
        rows["layers"] = model.config.num_hidden_layers
    rows |= _data(recipe)
    if found:
        rows["found"] = found
    if vocabulary is not None:
        rows["vocabulary"] = f"{vocabulary:,}"
    rows["batch size"] = training.batch_size
    rows["updates"] = f"{training.steps:,}" if training.steps else f"{training.epochs:g} epochs"
    rows["warm-up"] = (
        f"{training.warmup_ratio:.0%}" if training.warmup_ratio else f"{training.warmup_steps or 0:,} updates"
    )
    rates = getattr(recipe, "learning_rates", ()) or (training.learning_rate,)
    rows["learning rate"] = ", ".join(f"{rate:g}" for rate in rates)
    length = f" of {training.schedule_steps:,} updates" if training.schedule_steps else ""
    rows["schedule"] = training.schedule + length
    rows["optimizer"] = f"Adam, betas {training.betas}, epsilon {training.epsilon:g}"
    rows["weight decay"] = f"{training.weight_decay:g}, decoupled"
    rows["clipping"] = f"{training.clip:g}" if training.clip else "none"
    rows["precision"] = training.precision
    rows["seed"] = training.seed
    width = 2 + max(map(len, rows))
    return "\n".join(f"{name:{width}}{value}" for name, value in rows.items())


def _data(recipe: Recipe) -> dict[str, Any]:
    if isinstance(recipe, GlueRecipe):
        return {
            "data": f"{', '.join(recipe.data.tasks)} in {recipe.data.glue}",
            "sequence length": recipe.data.length,
        }
    if isinstance(recipe, LraRecipe):
        return {
            "data": f"{recipe.data.task} of Long-Range Arena in {recipe.data.folder}",
            "reading": f"that of {recipe.data.flavour}",
            "sequence length": recipe.data.length or "as published",
        }
    if isinstance(recipe, ImageRecipe):
        augmentation = ", ".join(f"{key} {value}" for key, value in recipe.data.augmentation.items())
        return {
            "data": f"pictures in {recipe.data.images}",
            "picture size": recipe.data.size,
            "augmentation": augmentation or "none",
        }
    return {
        "data": recipe.data.corpus,
        "tokenizer": recipe.data.tokenizer,
        "sequence length": recipe.data.length,
    }
