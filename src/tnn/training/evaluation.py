"""Evaluation of a trained model, by the protocol of its task."""

from pathlib import Path
from typing import Any

import torch

from tnn.models import TNNImageModel, TNNModel, TNNSeriesModel
from tnn.models.loading import architecture_of, load_strictly, read_config
from tnn.training.checkpoints import is_checkpoint
from tnn.training.runs import load_run_recipe
from tnn.training.schema import Recipe
from tnn.training.tasks import language
from tnn.training.tasks.registry import find_task, list_tasks
from tnn.training.tasks.setup import checked_model_folder
from tnn.training.tasks.task import EvaluationOptions, Task

WITHOUT_TASK = (TNNModel, TNNImageModel, TNNSeriesModel)


def evaluate(
    folder: Path,
    source: str | None = None,
    *,
    split: str | None = None,
    length: int | None = None,
    stream: bool = False,
    chunk: int = 4096,
    page: Path | None = None,
    whole: bool = False,
) -> str:
    """The perplexity of a language model, or the scores of a classifier or a forecaster, and how they were measured.

    Args:
        folder: of a run, or of a model that save_pretrained wrote.
        source: another text, other labelled examples, or another table of series, than those of the training.
        split: of the text, or part of the series; "test" by default.
        length: tokens per block, or values before a forecast; by default that of the training.
        stream: read the text as one sequence, each token predicted from all before it.
        chunk: tokens that are computed at once in a stream, or of a long text; it has no effect on the result.
        page: a .html file for the scores and the hardest texts, of a classifier of texts or of tokens.
        whole: of a classifier of texts, read those to their end that are longer than `data.length`.

    >>> from pathlib import Path
    >>> from tnn.training import evaluate
    >>> print(evaluate(Path("runs/mini-alm")))  # doctest: +SKIP
    tokens         1,054,221 predicted
    ...
    """
    _check_source(source)
    model = load_model(folder)
    task, recipe = task_of(model, load_run_recipe(folder))
    if page is not None and not task.writes_page:
        raise ValueError(f"there is no page about {folder}: --page is for classifiers of texts or tokens in a table")
    check_whole(task, folder, whole)
    return task.evaluate(folder, model, recipe, EvaluationOptions(source, split, length, stream, chunk, page, whole))


def check_whole(task: Task[Any], folder: Path, whole: bool) -> None:
    """A ValueError if texts are to be read whole by a task that has no such choice."""
    if whole and not task.reads_whole:
        raise ValueError(f"--whole is for classifiers of texts in a table; {folder} is of another task")


def load_model(folder: Path) -> Any:
    """A model with any head, or without one, from a folder that save_pretrained wrote; on the best device.

    Its weights must be those of its file, exactly and finite: see `tnn.models.loading`.
    """
    folder = checked_model_folder(folder)
    config = read_config(folder)
    architecture = architecture_of(config, folder)
    with_task = [cls for name in list_tasks() for cls in find_task(name).model_classes]
    known: dict[str, Any] = {cls.__name__: cls for cls in (*with_task, *WITHOUT_TASK)}
    if architecture not in known:
        raise ValueError(f"{folder} must hold one of {', '.join(known)}; got a {architecture}")
    return load_strictly(known[architecture], folder, config).to(_device())


def _device() -> torch.device:
    """MPS is left out: it has no float64, which state spaces need."""
    best = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if best is None or best.type == "mps" else best


def task_of(model: Any, recipe: Recipe | None) -> tuple[Task[Any], Recipe | None]:
    """The task of the recipe, or without a recipe for this kind of model, the first task with such models."""
    if recipe is not None and isinstance(model, find_task(recipe.task).model_classes):
        return find_task(recipe.task), recipe
    tasks = (find_task(name) for name in list_tasks())
    task = next((task for task in tasks if isinstance(model, task.model_classes)), None)
    if task is None:
        raise ValueError(f"a {type(model).__name__} belongs to no task: there is nothing to evaluate")
    return task, None


def load_text(folder: Path, model: Any, source: str | None, split: str) -> language.Text:
    """A split of the corpus that a language model was trained on, or of another `source`, in its tokens.

    `source` is what `open_corpus` takes; a single file is one split.
    """
    _check_source(source)
    return language.load_text(folder, model, load_run_recipe(folder), source, split)


def separate_lines(folder: Path) -> bool:
    """Whether a language model was trained on a text whose lines end in `</s>`: line ends were not text.

    `folder` is that of a model, a run, or a checkpoint in a run.

    >>> from pathlib import Path
    >>> from tnn.training.evaluation import separate_lines
    >>> separate_lines(Path("no-such-folder"))
    False
    """
    recipe = load_run_recipe(folder.parent.parent if is_checkpoint(folder) else folder)
    return isinstance(recipe, language.TextRecipe) and recipe.data.lines == "separate"


def _check_source(source: str | None) -> None:
    """An empty name would be the current folder."""
    if source == "":
        raise ValueError("give a text: the name of the text is empty")
