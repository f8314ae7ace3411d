"""Resuming with another number of steps: what stays, and whether a run of that many steps would have been the same."""

import math
from pathlib import Path

from tnn.training import runs
from tnn.training.schedules import learning_rate
from tnn.training.schema import Recipe, Training


def planned_steps(training: Training, examples: int) -> int:
    """The number of updates.

    >>> from tnn.training import load_recipe
    >>> from tnn.training.lengthening import planned_steps
    >>> planned_steps(load_recipe("mini-alm", ["training.steps=null", "training.epochs=3"]).training, examples=100)
    19
    """
    return training.steps or math.ceil(examples * (training.epochs or 1) / training.batch_size)


def asks_for_other_steps(folder: Path, recipe: Recipe) -> bool:
    """Whether a recipe has another number of steps or epochs than that of the run in a folder."""
    known = runs.load_run_recipe(folder)
    return known is not None and _length(known.training) != _length(recipe.training)


def describe_change(folder: Path, recipe: Recipe, examples: int) -> str:
    """What becomes of a run that is resumed with another number of steps; a ValueError if it cannot be.

    `examples` is the size of the training set. Empty if the number of steps is the same.
    """
    known = runs.load_run_recipe(folder)
    if known is None or _length(known.training) == _length(recipe.training):
        return ""
    old, new = (planned_steps(training, examples) for training in (known.training, recipe.training))
    checkpoint = runs.last_checkpoint(folder)
    done = runs.step_of(checkpoint)
    if checkpoint is None and runs.is_finished(folder):
        again = f"start a new run from its weights with model.preset=null model.start_from={folder}"
        raise FileNotFoundError(f"{folder} is finished, and has no whole checkpoint to go on from; {again}")
    if new < done:
        raise ValueError(
            f"step {done:,} of {folder} is done already: a run of {new:,} steps would have ended before it"
        )
    differences = _differences(known.training, recipe.training, old, new, done)
    result = "be those of such a run"
    if differences:
        result = f"not be those of a run of {new:,} steps: {' and '.join(differences)}"
    kept = f"weights, optimizer and order of the data go on after step {done:,}"
    return f"{new:,} steps instead of {old:,}: {kept}; the final weights will {result}"


def _length(training: Training) -> tuple[int | None, float | None]:
    return training.steps, training.epochs


def _differences(known: Training, wanted: Training, old: int, new: int, done: int) -> list[str]:
    """What would have been another in a run that had the new number of steps from the beginning."""
    before, after = learning_rate(known, old), learning_rate(wanted, new)
    found = []
    if any(before(step) != after(step) for step in range(done)):
        rates = f"{before(done - 1):.2e} to {after(done):.2e}"
        found.append(f"the schedule, {wanted.schedule}, depends on their number (the learning rate goes from {rates})")
    extra = wanted.evaluate_every is not None and done == old and old % wanted.evaluate_every != 0
    if extra and wanted.needs_evaluation:
        found.append(f"the evaluation after step {old:,} counts too")
    return found
