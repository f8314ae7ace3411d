"""Naive Bayes on words, compared with probabilities that are computed word by word."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.training import naive_bayes
from tnn.training.naive_bayes import WORD, NaiveBayes

WORDS = st.sampled_from(["a", "b", "B", "c", "é", "😀", "!", "10"])
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=12)


def slow_scores(texts, labels, classes, text):
    """Of each class: log P(class) + the sum of log P(word | class)."""
    counts = [{} for _ in range(classes)]
    for one, label in zip(texts, labels, strict=True):
        for word in WORD.findall(one.lower()):
            counts[label][word] = counts[label].get(word, 0) + 1
    vocabulary = {word for count in counts for word in count}
    scores = []
    for label, count in enumerate(counts):
        share = labels.count(label) / len(labels)
        score = math.log(share) if share else -math.inf
        total = sum(count.values()) + len(vocabulary)
        for word in WORD.findall(text.lower()):
            if word in vocabulary:
                score += math.log((count.get(word, 0) + 1) / total)
        scores.append(score)
    return scores


@given(st.data(), TEXTS, TEXTS, st.integers(1, 4))
@settings(deadline=None)
def test_predictions_are_the_likeliest_classes(data, texts, new, classes):
    labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=len(texts), max_size=len(texts)))
    predicted = NaiveBayes(texts, labels, classes).predict(new)
    for text, label in zip(new, predicted, strict=True):
        scores = slow_scores(texts, labels, classes, text)
        assert scores[label] >= max(scores) - 1e-9


def test_many_texts_are_read_some_at_a_time(monkeypatch):
    texts = [f"{'fine' if number % 3 else 'poor'} film {number}" for number in range(50)]
    labels = [int(number % 3 > 0) for number in range(50)]
    whole = NaiveBayes(texts, labels, 2)
    monkeypatch.setattr(naive_bayes, "AT_ONCE", 7)
    parts = NaiveBayes(iter(texts), np.array(labels), 2)
    assert np.array_equal(parts.bonus, whole.bonus)
    assert np.array_equal(parts.predict(iter(texts)), labels)
    assert parts.predict([]).tolist() == []
