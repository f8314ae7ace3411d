"""The boundary around every command: whatever goes wrong is one line on stderr and a non-zero exit code."""

import os
import re
import select
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

LONGEST = 600  # characters of a message
MISTAKES = (ValueError, OSError, ArithmeticError, ImportError)  # their messages are written for the user
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
BYTES = re.compile(r"tried to allocate ([\d.]+ ?\w+)")


class _OneLineErrors:
    """Mixed into the outermost command, so that no command handles errors itself. `--debug` adds the traceback."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _one_line_errors([str(info_name), *args], debug="--debug" in args):  # --version and --help print here
            return super().make_context(info_name, args, parent, **extra)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        words = [*ctx.command_path.split(), *ctx._protected_args, *ctx.args]
        with _one_line_errors(words, debug=bool(ctx.find_root().params.get("debug"))):
            return super().invoke(ctx)  # type: ignore[misc]


@contextmanager
def _one_line_errors(words: list[str], debug: bool) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            yield
        except (typer.Exit, typer.Abort, TyperException, SystemExit):
            raise
        except KeyboardInterrupt:
            _fail("interrupted", 130)
        except BaseException as error:  # a panic of a library in Rust is not an Exception
            if isinstance(error, BrokenPipeError) and _reader_has_left():
                silence_output()
                raise typer.Exit(0) from None
            if debug:
                traceback.print_exc()
            _fail(f"error: {_in_one_line(error, shlex.join(words))}", 1)


class OneLineGroup(_OneLineErrors, TyperGroup):
    """A group of commands inside the boundary."""


class OneLineCommand(_OneLineErrors, TyperCommand):
    """A single command inside the boundary."""


def flush_output() -> None:
    """At the end of the process: what cannot be written there would be reported by the interpreter."""
    try:
        if sys.stdout is not None:  # it is, if it was closed when the process began
            sys.stdout.flush()
    except OSError as error:
        silence_output()
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"error: the output could not be written: {error.strerror}", err=True)
            sys.exit(1)


def silence_output() -> None:
    """Nobody reads stdout any more, or it has no room: what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _reader_has_left() -> bool:
    """Whether stdout is a closed pipe. A pipe to a process of our own can break too, and that is an error."""
    if not hasattr(select, "poll"):
        return True  # Windows cannot tell
    poll = select.poll()
    poll.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _in_one_line(error: BaseException, command: str) -> str:
    message = _shorten(_message(error))
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(message)):
        wanted = BYTES.search(message)
        return f"not enough memory for {_shorten(command)}" + (f": it needs {wanted[1]} more" if wanted else "")
    if _is_mistake(error):
        return message
    kind = type(error).__name__
    return f"unexpected {kind} in {_shorten(command)}: {message}; tnn --debug shows where"


def _is_mistake(error: BaseException) -> bool:
    """Of the user, or in a file; anything else is a defect of this package."""
    import pickle

    from safetensors import SafetensorError

    return isinstance(error, (*MISTAKES, SafetensorError, pickle.UnpicklingError))


def _message(error: BaseException) -> str:
    """What the error says; of an error in a worker process, only its last line, as a traceback is before it."""
    text = str(error).strip()
    return text.splitlines()[-1] if "in DataLoader worker" in text else text or "no message"


def _shorten(text: str) -> str:
    line = " ".join(text.encode(errors="replace").decode().split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _show_warning(message: Warning | str, *_details: Any, **_more: Any) -> None:
    """Without the file and the line of code that Python adds."""
    typer.echo(f"warning: {_shorten(str(message))}", err=True)


def _fail(line: str, code: int) -> NoReturn:
    typer.echo(line, err=True)
    raise typer.Exit(code) from None
