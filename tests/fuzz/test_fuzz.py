"""2,000 fuzzed commands: each ends with exit code 0 and the right result, or with one line and another code."""

import sys
import time
from pathlib import Path

import pytest
import typer

import tnn.cli
from tests.fuzz import judge as judging
from tests.fuzz.areas import counts, judge
from tests.fuzz.judge import Case, verdict
from tests.fuzz.samples import Samples
from tnn.cli.errors import OneLineCommand

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="time and memory are limited as Linux does it")
CASES, BATCH = 2000, 25
BATCHES = [
    (area, range(start, min(start + BATCH, count)))
    for area, count in counts(CASES).items()
    for start in range(0, count, BATCH)
]


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    return Samples(tmp_path_factory.mktemp("samples"))


@pytest.mark.slow
@pytest.mark.parametrize(("area", "numbers"), BATCHES, ids=[f"{area} {batch.start}" for area, batch in BATCHES])
def test_right_or_one_line(area, numbers, samples):
    failures = [str(one) for one in judge(area, numbers, samples) if one.verdict == "failed"]
    assert not failures, "\n".join(failures)


# --- the judge itself


def _error(*lines, code=1):
    for line in lines:
        typer.echo(line, err=True)
    sys.exit(code)


def _write(name):
    Path(name).write_text("half")


def _command(work):
    """Inside the boundary, which makes one line of whatever is raised."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command(cls=OneLineCommand)
    def command():
        work()

    return app


COMMANDS = {
    "right": (lambda: print("fine"), ""),
    "refused": (lambda: _error("error: no such file"), ""),
    "usage": (lambda: _error("Usage: tnn [OPTIONS]", "Try 'tnn --help' for help.", "", "Error: no", code=2), ""),
    "raised": (lambda: [][0], "it must not raise IndexError"),
    "printed": (lambda: _error("Traceback (most recent call last):", "error: x"), "a traceback was printed"),
    "two lines": (lambda: _error("warning: x", "error: y"), "not one line"),
    "no line": (lambda: _error(), "not one line"),
    "wrong": (lambda: print("wrong"), "exit 0 and a wrong result"),
    "hangs": (lambda: time.sleep(10), "Hang"),
    "asks": (lambda: input("Run code? [y/N]"), "Asked"),
    "hangs in a command": (_command(lambda: time.sleep(10)), "Hang"),
    "asks in a command": (_command(lambda: input("Run code? [y/N]")), "Asked"),
    "too large": (lambda: print("fine", len(bytearray(200 * 2**20))), "GiB"),
    "leaves": (lambda: (_write(".out-x1"), print("fine")), "left .out-x1 behind"),
    "changes": (lambda: (_write("out"), _error("error: x")), "it failed, and changed out"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_verdicts(name, tmp_path, monkeypatch):
    command, complaint = COMMANDS[name]
    monkeypatch.setattr(tnn.cli, "main", command)
    if complaint == "Hang":  # others may be slow: the machine may be busy
        monkeypatch.setattr(judging, "SECONDS", 1)
    monkeypatch.setattr(judging, "MEMORY", 100 * 2**20)
    _, found, _ = verdict(Case(name, [], right=lambda result: result.out.startswith("fine")), tmp_path)
    assert complaint in found if complaint else not found


def test_what_may_not_end_in_some_way(tmp_path, monkeypatch):
    monkeypatch.setattr(tnn.cli, "main", lambda: print("fine"))
    assert "exit 0 for something harmful" in verdict(Case("", [], right=None), tmp_path)[1]
    monkeypatch.setattr(tnn.cli, "main", lambda: _error("error: no"))
    assert "something harmless is refused" in verdict(Case("", [], refused=None), tmp_path)[1]
