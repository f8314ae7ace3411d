"""Training by a recipe: from the first step, or from the last complete checkpoint of a run that was stopped."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import PartialState
from transformers import PreTrainedTokenizerBase, set_seed

from tnn._files import write_text
from tnn.data.blocks import ShuffledEpochs
from tnn.training import runs
from tnn.training.checkpoints import choose_checkpoint
from tnn.training.interruption import Interruption
from tnn.training.lengthening import asks_for_other_steps, describe_change, planned_steps
from tnn.training.model_card import model_card
from tnn.training.processes import in_main_process, init_distributed, main_process_first
from tnn.training.schema import Recipe
from tnn.training.settings import describe
from tnn.training.tasks.registry import find_task
from tnn.training.tasks.setup import TrainingSetup
from tnn.training.tasks.task import Metrics, SubTraining, Task
from tnn.training.trainer import TIMES, JsonlLogger, RecipeTrainer, callbacks, training_arguments
from tnn.training.trainer import Diverged as Diverged  # what train() may raise

SCORES = "scores.json"
Log = Callable[[str], None]


class Interrupted(Exception):
    """Stopped by a signal, after a checkpoint of the last step was written."""


def train(
    recipe: Recipe, out: Path, *, resume: bool = False, allow_changed_data: bool = False, log: Log = print
) -> Metrics:
    """Train a model by a recipe and save it in `out`, for from_pretrained. Returns the metrics of the final model.

    Args:
        recipe: from `load_recipe`.
        out: the folder of the run. It must be new or empty, unless `resume` is set. It is locked until the end.
        resume: continue from the last whole checkpoint in `out`. The weights are the same as without the stop. The
            recipe may have more steps than before: a line says what that changes.
        allow_changed_data: resume also if the data or the tokenizer are not those that the run began with.
        log: called with the settings before the first step and with the result; in the main process only.

    >>> from pathlib import Path
    >>> from tnn.training import load_recipe, train
    >>> train(load_recipe("mini-alm"), Path("runs/mini-alm"))  # doctest: +SKIP
    {'eval_loss': 1.1...}
    """
    if allow_changed_data and not resume:
        raise ValueError("changed data can only be allowed for a run that is resumed: give --resume too")
    init_distributed(recipe.training)
    if not PartialState().is_main_process:
        log = _no_log
    with _opened(out, recipe, resume):
        task, session = find_task(recipe.task), _Session(resume, allow_changed_data, log)
        if groups := task.trainings(recipe):
            return _train_groups(task, recipe, groups, out, session)
        if in_main_process(lambda: runs.is_finished(out) and not asks_for_other_steps(out, recipe)):
            log(f"{out} is finished already")
            return runs.load_measured(out)
        recipe = task.resolve(recipe, runs.load_run_recipe(out) if resume else None)
        with main_process_first():
            setup = task.build(recipe)
        metrics = _run(setup, recipe, out, session)
    log(f"{task.format_result(metrics)}; the model is in {out}")
    return metrics


class _Session(NamedTuple):
    """What the user asked for."""

    resume: bool
    allow_changed_data: bool
    log: Log


@contextmanager
def _opened(folder: Path, recipe: Recipe, resume: bool) -> Iterator[None]:
    """The folder of a run is checked and locked, by the main process for all."""
    with ExitStack() as stack:
        in_main_process(lambda: stack.enter_context(runs.opened(folder, recipe, resume)))
        yield


def _no_log(text: str) -> None:
    pass


def _train_groups(
    task: Task[Any], recipe: Recipe, groups: Mapping[str, Sequence[SubTraining]], out: Path, session: _Session
) -> Metrics:
    """Several trainings in folders of their own. Returns the best score of each group."""
    with main_process_first():
        setups = {name: task.build(group[0].recipe) for name, group in groups.items()}  # all data, before any training
        if PartialState().is_main_process:
            runs.begin(out, recipe, {})  # each training has its own fingerprints
    scores: dict[str, Metrics] = {}
    for name, group in groups.items():
        scores[name] = task.best([(training, _run_sub(training, setups[name], out, session)) for training in group])
        if PartialState().is_main_process:
            write_text(out / SCORES, json.dumps(scores, indent=2))
    session.log(task.score_table(scores))
    return {name: metrics["score"] for name, metrics in scores.items()}


def _run_sub(training: SubTraining, setup: TrainingSetup, out: Path, session: _Session) -> Metrics | None:
    """The metrics of a training, which may have been finished before; None if it diverged, and may."""
    folder = out / training.folder
    if not runs.is_finished(folder):
        try:
            resume = session.resume and (folder / runs.RECIPE).is_file()
            with _opened(folder, training.recipe, resume):
                _run(setup, training.recipe, folder, session._replace(resume=resume))
        except Diverged as error:
            if not training.may_diverge:
                raise
            session.log(f"{training.folder} diverged: {error}")
            return None
    return runs.load_measured(folder)


def _run(setup: TrainingSetup, recipe: Recipe, out: Path, session: _Session) -> Metrics:
    """One training, from its last checkpoint if there is one."""
    training = recipe.training
    fingerprints = in_main_process(setup.fingerprints)
    examples = len(setup.train)  # type: ignore[arg-type]
    change = in_main_process(lambda: describe_change(out, recipe, examples)) if session.resume else ""
    steps = planned_steps(training, examples)
    setup = setup.limit_eval(training.evaluate_examples)
    set_seed(training.seed)
    model = _make_model(setup)
    vocabulary = len(setup.processor) if isinstance(setup.processor, PreTrainedTokenizerBase) else None
    session.log(describe(recipe, model, setup.data_summary, vocabulary))
    use_cache = getattr(model.config, "use_cache", False)
    arguments = training_arguments(training, steps, str(out / runs.CHECKPOINTS), setup.metric, use_cache)
    in_main_process(lambda: _begin(out, recipe, fingerprints, session))
    interruption, run_log = Interruption(), runs.RunLog(out)
    trainer = RecipeTrainer(
        training,
        out,
        setup.processor,
        model=model,
        args=arguments,
        train_dataset=ShuffledEpochs(setup.train, training.seed, steps * training.batch_size, setup.repeats),
        eval_dataset=setup.validation,
        data_collator=setup.collate,
        compute_metrics=setup.metrics,
        callbacks=[*callbacks(recipe, run_log), interruption],
    )
    if change:
        session.log(change)
    checkpoint = in_main_process(lambda: _resume_from(out, run_log, session))
    try:
        with interruption.listening():
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if interruption.stopping:
            raise Interrupted(f"stopped after step {trainer.state.global_step} of {steps}")
        metrics = _evaluate(trainer, setup)
        _check_result(trainer, metrics)
    except Diverged as error:
        raise Diverged(f"{error}; {_advice(out)}") from None
    with runs.writing(f"the model of {out}"):
        trainer.save_model(str(out / runs.SCRATCH))  # all processes take part
        if PartialState().is_main_process:
            runs.finish(out, setup.processor, metrics, _card(out, recipe, setup, trainer, metrics))
    PartialState().wait_for_everyone()
    return metrics


def _card(out: Path, recipe: Recipe, setup: TrainingSetup, trainer: RecipeTrainer, metrics: Metrics) -> str:
    return model_card(
        out.resolve().name,
        recipe,
        trainer.model,
        metrics,
        steps=trainer.state.global_step,
        has_tokenizer=isinstance(setup.processor, PreTrainedTokenizerBase),
        data_summary=setup.data_summary,
        seconds=runs.RunLog(out).seconds(),
    )


def _make_model(setup: TrainingSetup) -> Any:
    try:
        return setup.make_model()
    except (TypeError, AttributeError, KeyError, ArithmeticError, RuntimeError, MemoryError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"the model of the recipe cannot be made: {reason}") from error


def _begin(out: Path, recipe: Recipe, fingerprints: Mapping[str, str | None], session: _Session) -> None:
    if session.resume and not session.allow_changed_data:
        runs.check_fingerprints(out, fingerprints)
    if runs.is_finished(out):
        runs.reopen(out)
    runs.begin(out, recipe, fingerprints)


def _check_result(trainer: RecipeTrainer, metrics: Metrics) -> None:
    """Raises an error if the final model is of no use."""
    evaluated, best = trainer.state.best_metric is not None, trainer.state.best_global_step
    if trainer.args.load_best_model_at_end and evaluated and best is None:
        raise Diverged("no evaluation had a finite result, so that no weights are the best")
    trainer.check_weights()
    for name, value in metrics.items():
        if name.endswith("_loss") and not math.isfinite(value):
            raise Diverged(f"the {name.replace('_', ' ')} of the final weights is {value}")


def _evaluate(trainer: RecipeTrainer, setup: TrainingSetup) -> Metrics:
    """The metrics of the final weights on each evaluation set."""
    metrics: Metrics = {}
    if trainer.args.load_best_model_at_end:
        trainer.remove_callback(JsonlLogger)  # these are not the weights of the last step
    for name, dataset in setup.eval_sets.items():
        values = _last_evaluation(trainer, name) or trainer.evaluate(dataset, metric_key_prefix=name)
        metrics |= {key: value for key, value in values.items() if not key.endswith(TIMES)}
    return metrics | dict(setup.majority_metrics)


def _last_evaluation(trainer: RecipeTrainer, name: str) -> Metrics | None:
    """The evaluation after the last step, if there was one of the final weights."""
    last = [entry for entry in trainer.state.log_history if entry["step"] == trainer.state.global_step]
    evaluations = [entry for entry in last if f"{name}_loss" in entry]
    if not evaluations or trainer.args.load_best_model_at_end:
        return None
    return {key: value for key, value in evaluations[-1].items() if key != "step"}


def _resume_from(out: Path, run_log: runs.RunLog, session: _Session) -> Path | None:
    """The last whole checkpoint. Log entries after it are removed."""
    checkpoint = choose_checkpoint(out, session.log)
    if session.resume and checkpoint is None and (step := run_log.last_saved()) is not None:
        gone = f"the checkpoints in {out / runs.CHECKPOINTS} are gone, the last of step {step}"
        raise FileNotFoundError(f"{gone}: put them back, or start anew with another --out")
    run_log.cut(runs.step_of(checkpoint))
    if session.resume:
        start = "no checkpoint was written yet: starting" if checkpoint is None else "continuing"
        session.log(f"{start} at step {runs.step_of(checkpoint) + 1:,}")
    return checkpoint


def _advice(out: Path) -> str:
    """What can be done after a divergence."""
    checkpoint = runs.last_checkpoint(out)
    if checkpoint is None:
        return "there is no checkpoint before it; try a lower training.learning_rate, or training.clip"
    again = f"model.preset=null model.start_from={checkpoint}"
    return f"{checkpoint} is the last checkpoint; start a new run from it with {again} and a lower learning rate"
