"""Texts that share most of their passages: versions of one file, which must not be in two splits.

Each text has a sketch, by MinHash (Broder, 1997): a share of the places in which two sketches are equal estimates the
share of passages that both texts have.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PASSAGE = 32  # bytes
PLACES, BAND = 64, 4  # numbers of a sketch; texts are compared if they agree in so many neighbouring ones
SHARED = 0.7  # of the places of near duplicates
RATIO = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64
STARTS = np.arange(PLACES, dtype=np.uint64) << np.uint64(58)  # of the PLACES equal parts of all 64-bit numbers
Sketch = NDArray[np.uint64]


def sketch_of(text: bytes) -> Sketch:
    """(PLACES,): the lowest hash of a passage in each part of all hashes, or in the next part that has one.

    >>> from tnn.data.near_duplicates import sketch_of
    >>> text = b"".join(b"passage %d, " % number for number in range(500))
    >>> float((sketch_of(text) == sketch_of(text.replace(b"passage 250", b"another one"))).mean()) > 0.9
    True
    """
    hashes = np.sort(_passage_hashes(np.frombuffer(text, np.uint8)))
    return hashes[np.searchsorted(hashes, STARTS) % len(hashes)]


def _passage_hashes(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """One 64-bit number for each passage; a shorter text is one passage."""
    if len(text) < PASSAGE:
        text = np.pad(text, (0, PASSAGE - len(text)))
    powers = np.cumprod(np.full(len(text), RATIO))  # modulo 2^64, as all of this
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(text * powers)])
    count = len(text) - PASSAGE + 1
    inverse = np.cumprod(np.full(count, pow(int(RATIO), -1, 2**64), np.uint64))
    hashes = (sums[PASSAGE:] - sums[:count]) * inverse
    for shift in (32, 29):  # so that all bits depend on all
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * RATIO
    return hashes ^ (hashes >> np.uint64(32))


def group_near_duplicates(sketches: Sequence[Sketch]) -> list[int]:
    """For each text the number of the first one of its group. Near duplicates of near duplicates are in one group.

    >>> from tnn.data.near_duplicates import group_near_duplicates, sketch_of
    >>> group_near_duplicates([sketch_of(text) for text in (b"one", b"two", b"one")])
    [0, 1, 0]
    """
    parents = list(range(len(sketches)))
    seen: dict[tuple[int, bytes], int] = {}
    for number, sketch in enumerate(sketches):
        for place in range(0, PLACES, BAND):
            other = seen.setdefault((place, sketch[place : place + BAND].tobytes()), number)
            if other != number and (sketches[other] == sketch).mean() >= SHARED:
                first, second = sorted((_first(parents, other), _first(parents, number)))
                parents[second] = first
    return [_first(parents, number) for number in range(len(parents))]


def _first(parents: list[int], number: int) -> int:
    while parents[number] != number:
        parents[number] = parents[parents[number]]  # shorter from now on
        number = parents[number]
    return number
