"""Runs one command in this process and judges it. A command may do one of two things: end with exit code 0 and the
right result, or print one line on stderr and end with another code. Anything else is a failure."""

import io
import logging
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import tnn.cli

SECONDS = 20  # a command that takes longer hangs
MEMORY = 2 * 2**30  # bytes that a command may take, beyond what this process had
ROOM = 2 * MEMORY  # beyond it, allocations fail: a case must not take the machine down
CACHE = "cache"  # the folder of tokens, which may be written to at any time

ERROR = re.compile(r"error: .+")
USAGE = re.compile(  # what click prints before exit code 2: its line and how to get help, or the help of a group
    r"Usage: .+\n(Try .+ for help\.\n\nError: .+\n|\n[^\0]+\nCommands:\n[^\0]+)"
)
PROGRESS = re.compile(r"step \d.*")
COMPLETE = re.compile(r"\.lock|.*\.lock")  # a lock file may stay: its holder is gone


@dataclass(frozen=True)
class Result:
    """What a command did. `raised` is the traceback of what left it, other than an exit; or a violation in it."""

    code: int
    out: str
    err: str
    raised: str
    seconds: float
    memory: int


Check = Callable[[Result], bool]


def anything(result: Result) -> bool:
    return True


@dataclass(frozen=True)
class Case:
    """A command, and which results are right. None: this kind of end is not allowed."""

    what: str
    args: list[str]
    right: Check | None = anything
    refused: Check | None = anything


class Violation(BaseException):
    """Never allowed. The boundary around the commands makes one line of it, as of anything: so it is noted too."""

    noted: ClassVar[list[str]] = []

    def __init__(self, message: str):
        super().__init__(message)
        self.noted.append(f"{type(self).__name__}: {message}")


class Hang(Violation):
    """The time is over."""


class Asked(Violation):
    """The command wanted to read from standard input."""


class _NoInput(io.TextIOBase):
    def readable(self) -> bool:
        raise Asked("it read from standard input")

    def readline(self, *args: Any) -> str:
        raise Asked("it read from standard input")

    def read(self, *args: Any) -> str:
        raise Asked("it read from standard input")


def verdict(case: Case, folder: Path) -> tuple[str, str, Result]:
    """Runs a case in its folder. Returns "right", "refused" or "failed", why it failed, and the result."""
    before = _files(folder)
    result = run(case.args, folder)
    complaint = _complaint(case, result, before, _files(folder))
    return ("failed" if complaint else "right" if result.code == 0 else "refused"), complaint, result


def _complaint(case: Case, result: Result, before: dict[str, int], after: dict[str, int]) -> str:
    if result.raised:
        return f"it must not raise {result.raised.strip().splitlines()[-1]}"
    if "Traceback (most recent call last)" in result.err + result.out:
        return "a traceback was printed"
    if result.memory > MEMORY:
        return f"it took {result.memory / 2**30:.1f} GiB"
    hidden = [name for name in after.keys() - before.keys() if _is_temporary(name)]
    if hidden:
        return f"it left {sorted(hidden)[0]} behind"
    if result.code == 0:
        if case.right is None:
            return f"exit 0 for something harmful; stdout {result.out[-300:]!r}"
        return _complaint_about_result(case.right, result)
    return _complaint_about_error(case, result) or _complaint_about_files(result, before, after)


def _complaint_about_result(right: Check, result: Result) -> str:
    try:
        is_right, why = right(result), ""
    except Exception as error:  # such as a file or a number that should be there
        is_right, why = False, f": {type(error).__name__}: {error}"
    return "" if is_right else f"exit 0 and a wrong result{why}; stdout {result.out[-300:]!r}"


def _complaint_about_error(case: Case, result: Result) -> str:
    lines = [line for line in result.err.splitlines() if not PROGRESS.fullmatch(line)]
    is_line = len(lines) == 1 and ERROR.fullmatch(lines[0])
    if not is_line and not (result.code == 2 and USAGE.fullmatch(result.err)):
        return f"not one line on stderr: {result.err[-600:]!r}"
    if case.refused is None:
        return f"something harmless is refused: {result.err[-300:]!r}"
    return "" if case.refused(result) else f"refused for another reason: {result.err[-300:]!r}"


def _complaint_about_files(result: Result, before: dict[str, int], after: dict[str, int]) -> str:
    if any(PROGRESS.fullmatch(line) for line in result.err.splitlines()):
        return ""  # a training that has begun may keep its checkpoints
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"it failed, and changed {changed[0]}" if changed else ""


