"""Scores of predicted labels: one class per text, several classes, or a number."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tnn.data.correlation import spearman
from tnn.data.labels import Kind, Labels

Array = NDArray[Any]
BASELINES: dict[Kind, str] = {
    "single": "the most frequent class",
    "several": "the most frequent class",
    "regression": "the mean",
}
HEADLINES: dict[Kind, str] = {"single": "accuracy", "several": "micro_f1", "regression": "r2"}
METRIC_NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "r2": "R2",
    "mse": "squared error",
    "spearman": "Spearman",
}


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """For each class: how many texts have it, for how many it was predicted, and for how many rightly."""

    actual: Array
    predicted: Array
    right: Array

    @property
    def precision(self) -> Array:
        return _ratio(self.right, self.predicted)

    @property
    def recall(self) -> Array:
        return _ratio(self.right, self.actual)

    @property
    def f1(self) -> Array:
        return _ratio(2 * self.right, self.actual + self.predicted)

    @property
    def macro_f1(self) -> float:
        """The mean over the classes that occur, in the labels or in the predictions."""
        occurs = self.actual + self.predicted > 0
        return float(self.f1[occurs].mean()) if occurs.any() else 0.0

    @property
    def micro_f1(self) -> float:
        return float(_ratio(2 * self.right.sum(), (self.actual + self.predicted).sum()))


def _ratio(part: Array, whole: Array) -> Array:
    """0 where there is nothing to divide by."""
    return np.asarray(part / np.maximum(whole, 1))


def count_classes(predictions: Array, labels: Array, classes: int) -> ClassCounts:
    """From classes (n,), or of several per text (n, classes) of 0 and 1.

    >>> import numpy as np
    >>> from tnn.training.scores import count_classes
    >>> counts = count_classes(np.array([1, 1, 0]), np.array([1, 0, 0]), classes=2)
    >>> counts.precision.tolist(), counts.recall.tolist()
    ([1.0, 0.5], [0.5, 1.0])
    """
    if labels.ndim == 2:
        return ClassCounts(*(x.sum(0).astype(np.int64) for x in (labels, predictions, predictions * labels)))
    right = labels[predictions == labels]
    return ClassCounts(*(np.bincount(x, minlength=classes) for x in (labels, predictions, right)))


def confusion_matrix(predictions: Array, labels: Array, classes: int) -> Array:
    """(classes, classes): texts of each class (rows) by the class that was predicted (columns).

    >>> import numpy as np
    >>> from tnn.training.scores import confusion_matrix
    >>> confusion_matrix(np.array([1, 1, 0]), np.array([1, 0, 0]), classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    return np.bincount(labels * classes + predictions, minlength=classes**2).reshape(classes, classes)


def score(kind: Kind, predictions: Array, labels: Array, classes: int) -> dict[str, float]:
    """The metrics of a kind of labels, the headline first.

    >>> import numpy as np
    >>> from tnn.training.scores import score
    >>> score("single", np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]), classes=2)
    {'accuracy': 0.75, 'macro_f1': 0.73...}
    """
    if kind == "regression":
        x, y = predictions.astype(np.float64), labels.astype(np.float64)
        mse = float(((x - y) ** 2).mean())
        variance = float(y.var())
        r2 = 1 - mse / variance if variance else 0.0
        return {"r2": r2, "mse": mse, "spearman": spearman(x, y)}
    counts = count_classes(predictions, labels, classes)
    if kind == "several":
        return {"micro_f1": counts.micro_f1, "macro_f1": counts.macro_f1}
    return {"accuracy": float((predictions == labels).mean()), "macro_f1": counts.macro_f1}


def decide(kind: Kind, logits: Array) -> Array:
    """The predictions of a model: the likeliest class (n,), those above one half (n, classes), or the number (n,).

    >>> import numpy as np
    >>> from tnn.training.scores import decide
    >>> decide("several", np.array([[0.3, -1.0, 2.0]])).tolist()
    [[1, 0, 1]]
    """
    if kind == "several":
        return np.asarray(logits > 0).astype(np.int64)
    return np.asarray(logits.argmax(-1) if kind == "single" else logits.squeeze(-1))


def losses(kind: Kind, logits: Array, labels: Array) -> Array:
    """(n,) of each text: cross-entropy, its sum over several classes, or the squared error.

    >>> import numpy as np
    >>> from tnn.training.scores import losses
    >>> losses("single", np.array([[0.0, 0.0]]), np.array([1])).round(3).tolist()
    [0.693]
    """
    logits = logits.astype(np.float64)
    if kind == "regression":
        return np.asarray((logits.squeeze(-1) - labels) ** 2)
    if kind == "several":
        return np.asarray((np.logaddexp(0, logits) - labels * logits).sum(-1))
    likelihood = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return np.asarray(np.logaddexp.reduce(logits, axis=1) - likelihood)


def constant_predictions(train: Labels, count: int) -> Array:
    """The baseline: the most frequent class of the training, or the mean of its numbers, for all of `count` texts."""
    if train.kind == "regression":
        return np.full(count, train.values.mean())
    if train.kind == "single":
        return np.full(count, train.most_frequent())
    return np.tile(np.arange(len(train.names)) == train.most_frequent(), (count, 1)).astype(np.int64)
