"""Trials of bidirectional language models: a method is pre-trained on text, then fine-tuned on GLUE tasks."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paper import published
from paper.harness.mixers import is_own_mixer
from paper.harness.trainings import Search, Setup, measure_trained, search_trials, training_trial
from paper.harness.trial import Metrics, Options, Scale, Trial, TrialContext
from tnn.layers import count_parameters
from tnn.training import runs
from tnn.training.evaluation import load_model
from tnn.training.perplexity import from_loss
from tnn.training.schema import ModelSection, Recipe
from tnn.training.tasks.glue import GlueRecipe

GLUE_METHODS = tuple(published.GLUE)
FIRST_TOKEN = "tnn-first"  # TNN with the head of the other methods: the first token, not the mean over all
GLUE_ROWS = (*GLUE_METHODS, FIRST_TOKEN)


@dataclass(frozen=True)
class GlueScaleSettings:
    """What is trained and measured at a scale."""

    recipe: str  # of TNN's pre-training; RECIPE-METHOD is the preset of a method
    steps: int  # of the pre-training
    changes: tuple[str, ...]
    method_changes: tuple[str, ...]  # for all methods except TNN
    paths: tuple[str, ...]
    search: Search | None
    tasks: Mapping[str, Setup]  # the fine-tunings


def _mini_task(name: str, epochs: float) -> Setup:
    task = (f"data.tasks=[{name}]", "learning_rates=[5e-4, 1e-3]")
    training = (f"training.epochs={epochs}", "training.batch_size=16", "training.patience=null")
    every = ("training.evaluate_every=150", "training.save_every=150")
    return Setup("mini-glue", (*task, *training, *every), ("data.glue",))


# At mini scale a method takes about ten minutes on one core, half of it for pre-training. Batches of 8 x 128 tokens get
# further in the same time than larger ones: for many updates a masked model learns little but frequent words.
SCALES: dict[Scale, GlueScaleSettings] = {
    "mini": GlueScaleSettings(
        recipe="mini-blm",
        steps=1200,
        changes=(
            "data.corpus=wikitext-2",
            "training.batch_size=8",
            "training.log_every=50",
            "training.evaluate_every=null",
            "training.evaluate_examples=512",
            "training.save_every=500",
        ),
        method_changes=(),
        paths=("data.corpus",),
        search=Search(rates=(1e-3, 2e-3, 4e-3), steps=100),
        tasks={
            "sst2": _mini_task("sst2", epochs=0.1),
            "mrpc": _mini_task("mrpc", epochs=1),
            "cola": _mini_task("cola", epochs=0.5),
        },
    ),
    "paper": GlueScaleSettings(
        recipe="wikitext103-blm",
        steps=50_000,
        changes=(),
        method_changes=("training.weight_decay=0.1",),
        paths=("data.corpus", "data.tokenizer"),
        search=None,
        tasks={
            name: Setup(f"glue-{name}", (), ("data.glue",)) for name in ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola")
        },
    ),
}


def pre_trainings(row: str, options: Options) -> tuple[list[Trial], list[Trial]]:
    """The trials that choose the learning rate of a row's method, and its trainings, one per seed."""
    method = "tnn" if row == FIRST_TOKEN else row
    setup, search = _setup(method, options), SCALES[options.scale].search
    if search is not None:
        search = Search(search.rates, max(1, int(search.steps * _share(options))))
    searches = search_trials("glue", method, setup, search, part="pre-training")
    train = partial(training_trial, "glue", method, setup, searches=searches, measure=_measure, part="pre-training")
    return searches, [train(seed) for seed in range(options.seeds or 1)]


def _setup(method: str, options: Options) -> Setup:
    scale = SCALES[options.scale]
    own: tuple[str, ...] = ()
    if method != "tnn":
        change = f"model.mixer={method}" if is_own_mixer(method) else f"model.preset={scale.recipe}-{method}"
        own = (change, *scale.method_changes)
    steps = options.steps or scale.steps
    lasts = [f"training.steps={steps}"]
    if options.scale == "mini":
        lasts.append(f"training.warmup_steps={max(1, steps // 10)}")
    return Setup(scale.recipe, (*scale.changes, *own, *lasts), scale.paths)


def _share(options: Options) -> float:
    """The share of the default updates that --steps asks for; searches and fine-tunings are shortened alike."""
    return 1.0 if options.steps is None else options.steps / SCALES[options.scale].steps


def _measure(folder: Path, recipe: Recipe) -> Metrics:
    """Parameters are counted as in the paper."""
    return {
        "validation_perplexity": from_loss(runs.load_measured(folder)["eval_loss"]),
        "parameters": sum(count_parameters(load_model(folder))),
    }


def tuning_trial(row: str, of: Trial, task: str, options: Options) -> Trial:
    """The fine-tuning of a pre-trained model on a task with several rates; the best score on the dev set counts."""
    changes = {"pooling": "first"} if row == FIRST_TOKEN else {}
    setup = SCALES[options.scale].tasks[task]
    epochs = (setup.load().training.epochs or 1) * _share(options)
    recipe = setup.load(epochs=epochs, seed=of.seed)
    assert isinstance(recipe, GlueRecipe)
    chosen = recipe.model_dump(mode="json", exclude={"about", "name", "model"}, exclude_defaults=True)

    def work(context: TrialContext) -> Metrics:
        def tune(base: Path) -> Metrics:
            section = ModelSection(start_from=str(base), **changes)
            return _tune(recipe, section, context.data, trial.folder(context))

        metrics = measure_trained(of, context, tune)
        return {"score": 0.0, **metrics} if "failed" in metrics else metrics  # 0, as in the paper's averages

    cost = max(1.0, 400 * _share(options))  # in updates of a pre-training
    trial = Trial("glue", row, {"of": of.settings, "recipe": chosen, **changes}, work, task, of.seed, cost)
    return trial


def _tune(recipe: GlueRecipe, model: ModelSection, data: Path, out: Path) -> Metrics:
    """The scores; the fine-tuned models are not kept."""
    from tnn.training.run_recipe import SCORES, train

    sentences = recipe.data.model_copy(update={"glue": str(data / recipe.data.glue)})
    recipe = recipe.model_copy(update={"model": model, "data": sentences})
    train(recipe, out, resume=(out / runs.RECIPE).is_file(), log=lambda text: None)
    scores: Metrics = json.loads((out / SCORES).read_text())[recipe.data.tasks[0]]
    shutil.rmtree(out)
    return scores
