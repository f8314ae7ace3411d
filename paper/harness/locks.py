"""Processes may share folders: only one at a time runs a trial."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from paper.harness.trial import Trial, TrialContext


@contextmanager
def locked(trial: Trial, context: TrialContext, log: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Other processes that need the same trial, or the model that it trains, wait."""
    path = context.models / "locks" / f"{trial.experiment}-{trial.folder(context).name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log("    another process is measuring it: waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
