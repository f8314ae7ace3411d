"""Making a data set of many parts: in parallel, with a progress bar, and so that it can be killed and go on."""

import json
import os
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

SETTINGS = "generated.json"
LOCK = ".lock"


def make_parts(
    make: Callable[[int], None], parts: Sequence[int], *, workers: int | None = None, what: str = "parts"
) -> None:
    """Calls make(part) for each part, in `workers` processes: by default one a core.

    `make` writes what it makes, whole, and the same whoever calls it; it must be picklable, as a function of a module
    is, or a functools.partial of one. Ask for the parts that are missing: then a call that was killed can be repeated.
    The first error ends all workers, and so does the end of this process, however it comes. With one worker, or one
    part, there is no other process.

    >>> from tnn.data.lra.generation import make_parts
    >>> make_parts(print, [3, 4], workers=1)
    3
    4
    """
    from tqdm import tqdm

    workers = check_count("workers", (os.cpu_count() or 1) if workers is None else workers, least=1)
    with tqdm(total=len(parts), desc=what, unit=" parts", disable=None) as bar:  # None: where there is no terminal
        if min(workers, len(parts)) > 1:
            _make_in_processes(make, parts, min(workers, len(parts)), bar.update)
        else:
            for part in parts:
                make(part)
                bar.update()


def _make_in_processes(
    make: Callable[[int], None], parts: Sequence[int], workers: int, tell: Callable[[], object]
) -> None:
    context = get_context("spawn")  # a fork would copy locks that threads of this process hold
    theirs, ours = context.Pipe(duplex=False)
    with theirs, ours, ProcessPoolExecutor(workers, context, _follow, (theirs,)) as pool:
        try:
            for made in as_completed([pool.submit(make, part) for part in parts]):
                made.result()
                tell()
        except BaseException as error:
            ours.close()  # else the pool would wait for parts that nobody wants any more
            if isinstance(error, BrokenProcessPool):
                raise ChildProcessError(
                    "a worker process ended before its part was whole, perhaps for want of memory; "
                    "what is done is kept, and the same call goes on from there"
                ) from None
            raise


def _follow(theirs: Connection) -> None:
    """In a worker: Ctrl-C is for the process that started it; when that one closes its end, or is no more, it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(theirs,), daemon=True).start()


def _end_with(theirs: Connection) -> None:
    theirs.poll(None)  # nothing is ever sent: it returns when the other end is closed
    os._exit(1)


@contextmanager
def output_folder(out: Path, settings: Mapping[str, int | float | str]) -> Iterator[None]:
    """`out` for this process alone, made if need be, with the settings in generated.json.

    It may be new, or empty, or have been made with the same settings: then the work goes on. Else it is refused.

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
    ValueError: ... was made with seed = 0, not 1; give the same settings, or another folder
    """
    from filelock import FileLock, Timeout

    _check_settings(out, settings)  # first, so that nothing is written into a folder of something else
    out.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(out / LOCK).acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(f"another process is making {out}; wait for its end, or give another folder") from None
    with held:
        _check_settings(out, settings)
        if not (out / SETTINGS).exists():
            write_whole(out / SETTINGS, json.dumps(dict(settings), indent=1).encode() + b"\n")
        yield


def _check_settings(out: Path, settings: Mapping[str, int | float | str]) -> None:
    path = out / SETTINGS
    if path.is_file():
        try:
            found = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ValueError(f"{path} does not hold the settings of a generator; give another folder") from None
        for name in [*settings, *found]:
            if found.get(name) != settings.get(name):
                old, new = found.get(name, "nothing"), settings.get(name, "nothing")
                raise ValueError(
                    f"{out} was made with {name} = {old}, not {new}; give the same settings, or another folder"
                )
    elif out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder that is new or empty")
    elif out.exists() and any(file.name not in (LOCK, _temporary(path).name) for file in out.iterdir()):
        raise ValueError(
            f"{out} holds something else, for there is no {SETTINGS} in it; give a folder that is new or empty"
        )


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is there with all of `data`, or not at all.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra.generation import write_whole
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "part"), b"abc")
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('part', b'abc')]
    """
    _temporary(path).write_bytes(data)
    _temporary(path).replace(path)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def check_count(name: str, value: int, least: int = 0) -> int:
    """An int that is not too small; tnn._checks would bring torch into every worker.

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
    return int(value)
