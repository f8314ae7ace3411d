"""Memory of a process that repeats the same work: what the allocator keeps of each round must not add up."""

import ctypes
from pathlib import Path

STATUS = Path("/proc/self/statm")
SLACK = 1.03


class SteadyMemory:
    """Asks the C library to give memory back when the process has grown since the first check.

    glibc keeps freed blocks and cuts them up for smaller ones, so that large ones do not fit again: without this, the
    process grows by some tenths over the first rounds. Elsewhere than on Linux with glibc it does nothing.
    """

    def __init__(self) -> None:
        self._first: int | None = None

    def check(self) -> None:
        pages = _resident_pages()
        if self._first is None:
            self._first = pages
        elif pages > SLACK * self._first:
            _trim()
            self._first = max(self._first, _resident_pages())  # the rest is in use


def _resident_pages() -> int:
    try:
        return int(STATUS.read_text().split()[1])
    except OSError:
        return 0


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
