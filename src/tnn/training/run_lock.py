"""One process at a time writes into the folder of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"


def check_unused(folder: Path) -> None:
    """A BlockingIOError if another process holds the lock of a folder. A folder without a lock is left as it is."""
    if (folder / LOCK).is_file():
        with locked(folder):
            pass


def lock_holder(folder: Path) -> str | None:
    """The number of the process that holds the lock of a folder; None if none does. Nothing is written.

    >>> from pathlib import Path
    >>> from tnn.training.run_lock import lock_holder
    >>> lock_holder(Path("no-such-folder")) is None
    True
    """
    try:
        with (folder / LOCK).open("rb") as file:
            holder = file.read(20).decode(errors="replace")
            return holder if _is_locked(file.fileno()) else None  # what a killed process leaves is not locked
    except FileNotFoundError:
        return None


def _is_locked(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has other locks, and files that are locked there cannot be read
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # it ends with the descriptor
    except BlockingIOError:
        return True
    return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a folder if necessary, and lock it for this process. Another one that holds it is a BlockingIOError.

    The lock is one of the operating system: it ends with the process, whatever ends it.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tnn.training.run_lock import locked
    >>> with TemporaryDirectory() as folder, locked(Path(folder) / "run"), locked(Path(folder) / "run"):
    ...     pass
    Traceback (most recent call last):
    ...
    BlockingIOError: ... is in use by process ...: wait for it, or give another --out
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = path.read_text() or "another"
        raise BlockingIOError(f"{folder} is in use by process {holder}: wait for it, or give another --out") from None
    try:
        path.write_text(str(os.getpid()))
        yield
    finally:
        path.unlink(missing_ok=True)  # before the release: a process that waits for this file then tries again
        lock.release()
        with suppress(OSError):
            folder.rmdir()  # if nothing came of the run
