"""The boundary around the commands: one line and an exit code, whatever is raised."""

import os
import re
import subprocess
import sys
import warnings

import pytest
import typer
from typer.testing import CliRunner

from tnn.cli import app as tnn_app
from tnn.cli.errors import OneLineGroup


class PanicException(BaseException):
    """As pyo3 raises it."""


def run(call, *options):
    """A command `work FILE` that calls this, inside the boundary."""
    app = typer.Typer(cls=OneLineGroup, pretty_exceptions_enable=False)

    @app.callback()
    def root(debug: bool = typer.Option(False, "--debug", envvar="TNN_DEBUG")) -> None:
        pass

    @app.command()
    def work(file: str) -> None:
        call()

    return CliRunner().invoke(app, [*options, "work", "a file"], prog_name="tnn")


def raising(error):
    def call():
        raise error

    return call


UNEXPECTED = [
    *(kind("odd\nvalue") for kind in (RuntimeError, TypeError, KeyError, IndexError, AttributeError)),
    *(kind("odd value") for kind in (RecursionError, AssertionError, Exception, PanicException, NotImplementedError)),
]


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
def test_an_unexpected_error_says_what_was_being_done(error):
    done = run(raising(error))
    assert done.exit_code == 1
    what = rf"unexpected {type(error).__name__} in tnn work 'a file'"
    assert re.fullmatch(rf"error: {what}: '?odd(\\n| )value'?; tnn --debug shows where\n", done.stderr)


@pytest.mark.parametrize("kind", [ValueError, OSError, ZeroDivisionError, ImportError])
def test_a_mistake_is_its_own_line(kind):
    done = run(raising(kind("no such\n name")))
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "error: no such name\n")


def test_out_of_memory():
    import torch

    done = run(lambda: torch.empty(2**60))
    assert done.exit_code == 1
    assert re.fullmatch(r"error: not enough memory for tnn work 'a file': it needs \d+ bytes more\n", done.stderr)
    assert run(raising(MemoryError())).stderr == "error: not enough memory for tnn work 'a file'\n"


def test_an_error_in_a_worker_process_is_its_last_line():
    text = "Caught KeyError in DataLoader worker process 0.\nTraceback ...\nKeyError: 'label'"
    assert "in tnn work 'a file': KeyError: 'label';" in run(raising(RuntimeError(text))).stderr


def test_debug_shows_the_traceback(monkeypatch):
    assert "Traceback" not in run(raising(KeyError("x"))).stderr
    assert "in raising" not in run(raising(KeyError("x"))).stderr
    shown = run(raising(KeyError("x")), "--debug")
    assert shown.exit_code == 1
    assert "Traceback (most recent call last)" in shown.stderr
    assert shown.stderr.endswith("error: unexpected KeyError in tnn work 'a file': 'x'; tnn --debug shows where\n")
    monkeypatch.setenv("TNN_DEBUG", "1")
    assert "Traceback" in run(raising(ValueError("x"))).stderr


def test_codes_are_kept():
    assert run(raising(SystemExit(7))).exit_code == 7
    assert run(raising(typer.Exit(5))).exit_code == 5
    stopped = run(raising(KeyboardInterrupt()))
    assert (stopped.exit_code, stopped.stderr) == (130, "interrupted\n")


def test_a_long_message_is_cut():
    assert len(run(raising(ValueError("x" * 10_000))).stderr) < 700


def test_a_message_that_is_no_text():
    assert run(raising(ValueError("no file \udcff"))).stderr == "error: no file ?\n"


def test_a_warning_is_one_line_without_its_place():
    def call():
        warnings.simplefilter("always")
        warnings.warn("this is\nslow", UserWarning, stacklevel=1)

    done = run(call)
    assert (done.exit_code, done.stderr) == (0, "warning: this is slow\n")


def test_a_broken_pipe_to_another_process_is_an_error():
    done = run(raising(BrokenPipeError(32, "Broken pipe")))
    assert (done.exit_code, done.stderr) == (1, "error: [Errno 32] Broken pipe\n")


@pytest.mark.slow
@pytest.mark.parametrize("code", ["", "print('x' * 100_000)\nsys.stdout.flush()", "print('x')"])
def test_nobody_reads_the_output(code):
    """Whether the pipe is found closed by the command, or only when the interpreter ends."""
    if code:
        wrap = f"import sys, tnn.cli, typer\n@tnn.cli.app.command()\ndef talk() -> None:\n  exec({code!r})\n"
        command = [sys.executable, "-c", wrap + "sys.argv = ['tnn', 'talk']\ntnn.cli.main()"]
    else:
        command = [sys.executable, "-m", "tnn", "train", "--list"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("word", ["--version", "--help", "env"])
def test_no_room_for_the_output(word):
    with open("/dev/full", "w") as full:  # opened to write, never replaced
        done = subprocess.run([sys.executable, "-m", "tnn", word], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_every_command_has_help():
    def check(command, words):
        done = CliRunner().invoke(tnn_app, [*words, "--help"], prog_name="tnn")
        assert done.exit_code == 0
        assert done.output.startswith("Usage: ")
        for name, inner in getattr(command, "commands", {}).items():
            check(inner, [*words, name])

    check(typer.main.get_command(tnn_app), [])
