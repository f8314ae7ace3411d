"""Resuming with another number of steps: equal to one run of that length where it can be, and said where it cannot."""

import re
import shutil

import pytest

from tnn.models.loading import read_config
from tnn.training import runs
from tnn.training.checkpoints import list_checkpoints
from tnn.training.lengthening import _differences, describe_change
from tnn.training.recipe import load_recipe
from tnn.training.run_recipe import train
from tnn.training.trainer import RecipeTrainer

CONSTANT = {"schedule": "constant", "warmup_steps": 2}


def run(recipe, folder, **options):
    output = []
    train(recipe, folder, log=output.append, **options)
    return output


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def losses(folder):
    return [(entry["step"], entry["loss"]) for entry in runs.RunLog(folder).entries() if "loss" in entry]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("short", "long"),
    [
        (CONSTANT | {"steps": 6}, {"steps": 12}),
        (CONSTANT | {"steps": 7, "evaluate_every": 3, "save_every": None}, {"steps": 11}),
        (CONSTANT | {"steps": 6, "evaluate_every": 3, "save_every": 3, "keep_best": True}, {"steps": 12}),
        ({"steps": 5, "schedule": "inverse-sqrt"}, {"steps": 9}),
        ({"steps": 5, "schedule": "cosine", "schedule_steps": 20}, {"steps": 9}),
        (CONSTANT | {"steps": None, "epochs": 0.1}, {"epochs": 0.2}),
    ],
    ids=["constant", "evaluations", "best", "inverse-sqrt", "steps of the schedule", "epochs"],
)
def test_a_finished_run_goes_on_as_if_it_had_not_ended(recipe, tmp_path, short, long):
    """Bit for bit, with dropout, in its weights and in its log."""
    model = {"dropout": 0.1}
    run(recipe(model=model, **short | long), tmp_path / "at once")
    run(recipe(model=model, **short), tmp_path / "run")
    first = losses(tmp_path / "run")
    output = run(recipe(model=model, **short | long), tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "at once")
    assert losses(tmp_path / "run") == losses(tmp_path / "at once")
    assert losses(tmp_path / "run")[: len(first)] == first
    assert any(line.endswith("the final weights will be those of such a run") for line in output)
    assert runs.load_measured(tmp_path / "run") == runs.load_measured(tmp_path / "at once")


@pytest.mark.slow
def test_a_schedule_that_depends_on_the_number_of_steps(recipe, tmp_path):
    run(recipe(steps=6), tmp_path / "run")
    output = run(recipe(steps=12), tmp_path / "run", resume=True)
    (said,) = [line for line in output if "instead of" in line]
    assert re.fullmatch(
        "12 steps instead of 6: weights, optimizer and order of the data go on after step 6; the final weights will "
        r"not be those of a run of 12 steps: the schedule, cosine, depends on their number "
        r"\(the learning rate goes from 1\.46e-03 to 6\.55e-03\)",
        said,
    )
    assert [step for step, _ in losses(tmp_path / "run")] == list(range(1, 13))
    assert read_config(tmp_path / "run")
    assert run(recipe(steps=12), tmp_path / "run", resume=True) == [f"{tmp_path / 'run'} is finished already"]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [10, 11, 14])