def _is_temporary(name: str) -> bool:
    last = Path(name).name
    return (last.startswith(".") or last.endswith((".tmp", ".part"))) and not COMPLETE.fullmatch(last)


def _files(folder: Path) -> dict[str, int]:
    """All files with a checksum, without those of the token cache; an empty folder counts as an empty file."""
    found = {}
    for parent, folders, names in os.walk(folder):
        if Path(parent) == folder and CACHE in folders:
            folders.remove(CACHE)
        if not names and not folders and Path(parent) != folder:
            found[os.path.relpath(parent, folder)] = 0
        for path in (os.path.join(parent, name) for name in names if not COMPLETE.fullmatch(name)):
            is_file = os.path.isfile(path) and not os.path.islink(path)
            found[os.path.relpath(path, folder)] = zlib.crc32(Path(path).read_bytes()) if is_file else 0
    return found


def run(args: list[str], folder: Path) -> Result:
    """`tnn ARGS` in a folder, in this process, within its time and memory."""
    old_args, old_folder, old_modules, old_cache = sys.argv, Path.cwd(), list(sys.path), os.environ.get("TNN_CACHE")
    os.environ["TNN_CACHE"] = str(folder / CACHE)
    os.chdir(folder)
    sys.argv = ["tnn", *args]
    code, raised = 0, ""
    Violation.noted.clear()
    with _captured() as printed, limited() as memory:
        start = time.perf_counter()
        try:
            tnn.cli.main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException as error:
            code, raised = 1, "".join(traceback.format_exception(error))
            del error
        seconds = time.perf_counter() - start
    raised = raised or "\n".join(Violation.noted)
    os.chdir(old_folder)
    sys.argv, sys.path[:] = old_args, old_modules
    if old_cache is not None:
        os.environ["TNN_CACHE"] = old_cache
    return Result(code, printed[0], printed[1], raised, seconds, memory[0])


@contextmanager
def _captured() -> Iterator[list[str]]:
    """What arrives at stdout and stderr, from any language: the file descriptors themselves are replaced."""
    printed: list[str] = []
    old = sys.stdout, sys.stderr, sys.stdin
    for stream in old[:2]:
        stream.flush()
    saved, files = [os.dup(1), os.dup(2)], [os.memfd_create("stdout"), os.memfd_create("stderr")]
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), "utf-8", errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.stdin = _NoInput()  # type: ignore[assignment]
    try:
        with _logging_to(sys.stderr), warnings.catch_warnings():
            _usual_warnings()
            yield printed
    finally:
        sys.stdout, sys.stderr, sys.stdin = old
        for number, (descriptor, file) in enumerate(zip(saved, files, strict=True), start=1):
            os.dup2(descriptor, number)
            printed.append(os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "backslashreplace"))
            os.close(descriptor)
            os.close(file)


@contextmanager
def _logging_to(stream: Any) -> Iterator[None]:
    """Handlers that were made earlier hold the stream of that time."""
    loggers = [logging.getLogger(), *map(logging.getLogger, ("transformers", "accelerate", "datasets", "torch"))]
    handlers = [handler for logger in loggers for handler in logger.handlers if type(handler) is logging.StreamHandler]
    old = [handler.setStream(stream) for handler in handlers]
    try:
        yield
    finally:
        for handler, before in zip(handlers, old, strict=True):
            if before is not None:
                handler.setStream(before)


def _usual_warnings() -> None:
    """Those that a user sees on stderr; in the tests, warnings are errors otherwise."""
    warnings.resetwarnings()
    for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind)


@contextmanager
def limited() -> Iterator[list[int]]:
    """Time and memory. Yields a list that holds the growth of the memory at the end."""
    grown: list[int] = []
    old = resource.getrlimit(resource.RLIMIT_AS)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from here
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + ROOM, old[1]))
    handler = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(SECONDS)
    old_time = resource.getrlimit(resource.RLIMIT_CPU)  # ends the process: for code that no Python handler stops
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 3 * SECONDS, old_time[1]))
    try:
        yield grown
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, old)
        resource.setrlimit(resource.RLIMIT_CPU, old_time)
        grown.append(_status("VmHWM") - before)


def _stop(*_: Any) -> None:
    raise Hang(f"longer than {SECONDS} seconds")


def _status(name: str) -> int:
    """A number of bytes in /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
