"""The demonstration, with everything tiny."""

import json
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tnn.cli import app
from tnn.training.demo import FULL, Scale, demo
from tnn.training.recipe import dump_recipe, load_recipe
from tnn.training.run_recipe import Interrupted


@pytest.fixture(scope="module", autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(scope="module")
def scale(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text("".join(f"def f{i}(x):\n    return x < {i}\n\n" for i in range(300)))
    return Scale(
        changes=(
            f"data.corpus={folder / 'text.txt'}",
            f"data.cache={folder / 'cache'}",
            "data.length=32",
            "model.hidden_size=16",
            "model.num_hidden_layers=2",
            "model.decay=0.9",
            "training.steps=4",
            "training.batch_size=2",
            "training.warmup_steps=1",
            "training.log_every=1",
            "training.evaluate_every=2",
            "training.save_every=2",
        ),
        lengths=(32, 96),
        contexts=(8, 16),
        new_tokens=12,
    )


@pytest.fixture(scope="module")
def finished(scale, tmp_path_factory):
    """The folder of a finished demo, and its output."""
    out, output = tmp_path_factory.mktemp("demo") / "new" / "out", []
    assert demo(out, scale, output.append) == out / "report.html"
    return out, output


@pytest.fixture
def again(finished, scale, tmp_path):
    """again(scale): the demo in a copy of that folder; returns its folder and its output."""
    out, output = tmp_path / "out", []
    shutil.copytree(finished[0], out)

    def run(scale=scale):
        demo(out, scale, output.append)
        return output

    return out, run


@pytest.mark.slow
def test_what_it_leaves(finished):
    out, output = finished
    assert {path.name for path in out.iterdir()} == {"model", "report.html"}
    assert {"config.json", "model.safetensors", "log.jsonl"} <= {path.name for path in (out / "model").iterdir()}
    html = (out / "report.html").read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,iVBOR") == 3
    assert f"tnn demo --out {out}" in html
    assert output[0] == "training on Python's standard library, steps 1 to 4"
    assert output[-1].startswith(f"{out / 'report.html'} has all results, after ")


@pytest.mark.slow
def test_the_headlines_are_those_of_the_page(finished):
    out, output = finished
    html, lines = (out / "report.html").read_text(encoding="utf-8"), output[-2].splitlines()
    assert len(lines) == 8
    for line in lines:
        value, name = line.strip().split("  ")
        assert f"<dt>{name}</dt><dd>{value}</dd>" in html


@pytest.mark.slow
def test_a_finished_model_is_used_again(again):
    out, run = again
    weights = (out / "model" / "model.safetensors").stat().st_mtime_ns
    (out / "report.html").unlink()
    output = run()
    assert output[0] == f"using the model in {out / 'model'} again; remove it to train a new one"
    assert (out / "model" / "model.safetensors").stat().st_mtime_ns == weights
    assert "tokens/s in training" in (out / "report.html").read_text(encoding="utf-8")  # known from the time before


@pytest.mark.slow
def test_a_training_that_was_killed_continues(again, finished):
    out, run = again
    model = out / "model"
    (model / "config.json").unlink()
    shutil.rmtree(model / "checkpoints" / "checkpoint-4")
    assert run()[0] == "training on Python's standard library, steps 3 to 4"
    assert (model / "model.safetensors").read_bytes() == (finished[0] / "model" / "model.safetensors").read_bytes()
    log = [json.loads(line) for line in (model / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log if "loss" in entry] == [1, 2, 3, 4]
    assert len([entry for entry in log if "seconds_per_step" in entry]) == 1


@pytest.mark.slow
def test_other_settings_train_a_new_model(again, scale):
    out, run = again
    output = run(replace(scale, changes=(*scale.changes, "training.steps=3")))
    assert output[0] == f"removing {out / 'model'}, which was trained with other settings"
    assert output[1] == "training on Python's standard library, steps 1 to 3"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", "mine", "exists already"),
        ("recipe.yaml", "- mine", "is damaged"),
        ("recipe.yaml", dump_recipe(load_recipe("mini-alm")), "has another recipe: name was mini-alm"),
    ],
)
def test_what_others_made_is_left_alone(scale, tmp_path, name, content, message):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_text(content)
    with pytest.raises((FileExistsError, ValueError), match=message):
        demo(tmp_path, scale, lambda text: None)
    assert (tmp_path / "model" / name).read_text() == content


def test_the_real_settings_are_a_recipe():
    recipe = load_recipe("mini-alm", FULL.changes)
    assert FULL.lengths[0] == recipe.data.length == 512
    assert FULL.lengths[-1] == 14_336


@pytest.fixture
def command(monkeypatch):
    """command(problem, *arguments): `tnn demo` that has no time; the folder it got, and how it ended."""

    def invoke(problem, *arguments):
        folders = []

        def fake(out, log):
            folders.append(out)
            log("done")
            if problem:
                raise problem

        monkeypatch.setattr("tnn.training.demo.demo", fake)
        return folders, CliRunner().invoke(app, ["demo", *map(str, arguments)])

    return invoke


def test_command(command, tmp_path):
    folders, done = command(None, "--out", tmp_path)
    assert (folders, done.exit_code, done.stdout) == ([tmp_path], 0, "done\n")


def test_stopped(command, tmp_path):
    _, done = command(Interrupted("stopped after step 3 of 4"), "--out", tmp_path)
    assert done.exit_code == 130
    assert done.stderr == f"stopped after step 3 of 4; continue with: tnn demo --out {tmp_path}\n"


def test_a_full_disk_is_one_line(command, tmp_path):
    _, done = command(OSError("no space\nleft"), "--out", tmp_path)
    assert (done.exit_code, done.stderr) == (1, "error: no space left\n")
