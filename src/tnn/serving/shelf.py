"""Values that are kept for a while: bounded in number, in bytes and in age."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Entry(NamedTuple, Generic[Value]):
    value: Value
    nbytes: int
    used: float


class Shelf(Generic[Key, Value]):
    """Values by key. The one that has not been used for longest goes first, and all go after `seconds` without use.

    >>> from tnn.serving.shelf import Shelf
    >>> shelf = Shelf(most=2, most_bytes=100, seconds=60)
    >>> for key, size in {"a": 50, "b": 50, "c": 10}.items():
    ...     shelf.put(key, key.upper(), size)
    >>> shelf.get("a"), shelf.get("b"), len(shelf), shelf.nbytes
    (None, 'B', 2, 60)
    """

    def __init__(self, most: int, most_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._most, self._most_bytes, self._seconds, self._clock = most, most_bytes, seconds, clock
        self._entries: OrderedDict[Key, _Entry[Value]] = OrderedDict()  # the longest unused first
        self.nbytes = 0

    def put(self, key: Key, value: Value, nbytes: int) -> None:
        """A value that is larger than all the room is not kept."""
        self.pop(key)
        self.drop_old()
        if nbytes > self._most_bytes or not self._most:
            return
        self._entries[key] = _Entry(value, nbytes, self._clock())
        self.nbytes += nbytes
        while len(self._entries) > self._most or self.nbytes > self._most_bytes:
            self._drop_first()

    def get(self, key: Key) -> Value | None:
        """The value, which counts as a use; None if it is gone."""
        self.drop_old()
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries[key] = entry._replace(used=self._clock())
        self._entries.move_to_end(key)
        return entry.value

    def pop(self, key: Key) -> Value | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.nbytes -= entry.nbytes
        return entry.value

    def drop_old(self) -> None:
        oldest = self._clock() - self._seconds
        while self._entries and next(iter(self._entries.values())).used < oldest:
            self._drop_first()

    def _drop_first(self) -> None:
        self.nbytes -= self._entries.popitem(last=False)[1].nbytes

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)
