"""What counting achieves: n-grams of bytes with Witten-Bell smoothing, the floor of a table of byte models."""

import numpy as np

LONGEST = 8  # bytes that fit into one 64-bit number


def ngram_losses(train: np.ndarray, test: np.ndarray, order: int) -> list[float]:
    """Nats per byte of `test` by counts of 1, 2, ... `order` neighbouring bytes in `train`; both are uint8.

    A context that was seen n times, before t different bytes, has weight n, and the context that is one byte shorter
    has weight t (Witten and Bell, 1991). The shortest estimate is 1/256.

    >>> import numpy as np
    >>> from paper.harness.ngrams import ngram_losses
    >>> text = np.array([0, 1] * 500, np.uint8)
    >>> [round(loss, 2) for loss in ngram_losses(text, text, order=2)]
    [0.7, 0.01]
    """
    if not 1 <= order <= LONGEST:
        raise ValueError(f"order must be from 1 to {LONGEST}; got {order}")
    probability, losses = np.full(len(test), 1 / 256), []
    for length in range(1, order + 1):
        grams, counts = np.unique(_grams(train, length), return_counts=True)
        contexts, first = np.unique(grams >> np.uint64(8), return_index=True)  # grams are sorted by their context
        seen, types = np.add.reduceat(counts, first), np.diff(np.append(first, len(grams)))
        wanted = _grams(test, length)
        at, known = _find(contexts, wanted >> np.uint64(8))
        n, t = np.where(known, seen[at], 0), np.where(known, types[at], 1)  # an unknown context changes nothing
        at, known = _find(grams, wanted)
        probability = (np.where(known, counts[at], 0) + t * probability) / (n + t)
        losses.append(float(-np.log(probability).mean()))
    return losses


def _grams(text: np.ndarray, length: int) -> np.ndarray:
    """One number for the `length` bytes that end with each byte, the last one lowest; zeros stand before the text."""
    grams = np.zeros(len(text), np.uint64)
    for back in range(min(length, len(text))):
        grams[back:] |= text[: len(text) - back].astype(np.uint64) << np.uint64(8 * back)
    return grams


def _find(values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted number is among the sorted values, and whether it is there."""
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return at, values[at] == wanted
