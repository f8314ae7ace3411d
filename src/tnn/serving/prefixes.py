"""States of texts that have been read, found again by a hash of their tokens: a known beginning is not read twice."""

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from time import monotonic

from tnn.models.cache import TNNCache
from tnn.serving.request import Kept
from tnn.serving.shelf import Shelf


class Prefixes:
    """The longest beginning of a text that has been read, among those of the same owner.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.serving.prefixes import Prefixes
    >>> cache = TNNForCausalLM(TNNConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1)).model.new_cache()
    >>> prefixes = Prefixes(most=8, most_bytes=10**6, seconds=60)
    >>> prefixes.put("me", [5, 6], cache)
    >>> prefixes.longest("me", [5, 6, 7]).age, prefixes.longest("you", [5, 6, 7]), prefixes.longest("me", [5, 7])
    (2, None, None)
    """

    def __init__(self, most: int, most_bytes: int, seconds: float, clock: Callable[[], float] = monotonic):
        self._shelf: Shelf[tuple[int, bytes], TNNCache] = Shelf(most, most_bytes, seconds, clock)

    def put(self, owner: str, ids: Sequence[int], cache: TNNCache) -> None:
        """The cache must hold one row that has read `ids`, and must not be changed afterwards."""
        if ids:
            self._shelf.put((len(ids), _hashes(owner, ids, [len(ids)])[0]), cache, cache.nbytes)

    def longest(self, owner: str, ids: Sequence[int]) -> Kept | None:
        """The state after the longest known beginning of `ids`, all of it included."""
        self._shelf.drop_old()
        lengths = sorted({length for length, _ in self._shelf if length <= len(ids)})
        for key in reversed([*zip(lengths, _hashes(owner, ids, lengths), strict=True)]):
            if (cache := self._shelf.get(key)) is not None:
                return Kept(cache, key[0])
        return None

    @property
    def nbytes(self) -> int:
        return self._shelf.nbytes

    def __len__(self) -> int:
        return len(self._shelf)


def _hashes(owner: str, ids: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
    """Of the beginnings of these lengths, which rise."""
    running = blake2b(owner.encode() + b"\0", digest_size=32)
    data, done, hashes = memoryview(array("q", ids).tobytes()), 0, []
    for length in lengths:
        running.update(data[8 * done : 8 * length])
        done = length
        hashes.append(running.copy().digest())
    return hashes
