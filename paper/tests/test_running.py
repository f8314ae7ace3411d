"""Trials run once; what is known is skipped, what fails or stops loses nothing."""

import json
import subprocess
import sys
import threading

import pytest
from filelock import FileLock

from paper import running
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std
from paper.harness.judging import collect
from paper.harness.records import Records
from paper.harness.trial import Options, Trial, TrialContext


@pytest.fixture
def calls():
    return []


@pytest.fixture
def experiment(calls, monkeypatch):
    def plan(options):
        def work(context, row, seed):
            calls.append((row, seed))
            if row == "broken":
                raise OSError("no data here")
            return {"score": float(seed), "undefined": float("nan")}

        rows, steps = options.methods or ("a", "b"), options.steps or 10
        return [
            Trial(
                "made", row, {"steps": steps}, lambda context, r=row, s=seed: work(context, r, s), seed=seed, cost=steps
            )
            for row in rows
            for seed in range(options.seeds or 2)
        ] * 2  # as if two tables needed them

    def conclude(options, records):
        values = collect(plan(options), records, "score")
        rows = (("row", "score"), *((row, format_mean_std(found)) for row, found in values.items()))
        return Outcome((Table("Scores", rows),), None, (Claim("All is well.", "holds", "seen"),), ("A note.",))

    made = Experiment("made", "A made one.", ("a", "b", "broken"), plan, conclude)
    monkeypatch.setattr(running, "find_experiment", lambda name: made)
    return made


@pytest.fixture
def run(tmp_path, experiment):
    def go(**options):
        said = []
        places = {"data": tmp_path, "out": tmp_path / "results", "models": tmp_path / "runs"}
        running.reproduce("made", Options(**options), **places, log=said.append)
        return "\n".join(said)

    return go


def test_each_trial_runs_once(run, calls, tmp_path):
    said = run()
    assert calls == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert "4 trials, 0 of them measured" in said
    assert "for the 3 left" in said
    assert "4 trials, 4 of them measured" in run()
    run(methods=("b",), seeds=3)
    assert calls[4:] == [("b", 2)]
    assert len((tmp_path / "results/mini/made.jsonl").read_text().splitlines()) == 5


def test_other_settings_are_other_trials(run, calls):
    run(steps=10)
    run(steps=20)
    assert calls[:4] == calls[4:]


def test_records_say_all_that_is_needed(run, tmp_path):
    run(methods=("a",), seeds=1)
    record = json.loads((tmp_path / "results/mini/made.jsonl").read_text())
    assert record["settings"] == {"steps": 10}
    assert record["metrics"] == {"score": 0.0, "undefined": None}
    assert record["seconds"] >= 0
    assert record["peak_memory_mb"] > 50
    assert record["machine"]["threads"] == 1
    assert {"python", "torch", "transformers", "toeplitz-nn"} <= record["versions"].keys()


def test_the_page_has_command_table_and_claims(run, tmp_path):
    run(methods=("a",), steps=3)
    text = (tmp_path / "results/mini/made.md").read_text()
    assert "python -m paper made --scale mini --methods a --steps 3" in text
    assert "| a   | 0.50 ± 0.71 |" in text
    assert "- ✓ **holds**: All is well. *seen*" in text


def test_a_trial_that_fails_keeps_what_was_measured(run, calls, tmp_path):
    with pytest.raises(OSError, match="no data here"):
        run(methods=("a", "broken"), seeds=1)
    assert len((tmp_path / "results/mini/made.jsonl").read_text().splitlines()) == 1
    run(methods=("a",), seeds=1)
    assert calls.count(("a", 0)) == 1


def test_bad_options_are_told_in_a_line(run):
    with pytest.raises(ValueError, match="made has no row 'c'; there are a, b, broken"):
        run(methods=("c",))
    with pytest.raises(ValueError, match="seeds must be at least 1; got 0"):
        run(seeds=0)


def test_a_damaged_record_is_named(run, tmp_path):
    run()
    path = tmp_path / "results/mini/made.jsonl"
    path.write_text(path.read_text() + '{"experiment": "made", "ro')
    with pytest.raises(ValueError, match=r"made\.jsonl, line 5 is damaged"):
        run()


def test_a_trial_of_another_process_is_waited_for(run, calls, tmp_path, experiment, monkeypatch):
    """It writes its record while it holds the lock; then there is nothing left to run."""
    (trial, *_) = experiment.plan(Options(methods=("a",), seeds=1))
    context = TrialContext(tmp_path, tmp_path / "runs/mini", Records(tmp_path / "results/mini"))
    locks = context.models / "locks"
    locks.mkdir(parents=True)
    locked, waiting = threading.Event(), threading.Event()

    def other():
        with FileLock(locks / f"made-{trial.folder(context).name}"):
            locked.set()
            waiting.wait()
            context.records.add(running.run_trial(trial, context))

    said = []
    thread = threading.Thread(target=other)
    thread.start()
    locked.wait()
    places = {"data": tmp_path, "out": tmp_path / "results", "models": tmp_path / "runs"}
    running.reproduce(
        "made",
        Options(methods=("a",), seeds=1),
        **places,
        log=lambda text: (said.append(text), waiting.set() if "waiting" in text else None),
    )
    thread.join()
    assert calls == [("a", 0)]
    assert any("another process is measuring it" in text for text in said)
    assert len((tmp_path / "results/mini/made.jsonl").read_text().splitlines()) == 1


@pytest.mark.slow
def test_two_processes_write_whole_lines(tmp_path):
    code = """
import sys
from pathlib import Path
from paper.harness.records import Record, Records
records = Records(Path(sys.argv[1]))
for i in range(200):
    records.add(Record("made", sys.argv[2], "", i, {"text": "x" * 3000}, {}, 0.0, 0.0, {}, {}))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen([*command, row]) for row in "ab"]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert sorted((record.row, record.seed) for record in Records(tmp_path).read("made")) == [
        (row, i) for row in "ab" for i in range(200)
    ]
