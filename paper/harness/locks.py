"""Processes share folders: one at a time works at a trial."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from paper.harness.trial import Place, Trial


@contextmanager
def locked(trial: Trial, place: Place, log: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Other processes that want the same trial, or the model that it trains, wait."""
    path = place.models / "locks" / f"{trial.experiment}-{trial.folder(place).name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log("    another process measures it: waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
