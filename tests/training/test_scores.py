"""Scores of predicted labels, against plain counting."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.labels import read_labels
from tnn.training.scores import confusion_matrix, constant_predictions, count_classes, decide, losses, score

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


def f1(rows, k):
    right = sum(x == y == k for x, y in rows)
    return 2 * right / max(1, sum(x == k for x, _ in rows) + sum(y == k for _, y in rows))


@pytest.mark.slow
@given(rows=pairs)
def test_one_class(rows):
    predictions, labels = map(np.array, zip(*rows, strict=True))
    counts = count_classes(predictions, labels, 4)
    occurring = sorted(set(predictions) | set(labels))
    assert counts.f1.tolist() == pytest.approx([f1(rows, k) for k in range(4)])
    scores = score("single", predictions, labels, 4)
    assert scores["accuracy"] == pytest.approx(np.mean(predictions == labels))
    assert scores["macro_f1"] == pytest.approx(np.mean([f1(rows, k) for k in occurring]))
    matrix = confusion_matrix(predictions, labels, 4)
    assert all(matrix[y, x] == rows.count((x, y)) for x in range(4) for y in range(4))
    assert counts.micro_f1 == pytest.approx(scores["accuracy"])


@given(rows=st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=9))
def test_several_classes(rows):
    predictions, labels = (np.array([[pair[k] for pair in row] for row in rows]).astype(int) for k in (0, 1))
    flat = [pair for row in rows for pair in row]
    scores = score("several", predictions, labels.astype(np.float32), 3)
    assert scores["micro_f1"] == pytest.approx(f1(flat, True))
    by_class = [f1([row[k] for row in rows], True) for k in range(3) if any(any(row[k]) for row in rows)]
    assert scores["macro_f1"] == pytest.approx(np.mean(by_class) if by_class else 0)


def test_numbers():
    predictions, labels = np.array([1.0, 2.0, 3.5]), np.array([1.0, 2.0, 4.0])
    scores = score("regression", predictions, labels, 1)
    assert scores["mse"] == pytest.approx(0.25 / 3)
    assert scores["r2"] == pytest.approx(1 - 0.25 / ((labels - labels.mean()) ** 2).sum())
    assert scores["spearman"] == pytest.approx(1)
    assert score("regression", np.full(3, labels.mean()), labels, 1)["r2"] == pytest.approx(0)
    assert score("regression", predictions, np.ones(3), 1)["r2"] == 0


def test_losses_are_those_of_torch():
    logits = np.random.default_rng(0).normal(size=(5, 3)) * 20
    x, one, some = torch.tensor(logits), torch.tensor([0, 2, 1, 1, 0]), torch.eye(5, 3, dtype=torch.float64)
    expected = F.cross_entropy(x, one, reduction="none")
    assert losses("single", logits, one.numpy()) == pytest.approx(expected.numpy())
    expected = F.binary_cross_entropy_with_logits(x, some, reduction="none").sum(1)
    assert losses("several", logits, some.numpy()) == pytest.approx(expected.numpy())
    numbers = some[:, 0].numpy()
    assert losses("regression", logits[:, :1], numbers) == pytest.approx((logits[:, 0] - numbers) ** 2)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("single", ["a", "b", "b"], [1, 1]),
        ("several", [["a", "b"], ["b"], []], [[0, 1], [0, 1]]),
        ("regression", [1, 2, 6], [3, 3]),
    ],
)
def test_baselines(kind, values, expected):
    assert constant_predictions(read_labels(values, "a", kind), 2).tolist() == expected


def test_decisions():
    logits = np.array([[0.1, -1.0], [-1.0, -0.5]])
    assert decide("single", logits).tolist() == [0, 1]
    assert decide("several", logits).tolist() == [[1, 0], [0, 0]]
    assert decide("regression", logits[:, :1]).tolist() == [0.1, -1.0]
