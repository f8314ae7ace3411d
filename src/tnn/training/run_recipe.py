"""Training by a recipe: from its first step, or from the last whole checkpoint of a run that was stopped."""

import json
import math
from collections.abc import Callable
from pathlib import Path

from accelerate import PartialState
from transformers import PreTrainedTokenizerBase, set_seed

from tnn.data.blocks import ShuffledEpochs
from tnn.data.glue import GLUE_TASKS
from tnn.training import runs
from tnn.training.processes import main_process_first, meet
from tnn.training.recipe import GlueRecipe, ImageRecipe, LraRecipe, Recipe
from tnn.training.settings import describe
from tnn.training.tasks.glue import glue_task
from tnn.training.tasks.images import image_task
from tnn.training.tasks.language import text_task
from tnn.training.tasks.lra import lra_task
from tnn.training.tasks.task import Task
from tnn.training.trainer import TIMES, Interruption, Journal, RecipeTrainer, callbacks, training_arguments
from tnn.training.trainer import Diverged as Diverged  # what train() may raise

SCORES = "scores.json"
Measured = dict[str, float]


class Interrupted(Exception):
    """Stopped on demand; a checkpoint of the last step is there."""


def train(recipe: Recipe, out: Path, *, resume: bool = False, say: Callable[[str], None] = print) -> Measured:
    """Run a recipe and leave the model in `out`, for from_pretrained. -> what was measured of it.

    `say` gets the settings before the first step; several processes have one voice.

    >>> from pathlib import Path
    >>> from tnn.training.recipe import load_recipe
    >>> from tnn.training.run_recipe import train
    >>> train(load_recipe("mini-alm"), Path("runs/mini-alm"))  # doctest: +SKIP
    {'eval_loss': 1.1...}
    """
    meet(recipe.training)
    with main_process_first():
        if PartialState().is_main_process:
            runs.check(out, recipe, resume)
    if not PartialState().is_main_process:
        say = _nothing
    if isinstance(recipe, GlueRecipe):
        return _fine_tune(recipe, out, say)
    if runs.is_finished(out):
        say(f"{out} is finished already")
        return runs.load_measured(out)
    with main_process_first():
        task = _make_task(recipe)
    measured = _run(task, recipe, out, say)
    say(f"{_result(measured)}; the model is in {out}")
    return measured


def _make_task(recipe: Recipe) -> Task:
    if isinstance(recipe, GlueRecipe):
        return glue_task(recipe)
    if isinstance(recipe, LraRecipe):
        return lra_task(recipe)
    if isinstance(recipe, ImageRecipe):
        return image_task(recipe)
    return text_task(recipe)


def _result(measured: Measured) -> str:
    if "eval_accuracy" not in measured:
        return f"validation loss {measured['eval_loss']:.4f}"
    names = {"eval": "validation", "test": "test"}
    return ", ".join(
        f"{names[key]} accuracy {measured[f'{key}_accuracy']:.4f} "
        f"({measured[f'majority_{key}_accuracy']:.4f} by the most frequent class)"
        for key in names
        if f"{key}_accuracy" in measured
    )


def _nothing(text: str) -> None:
    pass


def _run(task: Task, recipe: Recipe, out: Path, say: Callable[[str], None]) -> Measured:
    """One training, from where it stands."""
    training = recipe.training
    task = task.judged_by(training.evaluate_examples)
    set_seed(training.seed)
    model = task.make_model()
    vocabulary = len(task.processor) if isinstance(task.processor, PreTrainedTokenizerBase) else None
    say(describe(recipe, model, task.found, vocabulary))
    if PartialState().is_main_process:
        runs.begin(out, recipe)
    steps = training.steps or math.ceil(len(task.train) * (training.epochs or 1) / training.batch_size)  # type: ignore[arg-type]
    interruption, log = Interruption(), runs.Log(out)
    trainer = RecipeTrainer(
        training,
        model=model,
        args=training_arguments(training, steps, str(out / runs.CHECKPOINTS), task.metric),
        train_dataset=ShuffledEpochs(task.train, training.seed, steps * training.batch_size, task.repeats),
        eval_dataset=task.validation,
        data_collator=task.collate,
        compute_metrics=task.metrics,
        callbacks=[*callbacks(recipe, log), interruption],
    )
    checkpoint = _go_on_from(out, log)
    try:
        with interruption.listening():
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except Diverged as error:
        raise Diverged(f"{error}; {_last_good(out)}") from None
    if interruption.stopping:
        raise Interrupted(f"stopped after step {trainer.state.global_step} of {steps}")
    measured = _evaluate(trainer, task)
    with runs.writing(f"the model of {out}"):
        trainer.save_model(str(out / runs.SCRATCH))  # all processes take part
        if PartialState().is_main_process:
            runs.finish(out, task.processor, measured)
    PartialState().wait_for_everyone()
    return measured


