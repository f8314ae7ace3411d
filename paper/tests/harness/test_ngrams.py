import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.harness.ngrams import ngram_losses


def by_hand(train, test, order):
    """The definition, one byte at a time."""
    padded = [0] * order + list(train)
    losses = []
    for length in range(1, order + 1):
        total = 0.0
        for i in range(len(test)):
            line = [0] * order + list(test[: i + 1])
            p = 1 / 256
            for n in range(1, length + 1):
                context, byte = tuple(line[-n:-1]), line[-1]
                after = Counter(padded[j] for j in range(order, len(padded)) if tuple(padded[j - n + 1 : j]) == context)
                if after:
                    p = (after[byte] + len(after) * p) / (after.total() + len(after))
            total -= math.log(p)
        losses.append(total / len(test))
    return losses


@given(
    train=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    test=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    order=st.integers(1, 4),
)
def test_is_the_definition(train, test, order):
    losses = ngram_losses(np.array(train, np.uint8), np.array(test, np.uint8), order)
    assert losses == pytest.approx(by_hand(train, test, order))


def test_all_bytes_and_the_longest_order():
    text = np.random.default_rng(0).integers(0, 256, 2000, dtype=np.uint8)
    losses = ngram_losses(text, text, 8)
    assert losses[0] == pytest.approx(math.log(256), abs=0.1)
    assert losses[-1] < losses[1] < losses[0]
    with pytest.raises(ValueError, match="order must be from 1 to 8; got 9"):
        ngram_losses(text, text, 9)
