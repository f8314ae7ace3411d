"""What a training shows while it runs, and the times in its log."""

import re
from types import SimpleNamespace

import pytest

from tnn.training import runs, trainer
from tnn.training.run_log import RunLog
from tnn.training.run_recipe import train
from tnn.training.trainer import JsonlLogger, Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(trainer, "perf_counter", lambda: time.now)
    return time


def at(step, total=10):
    return SimpleNamespace(is_world_process_zero=True, global_step=step, max_steps=total)


def go(progress, clock, step, seconds, total=10):
    progress.on_step_begin(None, None, None)
    clock.now += seconds
    progress.on_step_end(None, at(step, total), None)


LOGS = {"loss": 2.0, "learning_rate": 0.01}


def test_lines_say_how_far_and_how_long(clock, capsys):
    progress = Progress(50, "tokens")
    progress.on_train_begin(None, at(0), None)
    go(progress, clock, 1, seconds=30)  # the first step takes longer
    progress.on_log(None, at(1), None, logs=LOGS)
    for step in (2, 3, 4):
        go(progress, clock, step, seconds=10)
    clock.now += 6  # an evaluation
    progress.on_log(None, at(4), None, logs={"eval_loss": 1.5, "eval_runtime": 6})
    progress.on_log(None, at(4), None, logs=LOGS)
    for step in range(5, 11):
        go(progress, clock, step, seconds=10)
    progress.on_log(None, at(10), None, logs=LOGS)
    progress.on_train_end(None, None, None)
    assert capsys.readouterr().err.splitlines() == [
        "step 1 of 10 (10%)  loss 2.0000, lr 1.00e-02, 2 tokens/s",
        "step 4 of 10 (40%)  validation loss 1.5000",
        "step 4 of 10 (40%)  loss 2.0000, lr 1.00e-02, 5 tokens/s, 1 min 12 s left",
        "step 10 of 10 (100%)  loss 2.0000, lr 1.00e-02, 5 tokens/s",
    ]


def test_a_resumed_run_counts_its_own_time(clock, capsys):
    progress = Progress(1, "tokens")
    progress.on_train_begin(None, at(6, total=10), None)
    go(progress, clock, 7, seconds=99)
    go(progress, clock, 8, seconds=3)
    progress.on_log(None, at(8), None, logs=LOGS)
    assert capsys.readouterr().err.endswith(", 6 s left\n")


def test_a_terminal_has_a_bar(clock, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress(50, "tokens")
    progress.on_train_begin(None, at(0), None)
    go(progress, clock, 1, seconds=10)
    progress.on_log(None, at(1), None, logs=LOGS)
    progress.on_log(None, at(1), None, logs={"eval_loss": 1.5})
    progress.on_train_end(None, None, None)
    shown = capsys.readouterr().err
    assert re.search(r"10%\|.*\| 1/10 \[\d+:\d+<.*loss 2.0000, lr 1.00e-02, 5 tokens/s", shown)
    assert "step 1 of 10 (10%)  validation loss 1.5000" in shown


def test_the_log_has_the_time_of_the_whole_training(clock, tmp_path):
    def log(first, *steps):
        logger = JsonlLogger(RunLog(tmp_path))
        logger.on_train_begin(None, at(first), None)
        for step in steps:
            clock.now += 2
            logger.on_log(None, at(step), None, logs=LOGS | {"epoch": 1.0})

    log(0, 1, 2)
    clock.now += 1000  # between two processes
    RunLog(tmp_path).cut(1)
    log(1, 2)
    assert [entry["seconds"] for entry in RunLog(tmp_path).entries()] == [2, 4]
    assert RunLog(tmp_path).seconds() == 4
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n')  # of a version that noted no times
    log(1, 2)
    assert RunLog(tmp_path).seconds() is None


@pytest.mark.slow
def test_a_training_has_times(recipe, tmp_path, capsys):
    train(recipe(steps=3), tmp_path / "run", log=lambda text: None)
    assert 0 < RunLog(tmp_path / "run").seconds() < 100
    assert re.search(r"^step 2 of 3 \(67%\)  loss .* tokens/s, \d+ s left$", capsys.readouterr().err, re.MULTILINE)
    assert runs.is_finished(tmp_path / "run")
