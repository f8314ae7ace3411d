"""How time and memory grow with the length: a step is measured at each length, in a separate process."""

import gc
import resource
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import linear_regression, median
from time import perf_counter
from typing import NamedTuple

import torch

from paper.harness.machine import forget_peak_memory, peak_memory_mb, return_free_memory
from paper.harness.records import Records
from paper.harness.trial import Trial

Prepare = Callable[[int], Callable[[], object]]  # a length -> the step that is timed; it must be picklable
PATIENCE = 4.0  # seconds per length, once it has been timed at all
SHARE = 0.7  # of the available memory that a step may take
WARM_UP = 32  # the length of a first step, which loads libraries and starts threads


class Cell(NamedTuple):
    """Time and memory of a step."""

    seconds: float
    megabytes: float  # peak above what the process held before


@dataclass(frozen=True)
class Growth:
    """Measurements at each length, from the shortest on.

    >>> from paper.efficiency.growth import Growth
    >>> growth = Growth((1000, 2000), (0.5, 2.0), (70.0, 140.0))
    >>> growth.at(2000), round(growth.exponent, 2)
    (Cell(seconds=2.0, megabytes=140.0), 2.0)
    """

    lengths: tuple[int, ...]
    seconds: tuple[float, ...]
    megabytes: tuple[float, ...]
    ended: str | None = None  # what it ran out of before the last length: "time" or "memory"

    def at(self, length: int) -> Cell | None:
        cells = zip(self.lengths, map(Cell, self.seconds, self.megabytes), strict=True)
        return dict(cells).get(length)

    @property
    def exponent(self) -> float | None:
        """The exponent of its time, over all lengths."""
        return exponent(self.lengths, self.seconds)


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """The slope of log value against log length: 1 is linear, 2 quadratic.

    None if there are fewer than two lengths, or if a value is 0, too small to measure.

    >>> from math import log
    >>> from paper.efficiency.growth import exponent
    >>> lengths = (4096, 8192, 16_384)
    >>> round(exponent(lengths, [n * log(n) for n in lengths]), 2)
    1.11
    """
    if len(lengths) < 2 or min(values) <= 0:
        return None
    return linear_regression([log(n) for n in lengths], [log(value) for value in values]).slope


def typical(runs: Sequence[Growth]) -> Growth:
    """The median over runs, for the lengths that all of them reached."""
    shortest = min(runs, key=lambda run: len(run.lengths))
    seconds = tuple(map(median, zip(*(run.seconds for run in runs), strict=False)))
    megabytes = tuple(map(median, zip(*(run.megabytes for run in runs), strict=False)))
    return Growth(shortest.lengths, seconds, megabytes, shortest.ended)


def collect_growth(trials: Iterable[Trial], records: Records) -> dict[str, Growth]:
    """By row, the typical growth over its seeds."""
    growths: dict[str, list[Growth]] = {}
    for trial in trials:
        if (record := records.find(trial)) is not None:
            lengths, seconds, megabytes = (tuple(record.metrics[key]) for key in ("lengths", "seconds", "megabytes"))
            growth = Growth(lengths, seconds, megabytes, record.metrics["ended"])
            growths.setdefault(trial.row, []).append(growth)
    return {row: typical(runs) for row, runs in growths.items()}


def machines(trials: Iterable[Trial], records: Records) -> str:
    """The machines that measured the trials: times of different machines cannot be compared."""
    known = [record.machine for trial in trials if (record := records.find(trial)) is not None]
    return " and ".join(sorted({f"{machine['device']} with {machine['threads']} threads" for machine in known}))


def measure_growth(prepare: Prepare, lengths: Sequence[int], *, steps: int, limit: float, seed: int = 0) -> Growth:
    """The median over `steps` steps at each length, until the last length, `limit` seconds, or out of memory.

    It starts a new Python process: a script must call it under `if __name__ == "__main__"`.

    >>> from functools import partial
    >>> from paper.efficiency.growth import measure_growth
    >>> from paper.efficiency.steps import training_step
    >>> measure_growth(partial(training_step, "fnet", 1), [64, 128], steps=1, limit=600).lengths
    (64, 128)
    """
    context = get_context("spawn")  # a fork would inherit the memory of this process
    ours, theirs = context.Pipe(duplex=False)
    arguments = (theirs, prepare, lengths, steps, seed, torch.get_num_threads())
    process = context.Process(target=_measure, args=arguments, daemon=True)
    process.start()
    theirs.close()
    cells: list[tuple[int, float, float]] = []
    try:
        ended = _receive(ours, process, cells, len(lengths), perf_counter() + limit)
    finally:
        process.kill()
        process.join()
        ours.close()
    if ended not in (None, "time", "memory"):
        raise RuntimeError(f"at a length after {[length for length, *_ in cells]}: {ended}")
    reached, seconds, megabytes = zip(*cells, strict=True) if cells else ((), (), ())
    return Growth(reached, seconds, megabytes, ended)


def _receive(
    ours: Connection, process: BaseProcess, cells: list[tuple[int, float, float]], count: int, deadline: float
) -> str | None:
    """Append each measurement as it arrives; returns the reason if some do not arrive."""
    while len(cells) < count:
        if not ours.poll(max(0.0, deadline - perf_counter())):
            return "time"
        try:
            message = ours.recv()
        except EOFError:
            process.join()
            killed = (
                process.exitcode is not None and process.exitcode < 0
            )  # as C++ and the system do when out of memory
            return "memory" if killed else f"the process ended with exit code {process.exitcode}"
        if isinstance(message, str):
            return message
        cells.append(message)
    return None


# --- In the separate process.


def _measure(theirs: Connection, prepare: Prepare, lengths: Sequence[int], steps: int, seed: int, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the waiting process
    torch.set_num_threads(threads)
    try:
        _median_seconds(prepare, WARM_UP, 1)
        _limit_memory()
        for length in lengths:
            torch.manual_seed(seed)
            before = _held()
            seconds = _median_seconds(prepare, length, steps)
            theirs.send((length, seconds, max(0.0, peak_memory_mb() - before)))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        theirs.send("memory" if "memory" in text.lower() or "alloc" in text else text)


def _median_seconds(prepare: Prepare, length: int, steps: int) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        step = prepare(length)
    times: list[float] = []
    while len(times) <= steps and (len(times) < 2 or sum(times) < PATIENCE):
        start = perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(perf_counter() - start)
    return median(times[1:])  # the first one plans and allocates


def _held() -> float:
    """Megabytes held now, after freeing what the last length left; starts a new peak."""
    gc.collect()
    return_free_memory()
    forget_peak_memory()
    return peak_memory_mb()


def _limit_memory() -> None:
    """On systems that report their memory. A GPU has its own limit."""
    status, machine = Path("/proc/self/status"), Path("/proc/meminfo")
    if machine.exists() and not torch.cuda.is_available():
        limit = int(_kilobytes(status, "VmSize:") + SHARE * _kilobytes(machine, "MemAvailable:")) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _kilobytes(path: Path, name: str) -> int:
    return int(path.read_text().split(name)[1].split()[0])
