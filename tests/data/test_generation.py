"""Parts made in processes that end when they should; folders that are continued or refused."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.lra.generation import check_count, make_parts, output_folder

MAKERS = """
import os, signal, time
from pathlib import Path

def note(folder, part):
    (folder / str(part)).write_text(str(os.getpid()))

def fail_or_sleep(folder, bad, part):
    note(folder, part)
    if part == bad:
        time.sleep(0.3)  # until the other parts have started
        raise ValueError(f"part {part} went wrong")
    time.sleep(60)

def vanish(part):
    os.kill(os.getpid(), signal.SIGKILL)
"""
SCRIPT = """
import signal
from functools import partial
from pathlib import Path
from makers import fail_or_sleep
from tnn.data.lra.generation import make_parts

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores SIGINT
    make_parts(partial(fail_or_sleep, Path("made"), None), [0, 1, 2], workers=2)
"""


@pytest.fixture
def makers(tmp_path, monkeypatch):
    """A module that worker processes can import too."""
    (tmp_path / "makers.py").write_text(MAKERS)
    (tmp_path / "made").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "makers", raising=False)
    import makers

    return makers


# --- parts


@pytest.mark.parametrize("workers", [1, 2, None])
def test_each_part_is_made(tmp_path, makers, capfd, workers):
    make_parts(partial(makers.note, tmp_path / "made"), [5, 0, 7], workers=workers)
    pids = {path.name: int(path.read_text()) for path in (tmp_path / "made").iterdir()}
    assert sorted(pids) == ["0", "5", "7"]
    if workers == 2:
        assert os.getpid() not in pids.values()
    if workers == 1:
        assert set(pids.values()) == {os.getpid()}
    assert capfd.readouterr().err == ""  # no progress bar without a terminal


def test_no_parts_and_one_part_need_no_process():
    made = []
    make_parts(made.append, [], workers=4)
    make_parts(made.append, [3], workers=4)
    assert made == [3]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_reaches_the_caller_at_once(tmp_path, makers, workers):
    start = time.monotonic()
    with pytest.raises(ValueError, match="part 0 went wrong"):
        make_parts(partial(makers.fail_or_sleep, tmp_path / "made", 0), [0, 1, 2, 3], workers=workers)
    assert time.monotonic() - start < 30  # the other parts sleep for 60 s


def test_a_worker_that_is_killed(makers):
    with pytest.raises(ChildProcessError, match="a worker process was killed"):
        make_parts(makers.vanish, [0, 1, 2], workers=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGINT, os.kill), (signal.SIGINT, os.killpg), (signal.SIGKILL, os.kill)]
)
def test_workers_end_with_their_parent(tmp_path, makers, number, send):
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a separate process group: Ctrl-C goes to all of it
    )
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "made").iterdir())) < 2:  # until both workers have started
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    send(process.pid, number)
    _, errors = process.communicate(timeout=30)  # the workers share stdout: it closes when all have ended
    assert process.returncode not in (0, None)
    assert errors.count("Traceback") == (1 if number == signal.SIGINT else 0)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["0", "1"]


@pytest.mark.parametrize(
    ("workers", "error", "message"),
    [(0, ValueError, "workers must be at least 1; got 0"), (1.5, TypeError, "workers must be an integer; got 1.5")],
)
def test_bad_workers(workers, error, message):
    with pytest.raises(error, match=message):
        make_parts(print, [], workers=workers)


@given(value=st.integers(-5, 5), least=st.integers(-5, 5))
def test_counts(value, least):
    if value >= least:
        assert check_count("n", value, least) == value
    else:
        with pytest.raises(ValueError, match=f"n must be at least {least}; got {value}"):
            check_count("n", value, least)
    for other in (True, float(value), str(value), None):
        with pytest.raises(TypeError, match="n must be an integer"):
            check_count("n", other, least)


# --- folders

SETTINGS = {"generator": "dice", "seed": 0}


def test_a_folder_is_made_and_resumed(tmp_path):
    out = tmp_path / "new" / "out"
    with output_folder(out, SETTINGS):
        (out / "result").write_text("abc")
    before = (out / "generated.json").read_bytes()
    assert json.loads(before) == SETTINGS
    with output_folder(out, {"seed": 0, "generator": "dice"}):
        assert (out / "result").read_text() == "abc"
    assert (out / "generated.json").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        (SETTINGS | {"seed": 1}, "seed = 0, not 1"),
        (SETTINGS | {"size": 32}, "size = nothing, not 32"),
        ({"generator": "dice"}, "seed = 0, not nothing"),
        (SETTINGS | {"generator": "cards"}, "generator = dice, not cards"),
    ],
)
def test_other_settings_are_refused(tmp_path, settings, difference):
    with output_folder(tmp_path, SETTINGS):
        pass
    with (
        pytest.raises(ValueError, match=f"was made with {difference}; use the same settings"),
        output_folder(tmp_path, settings),
    ):
        pytest.fail("this must not run")
    assert json.loads((tmp_path / "generated.json").read_bytes()) == SETTINGS


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with (
        pytest.raises(ValueError, match=r"is not empty and has no generated\.json"),
        output_folder(tmp_path, SETTINGS),
    ):
        pytest.fail("this must not run")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match=r"thesis\.tex is a file"), output_folder(tmp_path / "thesis.tex", SETTINGS):
        pytest.fail("this must not run")


@pytest.mark.parametrize("content", [b"", b"{", b"3", b"[1]", b"\xff"])
def test_settings_that_cannot_be_read(tmp_path, content):
    (tmp_path / "generated.json").write_bytes(content)
    with (
        pytest.raises(ValueError, match=r"generated\.json does not hold the settings"),
        output_folder(tmp_path, SETTINGS),
    ):
        pytest.fail("this must not run")


def test_interrupted_before_the_settings_were_written(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupt)  # in write_text
    with pytest.raises(KeyboardInterrupt), output_folder(tmp_path, SETTINGS):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}
    monkeypatch.undo()
    (tmp_path / ".generated.json-a1b2c3d4").mkdir()  # as SIGKILL leaves it
    with output_folder(tmp_path, SETTINGS):
        assert {path.name for path in tmp_path.iterdir()} == {".lock", "generated.json"}


def test_one_process_at_a_time(tmp_path):
    with (
        output_folder(tmp_path, SETTINGS),
        pytest.raises(BlockingIOError, match="another process is writing"),
        output_folder(tmp_path, SETTINGS),
    ):
        pytest.fail("this must not run")
    with output_folder(tmp_path, SETTINGS):
        pass  # it is free again


def test_the_folder_is_free_after_an_error(tmp_path):
    with pytest.raises(KeyError), output_folder(tmp_path, SETTINGS):
        raise KeyError
    with output_folder(tmp_path, SETTINGS):
        pass
