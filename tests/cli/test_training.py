"""`tnn train`: texts and runs in place of a recipe, recipes that are shown, listed and written."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tnn.cli import app
from tnn.training import runs
from tnn.training.recipe import load_recipe, recipe_text, summarize_recipes

TINY = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.rpe_size=8", "data.length=32"]
TINY += ["training.steps=3", "training.batch_size=2", "training.log_every=1", "training.warmup_steps=1"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TNN_CACHE", str(tmp_path / "cache"))


def train(*words):
    return CliRunner().invoke(app, ["train", *(str(word) for word in words)])


def assert_one_line(done, message):
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr)


def test_list_and_show():
    shown = [re.split(r" {2,}", line, maxsplit=1) for line in train("--list").stdout.splitlines()]
    assert dict(shown) == summarize_recipes()
    assert train("--show", "tnn-mini").stdout == recipe_text("tnn-mini")
    Path("mine.yaml").write_text("# my own\ntask: causal-lm")
    assert train("mine.yaml", "--show").stdout == "# my own\ntask: causal-lm\n"
    assert_one_line(train("tnn-mini", "training.steps=3", "--show"), "as it is: leave out training.steps=3")
    assert_one_line(train("--show"), "give a recipe: .*mini-alm")
    assert_one_line(train("--show", "tnn-min"), "did you mean 'tnn-mini'")


@pytest.mark.slow
def test_a_folder_of_texts_alone(corpus):
    done = train("corpus", *TINY)
    assert done.exit_code == 0, done.output
    assert "corpus is taken as a text, for the recipe tnn-mini" in done.stderr
    assert runs.is_finished(Path("runs/corpus"))
    assert runs.load_run_recipe(Path("runs/corpus")).data.corpus == "corpus"
    again = train("corpus", *TINY, "--resume")
    assert again.stdout == "runs/corpus is finished already\n"


@pytest.mark.slow
def test_a_run_that_goes_on(corpus):
    constant = [*TINY, "training.schedule=constant", "training.keep_best=false"]
    assert train("corpus", *constant).exit_code == 0
    done = train("runs/corpus", "training.steps=5", "--resume")
    assert done.exit_code == 0, done.output
    assert "5 steps instead of 3" in done.stdout
    assert "those of such a run" in done.stdout
    assert train("corpus", *constant, "training.steps=5", "--out", "at-once").exit_code == 0
    assert Path("runs/corpus/model.safetensors").read_bytes() == Path("at-once/model.safetensors").read_bytes()
    assert_one_line(train("runs/corpus"), "runs/corpus is the folder of a run: go on with --resume")
    shutil.rmtree("runs/corpus/checkpoints")
    assert_one_line(
        train("runs/corpus", "training.steps=9", "--resume"), "is finished, and has no whole checkpoint to go on from"
    )


@pytest.mark.slow
def test_a_recipe_that_was_written_trains(corpus):
    done = train("--init", "my.yaml", "--data", "corpus")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("\ntrain it with: tnn train my.yaml\n")
    assert done.stdout.startswith('A language model of "corpus": ')
    recipe = load_recipe("my.yaml")
    assert recipe.model_dump(include={"name", "task"}) == {"name": "my", "task": "causal-lm"}
    tiny = [*TINY[:4], "training.steps=3", "training.evaluate_every=2", "training.save_every=2"]
    assert train("my.yaml", *tiny).exit_code == 0
    assert yaml.safe_load(Path("runs/my/recipe.yaml").read_text())["data"]["corpus"] == "corpus"


def test_a_recipe_for_a_table():
    """With how it is read; line ends and the marks of the table are not text."""
    Path("notes.csv").write_text("id,note\n" + "".join(f'{i},"note {i}\nits end"\n' for i in range(200)))
    done = train("--init", "my.yaml", "--data", "notes.csv", "data.text_column=note", "data.bad_files=skip")
    assert done.exit_code == 0, done.output
    data = load_recipe("my.yaml").data
    assert (data.corpus, data.text_column, data.bad_files) == ("notes.csv", "note", "skip")
    size = sum(len(f"note {i}\nits end") for i in range(200))
    megabytes = float(re.search(r"[\d.]+(?= MB)", done.stdout)[0])
    assert megabytes == pytest.approx(0.9 * size / 1e6, rel=0.02)


BAD = {
    "only --init": (("--init", "my.yaml"), "--init writes a recipe for a text: give it with --data"),
    "only --data": (("--data", "corpus"), "--data is for --init; to train on corpus, give data.corpus=corpus"),
    "a recipe too": (
        ("tnn-mini", "--init", "my.yaml", "--data", "corpus"),
        "trains nothing: leave out tnn-mini; only data.text",
    ),
    "a change": (("--init", "my.yaml", "--data", "corpus", "data.length=9"), "leave out data.length=9; only data.text"),
    "no column": (("--init", "my.yaml", "--data", "old.csv"), "is a table: name the column of its texts"),
    "no such rule": (("--init", "my.yaml", "--data", "corpus", "data.lines=no"), "lines must be one of auto, keep"),
    "not YAML": (("--init", "my.txt", "--data", "corpus"), r"--init must be the name of a \.yaml file; got my\.txt"),
    "exists": (("--init", "old.yaml", "--data", "corpus"), r"old\.yaml exists already"),
    "no folder": (("--init", "corpus/train.txt/a.yaml", "--data", "corpus"), "is not a folder"),
    "no text": (("--init", "my.yaml", "--data", "absent"), "no text at absent"),
    "not a text": (("--init", "my.yaml", "--data", "latin"), "latin is not a UTF-8 text"),
    "little text": (("little",), "the training text must fill a block of 512 tokens"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input(corpus, words, message):
    Path("old.yaml").write_text("mine")
    Path("old.csv").write_text("id,note\n1,a\n")
    Path("latin").write_bytes(b"abc\xff" * 999)
    Path("little").write_text("a few words")
    done = train(*words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.search(rf"^error: .*{message}", done.stderr, re.MULTILINE)
    assert not Path("my.yaml").exists()
    assert not Path("runs/little").exists()
    assert Path("old.yaml").read_text() == "mine"
