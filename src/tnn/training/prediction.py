"""Predictions of a trained model about new inputs."""

from collections.abc import Iterator
from pathlib import Path

from tnn.training.evaluation import check_whole, load_model, task_of
from tnn.training.runs import load_run_recipe
from tnn.training.tasks.task import PredictionOptions, Row


def predict(
    folder: Path,
    source: str,
    *,
    batch_size: int = 32,
    horizon: int | None = None,
    whole: bool = False,
    chunk: int = 4096,
) -> Iterator[Row]:
    """What a classifier or a forecaster says about new inputs, one row after the other.

    Args:
        folder: of a run, or of a model that save_pretrained wrote.
        source: a file, the input itself, or "-" for standard input.
        batch_size: inputs that are computed at once.
        horizon: steps ahead, of a forecast; by default those of the training.
        whole: read texts to their end that are longer than those of the training (`data.length`), and would be cut.
        chunk: tokens of such a text that are computed at once; it has no effect on the result.

    >>> from pathlib import Path
    >>> from tnn.training import predict
    >>> next(predict(Path("runs/reviews"), "A fine film."))  # doctest: +SKIP
    {'text': 'A fine film.', 'prediction': 'good', 'probability': 0.98, ...}
    """
    model = load_model(folder)
    task, recipe = task_of(model, load_run_recipe(folder))
    check_whole(task, folder, whole)
    return task.predict(folder, model, recipe, source, PredictionOptions(batch_size, horizon, whole, chunk))
