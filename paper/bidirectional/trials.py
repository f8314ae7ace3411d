"""Trials of bidirectional language models: a method is pre-trained on text, then fine-tuned on tasks of GLUE."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paper import published
from paper.harness.mixers import is_own_mixer
from paper.harness.trainings import Search, Setup, measure_trained, search_trials, training_trial
from paper.harness.trial import Metrics, Options, Place, Scale, Trial
from tnn.layers import count_parameters
from tnn.training import runs
from tnn.training.evaluation import load_model
from tnn.training.perplexity import from_loss
from tnn.training.recipe import GlueRecipe, ModelSection, Recipe

METHODS = tuple(published.GLUE)
FIRST_TOKEN = "tnn-first"  # TNN with the head of all others: it reads the first token, not the mean over all
ROWS = (*METHODS, FIRST_TOKEN)


@dataclass(frozen=True)
class Extent:
    """How much is done at a scale."""

    recipe: str  # of TNN's pre-training; its name with that of a method is the method's preset
    steps: int  # of the pre-training
    changes: tuple[str, ...]
    others: tuple[str, ...]  # changes for the methods beside TNN
    paths: tuple[str, ...]
    search: Search | None
    tasks: Mapping[str, Setup]  # the fine-tunings


def _mini_task(name: str, epochs: float) -> Setup:
    task = (f"data.tasks=[{name}]", "learning_rates=[5e-4, 1e-3]")
    training = (f"training.epochs={epochs}", "training.batch_size=16", "training.patience=null")
    every = ("training.evaluate_every=150", "training.save_every=150")
    return Setup("mini-glue", (*task, *training, *every), ("data.glue",))


# At mini scale a method takes about ten minutes of one core, half of them for the text. There batches of 8 x 128 tokens
# come further in the same time than larger ones: a masked model knows little but frequent words for many updates.
EXTENTS: dict[Scale, Extent] = {
    "mini": Extent(
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
        others=(),
        paths=("data.corpus",),
        search=Search(rates=(1e-3, 2e-3, 4e-3), steps=100),
        tasks={
            "sst2": _mini_task("sst2", epochs=0.1),
            "mrpc": _mini_task("mrpc", epochs=1),
            "cola": _mini_task("cola", epochs=0.5),
        },
    ),
    "paper": Extent(
        recipe="wikitext103-blm",
        steps=50_000,
        changes=(),
        others=("training.weight_decay=0.1",),
        paths=("data.corpus", "data.tokenizer"),
        search=None,
        tasks={
            name: Setup(f"glue-{name}", (), ("data.glue",)) for name in ("mnli", "qnli", "qqp", "sst2", "mrpc", "cola")
        },
    ),
}


def pre_trainings(row: str, options: Options) -> tuple[list[Trial], list[Trial]]:
    """The trials that choose the learning rate of a row's method, and its trainings, one a seed."""
    method = "tnn" if row == FIRST_TOKEN else row
    setup, search = _setup(method, options), EXTENTS[options.scale].search
    if search is not None:
        search = Search(search.rates, max(1, int(search.steps * _share(options))))
    searches = search_trials("glue", method, setup, search, part="pre-training")
    train = partial(training_trial, "glue", method, setup, searches=searches, measure=_measure, part="pre-training")
    return searches, [train(seed) for seed in range(options.seeds or 1)]


def _setup(method: str, options: Options) -> Setup:
    extent = EXTENTS[options.scale]
    own: tuple[str, ...] = ()
    if method != "tnn":
        change = f"model.mixer={method}" if is_own_mixer(method) else f"model.preset={extent.recipe}-{method}"
        own = (change, *extent.others)
    steps = options.steps or extent.steps
    lasts = [f"training.steps={steps}"]
    if options.scale == "mini":
        lasts.append(f"training.warmup_steps={max(1, steps // 10)}")
    return Setup(extent.recipe, (*extent.changes, *own, *lasts), extent.paths)


def _share(options: Options) -> float:
    """Of all updates, that are done: what --steps has of a pre-training, the other trainings have of theirs."""
    return 1.0 if options.steps is None else options.steps / EXTENTS[options.scale].steps


def _measure(folder: Path, recipe: Recipe) -> Metrics:
    """The parameters are in the paper's way of counting."""
    return {
        "validation_perplexity": from_loss(runs.load_measured(folder)["eval_loss"]),
        "parameters": sum(count_parameters(load_model(folder))),
    }


def tuning_trial(row: str, of: Trial, task: str, options: Options) -> Trial:
    """The fine-tuning of a pre-trained model on a task, with each of some rates; the best on the dev set counts."""
    changes = {"pooling": "first"} if row == FIRST_TOKEN else {}
    setup = EXTENTS[options.scale].tasks[task]
    epochs = (setup.load().training.epochs or 1) * _share(options)
    recipe = setup.load(epochs=epochs, seed=of.seed)
    assert isinstance(recipe, GlueRecipe)
    chosen = recipe.model_dump(mode="json", exclude={"about", "name", "model"}, exclude_defaults=True)

    def work(place: Place) -> Metrics:
        def tune(base: Path) -> Metrics:
            section = ModelSection(start_from=str(base), **changes)
            return _tune(recipe, section, place.data, trial.folder(place))

        metrics = measure_trained(of, place, tune)
        return {"score": 0.0, **metrics} if "failed" in metrics else metrics  # 0, as in the paper's averages

    cost = max(1.0, 400 * _share(options))  # as so many updates of a pre-training
    trial = Trial("glue", row, {"of": of.settings, "recipe": chosen, **changes}, work, task, of.seed, cost)
    return trial


def _tune(recipe: GlueRecipe, model: ModelSection, data: Path, out: Path) -> Metrics:
    """What counts is the score; the tuned models are not kept."""
    from tnn.training.run_recipe import SCORES, train

    sentences = recipe.data.model_copy(update={"glue": str(data / recipe.data.glue)})
    recipe = recipe.model_copy(update={"model": model, "data": sentences})
    train(recipe, out, resume=(out / runs.RECIPE).is_file(), say=lambda text: None)
    found: Metrics = json.loads((out / SCORES).read_text())[recipe.data.tasks[0]]
    shutil.rmtree(out)
    return found
