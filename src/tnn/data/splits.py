"""Which documents are held out: a twentieth for validation and another for test, the same ones each time."""

from collections.abc import Iterable
from hashlib import blake2b

COMPARED = 2**15  # characters, from the beginning of a document
SEED = b"0"
SHARE = 20  # one document in so many for each split


def key_of(pieces: Iterable[str]) -> int:
    """A random number for a document. Documents that differ in white space and case only have the same one.

    >>> from tnn.data.splits import key_of
    >>> key_of(["The cat\\n", "sat"]) == key_of(["the  cat sat\\r\\n"]) != key_of(["the hat"])
    True
    """
    return _key(_plain(pieces))


def keys_of(documents: Iterable[Iterable[str]]) -> list[int]:
    """The same of many documents, and near duplicates of each other have the same one too.

    >>> from tnn.data.splits import keys_of
    >>> lines = [f"line {number}\\n" for number in range(1000)]
    >>> first, second = keys_of([lines, [*lines[:500], "a new line\\n", *lines[500:]]])
    >>> first == second
    True
    """
    from tnn.data.near_duplicates import group_near_duplicates, sketch_of  # with numpy: opening a corpus is light

    keys, sketches = [], []
    for document in documents:
        plain = _plain(document)
        keys.append(_key(plain))
        sketches.append(sketch_of(plain))
    members: dict[int, set[int]] = {}
    groups = group_near_duplicates(sketches)
    for group, key in zip(groups, keys, strict=True):
        members.setdefault(group, set()).add(key)
    return [_key_of_group(members[group]) for group in groups]


def _plain(pieces: Iterable[str]) -> bytes:
    plain = ""
    for piece in pieces:
        plain += "".join(piece.casefold().split())
        if len(plain) >= COMPARED:
            break
    return plain[:COMPARED].encode()


def _key(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8, key=SEED).digest())


def _key_of_group(keys: set[int]) -> int:
    """The lowest key, hashed: a low one would make large groups more likely to be held out."""
    return next(iter(keys)) if len(keys) == 1 else _key(min(keys).to_bytes(8))


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
