"""Naive Bayes on words: what counting achieves, the floor for a classifier of texts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tnn.training.scores import Array

WORD = re.compile(r"\w+|[^\w\s]")
AT_ONCE = 1000  # texts


class NaiveBayes:
    """Multinomial naive Bayes on lower-case words and punctuation marks, with one added to each count.

    Texts are read once, some at a time. Memory is that of the different words of each class.

    >>> from tnn.training.naive_bayes import NaiveBayes
    >>> bayes = NaiveBayes(["a fine film", "Fine!", "a poor film"], [1, 1, 0], classes=2)
    >>> bayes.predict(["a fine one", "poor"]).tolist()
    [1, 0]
    """

    def __init__(self, texts: Iterable[str], labels: Sequence[int] | Array, classes: int):
        labels = np.asarray(labels, np.int64)
        keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)  # of each word in each class
        for start, words, which in _batches(texts):
            pairs = words * classes + labels[start + which]
            keys, counts = _added(keys, counts, pairs)
        self.words, self.of_class = np.divmod(keys, classes)
        self.bonus = np.log1p(counts)
        self.known = np.unique(self.words)
        of_words = np.bincount(self.of_class, counts, minlength=classes)
        of_texts = np.bincount(labels, minlength=classes)
        self.price = np.log(of_words + max(1, len(self.known)))  # of each word
        self.prior = np.log(np.maximum(of_texts, 1e-9) / len(labels))  # a class without texts is never predicted

    def predict(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """The likeliest class of each text. Words that no training text has are passed over."""
        return np.concatenate([np.empty(0, np.int64), *map(self._predict, _chunks(texts))])

    def _predict(self, texts: list[str]) -> NDArray[np.int64]:
        words, which = _words(texts)
        seen = np.isin(words, self.known)
        words, which = words[seen], which[seen]
        scores = self.prior - np.bincount(which, minlength=len(texts))[:, None] * self.price  # (texts, classes)
        first, end = (np.searchsorted(self.words, words, side) for side in ("left", "right"))
        entries = _ranges(first, end)
        np.add.at(scores, (np.repeat(which, end - first), self.of_class[entries]), self.bonus[entries])
        return scores.argmax(1)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, AT_ONCE)):
        yield chunk


def _batches(texts: Iterable[str]) -> Iterator[tuple[int, Array, Array]]:
    """The number of the first text, the words, and which of the texts each is in."""
    start = 0
    for chunk in _chunks(texts):
        yield start, *_words(chunk)
        start += len(chunk)


def _words(texts: Sequence[str]) -> tuple[Array, Array]:
    """A number for each word, the same for equal words, and the place of its text."""
    found = [[crc32(word.encode()) for word in WORD.findall(text.lower())] for text in texts]
    words = np.array([number for numbers in found for number in numbers], np.int64)
    return words, np.repeat(np.arange(len(texts)), list(map(len, found)))


def _added(keys: Array, counts: Array, more: Array) -> tuple[Array, Array]:
    """Sorted keys with their counts, and some more keys."""
    more, more_counts = np.unique(more, return_counts=True)
    merged, place = np.unique(np.concatenate([keys, more]), return_inverse=True)
    return merged, np.bincount(place, np.concatenate([counts, more_counts])).astype(np.int64)


def _ranges(first: Array, end: Array) -> Array:
    """first[0], first[0] + 1, ... end[0] - 1, first[1], ..."""
    sizes = end - first
    starts = np.repeat(first - np.concatenate([[0], sizes[:-1]]).cumsum(), sizes)
    return starts + np.arange(sizes.sum())
