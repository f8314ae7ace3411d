"""`tnn runs`: what it says of runs in every state, and that it says it of damaged ones too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tnn.cli import app
from tnn.training import runs
from tnn.training.overview import list_runs, summarize
from tnn.training.run_lock import lock_holder, locked
from tnn.training.run_recipe import train


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def make(recipe):
    """make(name, *entries): the folder of a run with a log."""

    def run(name, *entries, finished=False, checkpoint=None):
        folder = Path("runs", name)
        runs.begin(folder, recipe(steps=800), {})
        for step, values in entries:
            runs.RunLog(folder).add(step, values)
        if checkpoint:
            (folder / "checkpoints" / f"checkpoint-{checkpoint}").mkdir(parents=True)
        if finished:
            (folder / "config.json").write_text("{}")
            (folder / "measured.json").write_text(json.dumps(finished))
        return folder

    return run


def invoke(*words):
    return CliRunner().invoke(app, ["runs", *map(str, words)])


def test_states(make, corpus):
    losses = [(100, {"loss": 2.0, "seconds": 60.0}), (100, {"eval_loss": 1.5, "eval_runtime": 3.0})]
    make("a-new-one")
    make("finished", *losses, (800, {"eval_loss": 1.75, "seconds": 480.0}), finished={"eval_loss": 1.75})
    make("stopped", *losses, (150, {"loss": 1.9}), checkpoint=100)
    make(
        "study/classes", (50, {"eval_loss": 0.5, "eval_accuracy": 0.75}), (99, {"eval_loss": 0.4, "eval_accuracy": 0.5})
    )
    running = make("running", *losses)
    with locked(running):
        shown = invoke().stdout.splitlines()
        values = {Path(run["folder"]).name: run for run in json.loads(invoke("--json").stdout)}
    busy = f"running, process {os.getpid()}"  # the widest of its column
    assert shown == [
        f"run                 {'state':{len(busy)}}  step        model     {'data':{len(str(corpus))}}  validation"
        "                    time",
        *(
            f"runs/{name:13}  {state:{len(busy)}}  {step:10}  mini-alm  {corpus}  {score:28}  {time}"
            for name, state, step, score, time in (
                ("a-new-one", "stopped", "0 of 800", "-", "-"),
                ("finished", "finished", "800 of 800", "loss 1.7500, best 1.5000", "8 min 0 s"),
                ("running", busy, "100 of 800", "loss 1.5000, best 1.5000", "1 min 0 s"),
                ("stopped", "stopped", "100 of 800", "loss 1.5000, best 1.5000", "1 min 0 s"),
                ("study/classes", "stopped", "0 of 800", "accuracy 0.5000, best 0.7500", "-"),
            )
        ),
    ]
    assert values["finished"] == {
        "folder": "runs/finished",
        "state": "finished",
        "process": None,
        "step": 800,
        "steps": 800,
        "model": "mini-alm",
        "data": str(corpus),
        "metric": "loss",
        "last": 1.75,
        "best": 1.5,
        "seconds": 480.0,
        "problem": None,
    }
    assert values["running"]["process"] == str(os.getpid())


@pytest.mark.slow
def test_a_real_run(recipe):
    measured = train(recipe(steps=3, evaluate_every=2), Path("runs/real"), log=lambda text: None)
    (found,) = list_runs(Path("runs"))
    assert (found.state, found.step, found.steps, found.metric) == ("finished", 3, 3, "loss")
    assert found.last == measured["eval_loss"]
    assert list_runs(Path("runs/real")) == [found]


def test_several_trainings_of_one_recipe(make):
    runs.begin(Path("runs/tuned"), runs.load_run_recipe(make("other")), {})
    make("tuned/cola/lr-1", (3, {"loss": 1.0}))
    assert [run.folder for run in list_runs(Path("runs"))] == ["runs/other", "runs/tuned/cola/lr-1"]


def test_a_killed_process_is_not_running(make):
    folder = make("run")
    code = "import sys, time; from pathlib import Path; from tnn.training.run_lock import locked\n"
    code += "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        assert lock_holder(folder) == str(process.pid)
        process.kill()
    assert (folder / ".lock").is_file()
    assert lock_holder(folder) is None
    assert summarize(folder).state == "stopped"


DAMAGES = {
    "no recipe": (lambda folder: (folder / "recipe.yaml").unlink(), "recipe.yaml is missing"),
    "half a recipe": (
        lambda folder: (folder / "recipe.yaml").write_text("model: ["),
        "recipe.yaml is damaged: it is not a recipe",
    ),
    "another file": (
        lambda folder: (folder / "recipe.yaml").write_text("- 3"),
        "recipe.yaml is damaged: it is not a recipe",
    ),
    "odd sections": (
        lambda folder: (folder / "recipe.yaml").write_text("{model: 1, data: 2, training: 3}"),
        "recipe.yaml is damaged: it is not a recipe",
    ),
    "a log": (
        lambda folder: (folder / "log.jsonl").write_text("no\n"),
        "log.jsonl, line 1 is damaged: it must be a JSON object with a \"step\"; got 'no'",
    ),
}


@pytest.mark.parametrize(("damage", "problem"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_runs(make, damage, problem):
    damage(make("bad", (1, {"loss": 1.0})))
    make("good", (1, {"loss": 1.0}))
    _, bad, good = invoke().stdout.splitlines()
    assert bad == f"runs/bad   damaged  {problem}"
    assert good.startswith("runs/good  stopped  0 of 800")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["recipe.yaml", "log.jsonl", "measured.json", ".lock"]), content=st.binary(max_size=30))
def test_any_content_is_one_line(tmp_path, name, content):
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text("{model: {preset: a}, data: {corpus: b}, training: {steps: 3}}")
    (folder / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    (folder / "config.json").touch()
    (folder / "measured.json").write_text("{}")
    (folder / name).write_bytes(content)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = invoke(folder)
    assert (done.exit_code, done.stdout.count("\n")) == (0, 2)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    (folder / ".lock").unlink(missing_ok=True)


def test_no_runs():
    done = invoke()
    assert (done.exit_code, done.output) == (1, "error: there is no folder runs: tnn train makes runs in runs/\n")
    Path("runs").mkdir()
    done = invoke()
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "there are no runs in runs\n")
    assert invoke("--json").stdout == "[]\n"