def _evaluate(trainer: RecipeTrainer, task: Task) -> Measured:
    """Of the final weights, on each set that the task has for it."""
    measured: Measured = {}
    if trainer.args.load_best_model_at_end:
        trainer.remove_callback(Journal)  # these are not the weights of the last step
    for name, dataset in task.evaluations.items():
        found = _just_evaluated(trainer, name) or trainer.evaluate(dataset, metric_key_prefix=name)
        measured |= {key: value for key, value in found.items() if not key.endswith(TIMES)}
    return measured | dict(task.to_beat)


def _just_evaluated(trainer: RecipeTrainer, name: str) -> Measured | None:
    """The last step's evaluation, if there was one, of these weights."""
    last = [entry for entry in trainer.state.log_history if entry["step"] == trainer.state.global_step]
    found = [entry for entry in last if f"{name}_loss" in entry]
    if not found or trainer.args.load_best_model_at_end:
        return None
    return {key: value for key, value in found[-1].items() if key != "step"}


def _go_on_from(out: Path, log: runs.Log) -> Path | None:
    """The last whole checkpoint; what came after it is forgotten."""
    checkpoint = runs.last_checkpoint(out)
    with main_process_first():
        if PartialState().is_main_process:
            runs.remove_unfinished(out)
            log.cut(runs.step_of(checkpoint))
    return checkpoint


def _last_good(out: Path) -> str:
    checkpoint = runs.last_checkpoint(out)
    if checkpoint is None:
        return "there is no checkpoint before it; try a lower training.learning_rate, or training.clip"
    again = f"model.preset=null model.start_from={checkpoint}"
    return f"{checkpoint} is the last checkpoint; a new run can begin with it, by {again}, at a lower learning rate"


def _fine_tune(recipe: GlueRecipe, out: Path, say: Callable[[str], None]) -> Measured:
    """Each task with each learning rate; the best on the validation set is the result of a task."""
    with main_process_first():
        tasks = {name: _make_task(_single(recipe, name)) for name in recipe.data.tasks}  # all there, before the first
        if PartialState().is_main_process:
            runs.begin(out, recipe)
    scores: dict[str, Measured] = {}
    for name, task in tasks.items():
        tried = [_fine_tune_once(recipe, name, rate, task, out, say) for rate in _rates(recipe)]
        scores[name] = max(tried, key=lambda measured: measured["score"])
        if PartialState().is_main_process:
            runs.write_text(out / SCORES, json.dumps(scores, indent=2))
    say(score_table(scores))
    return {name: measured["score"] for name, measured in scores.items()}


def _rates(recipe: GlueRecipe) -> tuple[float, ...]:
    return recipe.learning_rates or (recipe.training.learning_rate,)


def _fine_tune_once(
    recipe: GlueRecipe, name: str, rate: float, task: Task, out: Path, say: Callable[[str], None]
) -> Measured:
    """In a folder of its own; one that is finished stays as it is. A run that diverges counts 0, as in the paper."""
    folder = out / name / f"lr-{rate:g}" if recipe.learning_rates else out / name
    if not runs.is_finished(folder):
        try:
            _run(task, _single(recipe, name, rate), folder, say)
        except Diverged as error:
            if not recipe.learning_rates:
                raise
            say(f"{name} with a learning rate of {rate:g} diverged: {error}")
            return {"score": 0.0, "learning_rate": rate}
    measured = runs.load_measured(folder)
    return {"score": measured[f"eval_{GLUE_TASKS[name].metrics[0]}"], "learning_rate": rate, **measured}


def _single(recipe: GlueRecipe, name: str, rate: float | None = None) -> GlueRecipe:
    """The recipe of one task and one learning rate."""
    training = recipe.training.model_copy(update={"learning_rate": rate or recipe.training.learning_rate})
    data = recipe.data.model_copy(update={"tasks": (name,)})
    return recipe.model_copy(update={"training": training, "data": data, "learning_rates": ()})


def score_table(scores: dict[str, Measured]) -> str:
    """One metric of a task a line, with what the most frequent class would give.

    >>> from tnn.training.run_recipe import score_table
    >>> measured = {"learning_rate": 1e-4, "eval_accuracy": 0.81, "majority_eval_accuracy": 0.51}
    >>> print(score_table({"sst2": measured}))
    task  metric                score  majority  learning rate
    sst2  accuracy             0.8100    0.5100         0.0001
    """
    lines = ["task  metric                score  majority  learning rate"]
    for name, measured in scores.items():
        for key in [key.removeprefix("majority_") for key in measured if key.startswith("majority_")]:
            metric = key.removeprefix("eval_").replace("_", " ")
            values = f"{measured[key]:.4f}    {measured[f'majority_{key}']:.4f}"
            lines.append(f"{name:4}  {metric:19}  {values}  {measured['learning_rate']:13g}")
    return "\n".join(lines)
