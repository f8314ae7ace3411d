"""Which texts of a table are held out: the same ones in any order of the rows, and equal texts together."""

from array import array
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

HELD_OUT = 0.1  # of the texts, for validation, and as many for the test, if a table has no such splits


def text_keys(texts: Iterable[tuple[str, ...]], seed: int) -> NDArray[np.uint64]:
    """A random number for each text (or pair), and the same one for equal texts.

    >>> from tnn.data.text_splits import text_keys
    >>> one, other, same = text_keys([("a",), ("b",), ("a",)], seed=0)
    >>> one == same != other
    np.True_
    """
    keys = array("Q")
    for text in texts:
        digest = blake2b("\0".join((str(seed), *text)).encode(), digest_size=8).digest()
        keys.append(int.from_bytes(digest, "little"))
    return np.array(keys)


def assign_splits(keys: NDArray[np.uint64], strata: NDArray[np.int64], splits: int) -> NDArray[np.int64]:
    """For each text 0 (train), or the number of one of the `splits` that are cut off, with equal shares of the strata.

    >>> import numpy as np
    >>> from tnn.data.text_splits import assign_splits, text_keys
    >>> keys = text_keys([(str(number),) for number in range(20)], seed=0)
    >>> np.bincount(assign_splits(keys, np.zeros(20, np.int64), splits=2)).tolist()
    [16, 2, 2]
    """
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    strata = strata[first]  # of each different text; these are in the order of their keys, a random one
    counts = np.bincount(strata)
    order = strata.argsort(kind="stable")
    place = np.empty_like(order)  # of each text in its stratum
    place[order] = np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts)
    share = np.maximum(1, np.round(HELD_OUT * counts)).astype(np.int64)
    chosen, end = np.zeros_like(place), np.zeros_like(counts)
    for number in range(1, splits + 1):
        room = counts - 1 - end  # one is for training
        start, end = end, end + np.clip(room, 0, share)
        chosen[(place >= start[strata]) & (place < end[strata])] = number
    return chosen[which]
