"""How models that put examples into classes are judged."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def accuracy(found: Any) -> dict[str, float]:
    """Of what a model puts out, in the form of transformers' EvalPrediction.

    >>> import numpy as np
    >>> from transformers import EvalPrediction
    >>> accuracy(EvalPrediction(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])))
    {'accuracy': 0.5}
    """
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


def majority_accuracy(train: Any, evaluations: Mapping[str, Any]) -> dict[str, float]:
    """Of the class that is most frequent in training, on each set; sets have `labels`, one an example."""
    largest = np.bincount(np.asarray(train.labels)).argmax()
    return {f"majority_{name}_accuracy": _share(np.asarray(s.labels), largest) for name, s in evaluations.items()}


def _share(labels: NDArray[np.int64], value: np.int64) -> float:
    return float((labels == value).mean())
