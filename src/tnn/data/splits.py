"""Which documents are held out: a twentieth for validation and another for test, the same ones each time."""

from collections.abc import Iterable
from hashlib import blake2b

COMPARED = 2**15  # characters; texts that begin with the same ones are copies
SEED = b"0"
SHARE = 20  # one document in so many for each split


def key_of(pieces: Iterable[str]) -> int:
    """A random number for a document. Documents that differ in white space and case only have the same one.

    >>> from tnn.data.splits import key_of
    >>> key_of(["The cat\\n", "sat"]) == key_of(["the  cat sat\\r\\n"]) != key_of(["the hat"])
    True
    """
    plain = ""
    for piece in pieces:
        plain += "".join(piece.casefold().split())
        if len(plain) >= COMPARED:
            break
    return int.from_bytes(blake2b(plain[:COMPARED].encode(), digest_size=8, key=SEED).digest())


EMPTY = key_of([])


def held_out(keys: Iterable[int]) -> tuple[int, int]:
    """Two limits: documents with keys below the first are for validation, those below the second for test.

    At least one document each, if there are three that are not empty.

    >>> from tnn.data.splits import held_out
    >>> held_out(range(100)), held_out([7, 8, 9]), held_out([7, 8])
    ((5, 10), (8, 9), (0, 0))
    """
    ordered = sorted(set(keys) - {EMPTY})
    if len(ordered) < 3:
        return 0, 0
    count = max(1, len(ordered) // SHARE)
    return ordered[count], ordered[2 * count]


def split_of(key: int, limits: tuple[int, int]) -> str:
    """The split of a document.

    >>> from tnn.data.splits import split_of
    >>> [split_of(key, (5, 10)) for key in (4, 5, 10)]
    ['validation', 'test', 'train']
    """
    return "validation" if key < limits[0] else "test" if key < limits[1] else "train"
