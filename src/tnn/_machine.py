"""What this machine has."""

import os


def physical_memory() -> int | None:
    """Bytes of memory; None where the system does not tell.

    >>> from tnn._machine import physical_memory
    >>> physical_memory() > 2**20
    True
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
