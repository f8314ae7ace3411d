"""Generating a data set in parts: in parallel, with a progress bar; a killed run can be continued."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from numbers import Integral
from pathlib import Path
from threading import Thread

from tnn._files import write_text

SETTINGS = "generated.json"
LOCK = ".lock"
MOST = 2**31 - 1  # examples: more than any disk holds
LARGEST_SEED = 2**63 - 1


def make_parts(
    make: Callable[[int], None], parts: Sequence[int], *, workers: int | None = None, what: str = "parts"
) -> None:
    """Call make(part) for each part in `workers` processes, by default one per core.

    `make` must write its part atomically, and the result must not depend on the process. It must be picklable: a
    function of a module, or a functools.partial of one. Pass the missing parts only, so that a killed call can be
    repeated. All workers end at the first error, and when this process ends for any reason. With one worker or one
    part, no process is started.

    >>> from tnn.data.lra.generation import make_parts
    >>> make_parts(print, [3, 4], workers=1)
    3
    4
    """
    from tqdm import tqdm

    workers = check_count("workers", (os.cpu_count() or 1) if workers is None else workers, least=1)
    with tqdm(total=len(parts), desc=what, unit=" parts", disable=None) as bar:  # None: only in a terminal
        if min(workers, len(parts)) > 1:
            _make_in_processes(make, parts, min(workers, len(parts)), bar.update)
        else:
            for part in parts:
                make(part)
                bar.update()


def _make_in_processes(
    make: Callable[[int], None], parts: Sequence[int], workers: int, report: Callable[[], object]
) -> None:
    context = get_context("spawn")  # a fork would copy locks that threads of this process hold
    worker_end, parent_end = context.Pipe(duplex=False)
    with worker_end, parent_end, ProcessPoolExecutor(workers, context, _start_worker, (worker_end,)) as pool:
        try:
            for future in as_completed([pool.submit(make, part) for part in parts]):
                future.result()
                report()
        except BaseException as error:
            parent_end.close()  # ends the workers; otherwise the pool would wait for the remaining parts
            if isinstance(error, BrokenProcessPool):
                raise ChildProcessError(
                    "a worker process was killed, perhaps because memory ran out; "
                    "finished parts are kept, and the same call continues from there"
                ) from None
            raise


def _start_worker(worker_end: Connection) -> None:
    """In a worker: leave Ctrl-C to the parent, and end when the parent closes its end of the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_exit_with_parent, args=(worker_end,), daemon=True).start()


def _exit_with_parent(worker_end: Connection) -> None:
    worker_end.poll(None)  # nothing is ever sent: this returns when the other end is closed
    os._exit(1)


@contextmanager
def output_folder(out: Path, settings: Mapping[str, int | float | str]) -> Iterator[None]:
    """Lock the folder `out` for this process, create it if necessary, and keep the settings in its generated.json.

    It must be new, empty, or made with the same settings: then the work continues. Any other folder is an error.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra.generation import output_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with output_folder(Path(folder), {"generator": "dice", "seed": 0}):
    ...         pass
    ...     with output_folder(Path(folder), {"generator": "dice", "seed": 1}):
    ...         pass
    Traceback (most recent call last):
    ...
    ValueError: ... was made with seed = 0, not 1; use the same settings or another folder
    """
    from filelock import FileLock, Timeout

    _check_settings(out, settings)  # before anything is written into a folder that holds something else
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(out / LOCK).acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(f"another process is writing {out}; wait for it, or use another folder") from None
    with lock:
        _check_settings(out, settings)
        remove_leftovers(out / SETTINGS)
        if not (out / SETTINGS).exists():
            write_text(out / SETTINGS, json.dumps(dict(settings), indent=1) + "\n")
        yield


def _check_settings(out: Path, settings: Mapping[str, int | float | str]) -> None:
    path = out / SETTINGS
    if path.is_file():
        try:
            stored = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ValueError(f"{path} does not hold the settings of a generator; use another folder") from None
        for name in [*settings, *stored]:
            if stored.get(name) != settings.get(name):
                old, new = stored.get(name, "nothing"), settings.get(name, "nothing")
                raise ValueError(
                    f"{out} was made with {name} = {old}, not {new}; use the same settings or another folder"
                )
    elif out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; use a new or empty folder")
    elif out.exists() and {*out.iterdir()} - {out / LOCK, *_leftovers(path)}:
        raise ValueError(f"{out} is not empty and has no {SETTINGS}; use a new or empty folder")


def remove_leftovers(path: Path) -> None:
    """Remove what a killed `atomic_path(path)` left behind.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra.generation import remove_leftovers
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, ".images-x1y2z3").mkdir()
    ...     remove_leftovers(Path(folder, "images"))
    ...     list(Path(folder).iterdir())
    []
    """
    for folder in _leftovers(path):
        shutil.rmtree(folder)


def _leftovers(path: Path) -> list[Path]:
    return list(path.parent.glob(f".{path.name}-*"))


def check_count(name: str, value: int, least: int = 0, most: int = MOST) -> int:
    """Check an integer and its limits. (`tnn._checks` would import torch in every worker.)

    >>> from tnn.data.lra.generation import check_count
    >>> check_count("train", -1)
    Traceback (most recent call last):
    ...
    ValueError: train must be at least 0; got -1
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}; got {value}")
    return int(value)
