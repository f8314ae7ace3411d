"""Splits of texts: keys that do not collide. Their shares are tested with the tables."""

import numpy as np

from tnn.data.text_splits import text_keys


def test_keys_do_not_collide():
    assert len(set(text_keys([("a", "b"), ("ab", ""), ("a",), ("b", "a")], seed=0).tolist())) == 4
    assert text_keys([("a",)], seed=0) != text_keys([("a",)], seed=1)
    assert text_keys([], seed=0).dtype == np.uint64
