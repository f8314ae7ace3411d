"""What tasks with classes, or scores, share: their metrics and their evaluation."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from tnn.training.tasks.task import EvaluationOptions, Metrics, RecipeType, Task

if TYPE_CHECKING:
    from transformers import EvalPrediction


class EvaluationSets(NamedTuple):
    """Labelled examples by split, and how a model is scored on them."""

    sets: Mapping[str, Any]
    collate: Callable[[list[Any]], dict[str, Any]]
    metrics: Callable[["EvalPrediction"], Metrics]


class ClassificationTask(Task[RecipeType]):
    """A task with one label per example. Subclasses say where the labelled examples are."""

    source_key: str  # of the section `data`: where the examples are

    def evaluation_sets(self, folder: Path, model: Any, recipe: RecipeType) -> EvaluationSets:
        """The labelled examples of a recipe, as a trained model in `folder` reads them."""
        raise NotImplementedError

    def evaluate(self, folder: Path, model: Any, recipe: RecipeType | None, options: EvaluationOptions) -> str:
        recipe = self.scored_recipe(folder, recipe, options)
        sets, collate, metrics = self.evaluation_sets(folder, model, recipe)
        lines = []
        for split, dataset in sets.items():
            scores = metrics(predict_set(folder, model, split, dataset, collate))
            lines += [f"{name:13}  {score:.4f} on {split}, {len(dataset):,} examples" for name, score in scores.items()]
        return "\n".join(lines)

    def scored_recipe(self, folder: Path, recipe: RecipeType | None, options: EvaluationOptions) -> RecipeType:
        """The recipe that says where the examples are; a ValueError for options that no classifier has."""
        if options.length is not None or options.stream or options.split is not None:
            raise ValueError(
                "classifiers are scored on all labelled examples: --split, --length and --stream do not apply"
            )
        if recipe is None:
            raise ValueError(f"{folder} has no recipe of a classification task, so its classes are not known")
        if options.source is None:
            return recipe
        data = recipe.data.model_copy(update={self.source_key: options.source})
        return recipe.model_copy(update={"data": data})

    def format_result(self, metrics: Metrics) -> str:
        if "eval_accuracy" not in metrics:
            return super().format_result(metrics)
        names = {"eval": "validation", "test": "test"}
        return ", ".join(
            f"{names[key]} accuracy {metrics[f'{key}_accuracy']:.4f} "
            f"({metrics[f'majority_{key}_accuracy']:.4f} by the most frequent class)"
            for key in names
            if f"{key}_accuracy" in metrics
        )


@torch.inference_mode()
def predict_set(folder: Path, model: Any, split: str, dataset: Any, collate: Any) -> "EvalPrediction":
    """The outputs of a model for all examples of a set, with their labels."""
    from transformers import EvalPrediction

    outputs, labels = [], []
    for batch in DataLoader(dataset, batch_size=32, collate_fn=collate):
        labels.append(batch.pop("labels").numpy())
        outputs.append(model(**{key: value.to(model.device) for key, value in batch.items()}).logits.cpu().numpy())
    if not all(np.isfinite(logits).all() for logits in outputs):  # argmax would take a class for it
        raise ArithmeticError(f"outputs of {folder} are NaN or infinite on {split}")
    return EvalPrediction(np.concatenate(outputs), np.concatenate(labels))


def accuracy(prediction: "EvalPrediction") -> Metrics:
    """The share of examples whose highest logit is that of their label.

    >>> import numpy as np
    >>> from transformers import EvalPrediction
    >>> from tnn.training.tasks.classification import accuracy
    >>> accuracy(EvalPrediction(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])))
    {'accuracy': 0.5}
    """
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def majority_accuracy(train: Any, eval_sets: Mapping[str, Any]) -> Metrics:
    """The accuracy of the most frequent training class on each set. Sets have `labels`, one per example."""
    largest = np.bincount(np.asarray(train.labels)).argmax()
    return {f"majority_{name}_accuracy": _share(np.asarray(s.labels), largest) for name, s in eval_sets.items()}


def _share(labels: NDArray[np.int64], value: np.int64) -> float:
    return float((labels == value).mean())