def test_a_stopped_run_may_become_longer_or_shorter(recipe, tmp_path, steps):
    """But not shorter than what is done."""
    run(recipe(**CONSTANT, steps=12), tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()  # as if it had been killed after the checkpoint of step 10
    shutil.rmtree(list_checkpoints(tmp_path / "run")[0])
    with pytest.raises(
        ValueError, match=r"step 10 of \S+ is done already: a run of 9 steps would have ended before it$"
    ):
        run(recipe(**CONSTANT, steps=9), tmp_path / "run", resume=True)
    run(recipe(**CONSTANT, steps=steps), tmp_path / "run", resume=True)
    run(recipe(**CONSTANT, steps=steps), tmp_path / "at once")
    assert weights(tmp_path / "run") == weights(tmp_path / "at once")


@pytest.mark.slow
def test_a_longer_run_that_is_stopped_is_not_finished(recipe, tmp_path, monkeypatch):
    """Neither is it taken for the shorter one."""
    run(recipe(**CONSTANT, steps=5), tmp_path / "run")
    original = RecipeTrainer.training_step

    def stop(trainer, *positional, **options):
        if trainer.state.global_step == 8:
            raise OSError("the power failed")
        return original(trainer, *positional, **options)

    monkeypatch.setattr(RecipeTrainer, "training_step", stop)
    with pytest.raises(OSError, match="the power failed"):
        run(recipe(**CONSTANT, steps=12, save_every=7), tmp_path / "run", resume=True)
    monkeypatch.undo()
    assert not runs.is_finished(tmp_path / "run")
    assert runs.newest_model(tmp_path / "run").name == "checkpoint-7"
    with pytest.raises(
        ValueError, match=r"step 7 of \S+ is done already: a run of 5 steps would have ended before it$"
    ):
        run(recipe(**CONSTANT, steps=5, save_every=7), tmp_path / "run", resume=True)
    run(recipe(**CONSTANT, steps=12, save_every=7), tmp_path / "run", resume=True)
    run(recipe(**CONSTANT, steps=12), tmp_path / "at once")
    assert weights(tmp_path / "run") == weights(tmp_path / "at once")


@pytest.mark.slow
def test_without_its_checkpoints_a_finished_run_cannot_go_on(recipe, tmp_path):
    run(recipe(steps=3), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    finished = weights(tmp_path / "run")
    message = (
        r"is finished, and has no whole checkpoint to go on from; start .* model.preset=null model.start_from=\S+run$"
    )
    with pytest.raises(FileNotFoundError, match=message):
        run(recipe(steps=6), tmp_path / "run", resume=True)
    assert runs.is_finished(tmp_path / "run")
    assert weights(tmp_path / "run") == finished
    assert runs.load_run_recipe(tmp_path / "run").training.steps == 3


def test_an_evaluation_that_decides(recipe):
    """At its end a run is evaluated once more, which a longer one is not: with keep_best that may decide."""
    decides = {"evaluate_every": 3, "save_every": 3, "keep_best": True, "schedule": "constant"}
    training = recipe(**decides, steps=5).training
    longer = recipe(**decides, steps=9).training
    assert _differences(training, longer, 5, 9, done=5) == ["the evaluation after step 5 counts too"]
    assert _differences(training, longer, 5, 9, done=3) == []


def test_what_may_change(recipe, tmp_path):
    runs.begin(tmp_path, recipe(), {})
    assert describe_change(tmp_path, recipe(log_every=3), examples=100) == ""
    for change in ({"steps": 99}, {"steps": None, "epochs": 7}, {"evaluate_every": 6}):
        runs.check(tmp_path, recipe(**change), resume=True)
    for change in (
        {"learning_rate": 0.02},
        {"batch_size": 8},
        {"schedule_steps": 99},
        {"warmup_steps": 3},
        {"seed": 1},
    ):
        with pytest.raises(ValueError, match="has another recipe: training"):
            runs.check(tmp_path, recipe(**change), resume=True)


def test_several_trainings_keep_their_length(tmp_path):
    """Those that are finished would be compared with longer ones."""
    words = ["model.start_from=a-model", "data.glue=glue"]
    runs.begin(tmp_path, load_recipe("glue-cola", words), {})
    runs.check(tmp_path, load_recipe("glue-cola", [*words, "training.log_every=3"]), resume=True)
    with pytest.raises(ValueError, match=r"has another recipe: training\.epochs was 3.0, and is 4.0 now"):
        runs.check(tmp_path, load_recipe("glue-cola", [*words, "training.epochs=4"]), resume=True)


def test_evaluations_that_decide_may_not_change(recipe, tmp_path):
    runs.begin(tmp_path, recipe(evaluate_every=3, save_every=3, keep_best=True), {})
    with pytest.raises(ValueError, match=r"has another recipe: training\.evaluate_every was 3, and is 4 now"):
        runs.check(tmp_path, recipe(evaluate_every=4, save_every=4, keep_best=True), resume=True)
