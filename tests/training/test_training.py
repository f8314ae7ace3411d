"""Training by a recipe: the files of a run, resuming after every kind of end, and refused input."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    set_seed,
)

from tnn.models import TNNConfig, TNNForMaskedLM, TNNForSequenceClassification, TNNImageConfig, load_preset
from tnn.models.backbone import TNNLayer
from tnn.training import runs
from tnn.training.recipe import load_recipe, parse_recipe
from tnn.training.run_lock import locked
from tnn.training.run_recipe import Diverged, train
from tnn.training.schedules import learning_rate
from tnn.training.tasks.registry import find_task
from tnn.training.tasks.setup import load_head
from tnn.training.trainer import RecipeTrainer, training_arguments


def quiet(text):
    pass


def build(recipe):
    return find_task(recipe.task).build(recipe)


def run(recipe, folder, **options):
    return train(recipe, folder, log=quiet, **options)


def losses(folder):
    return [entry["loss"] for entry in runs.RunLog(folder).entries() if "loss" in entry]


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_what_a_run_leaves(recipe, tmp_path):
    tiny, out = recipe(data={"lines": "keep"}, evaluate_every=6), tmp_path / "run"
    measured = run(tiny, out)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.config.hidden_size == 16
    assert model(torch.tensor([[5, 6]])).past_key_values.get_seq_length() == 2
    assert len(tokenizer) == model.config.vocab_size == 260
    assert runs.load_run_recipe(out) == tiny
    assert measured == runs.load_measured(out)
    assert losses(out)[-1] < losses(out)[0] - 0.5
    evaluations = {entry["step"]: entry["eval_loss"] for entry in runs.RunLog(out).entries() if "eval_loss" in entry}
    assert set(evaluations) == {6, 12}
    assert measured == {"eval_loss": evaluations[12]}
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["checkpoint-10", "checkpoint-12"]
    assert not list(out.glob("*.bin"))  # no pickles
    assert not list(out.glob(".*"))


@pytest.mark.slow
def test_a_model_without_a_cache_stays_so(recipe, tmp_path):
    run(recipe(steps=1, model={"use_cache": False}), tmp_path / "run")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run").config.use_cache is False


def test_evaluation_makes_no_cache(monkeypatch):
    given = []
    monkeypatch.setattr(Trainer, "prediction_step", lambda self, model, inputs, loss_only: given.append(inputs))
    trainer = RecipeTrainer.__new__(RecipeTrainer)
    for config in (TNNConfig(), TNNImageConfig()):
        trainer.model = SimpleNamespace(config=config)
        trainer.prediction_step(trainer.model, {"labels": 1}, True)
    assert given == [{"labels": 1, "use_cache": False}, {"labels": 1}]


@pytest.mark.slow
def test_the_evaluation_is_the_loss_of_the_model(recipe, tmp_path):
    tiny, out = recipe(steps=3), tmp_path / "run"
    measured = run(tiny, out)
    model, text = AutoModelForCausalLM.from_pretrained(out), (tmp_path / "corpus" / "valid.txt").read_bytes()
    ids = torch.tensor([2, *(byte + 4 for byte in text)])
    blocks = [ids[i : i + 33] for i in range(0, len(ids) - 1, 32)]
    with torch.no_grad():
        expected = [model(block[None], labels=block[None]).loss.item() for block in blocks]
    assert measured["eval_loss"] == pytest.approx(sum(expected) / len(expected), rel=0.02)  # the last block is short


@pytest.mark.slow
def test_evaluation_sets_can_be_limited(recipe, tmp_path):
    some = recipe(evaluate_examples=3)
    task = build(some)
    few = task.limit_eval(3)
    assert len(few.validation) == 3 < len(task.validation)
    assert few.train is task.train
    again = task.limit_eval(3).validation
    assert all((a["input_ids"] == b["input_ids"]).all() for a, b in zip(few.validation, again, strict=True))
    assert task.limit_eval(10**6).validation is task.validation
    measured = run(some, tmp_path / "few")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "few").eval()
    batch = few.collate([few.validation[i] for i in range(3)])
    with torch.no_grad():
        assert measured["eval_loss"] == pytest.approx(model(**batch).loss.item(), rel=1e-5)


@pytest.mark.slow
def test_learning_rates_are_those_of_the_schedule(recipe, tmp_path):
    tiny = recipe(schedule="inverse-sqrt", warmup_steps=3, warmup_from=1e-7)
    run(tiny, tmp_path / "run")
    rate = learning_rate(tiny.training, 12)
    logged = [entry["learning_rate"] for entry in runs.RunLog(tmp_path / "run").entries() if "loss" in entry]
    assert logged == pytest.approx([rate(step) for step in range(12)])


@pytest.mark.slow
def test_every_parameter_decays(recipe, tmp_path):
    """With a rate of nearly nothing for the gradients, decoupled decay is what is left: each by the same factor."""
    tiny = recipe(steps=2, schedule="constant", warmup_steps=0, learning_rate=1e-4, weight_decay=5000, epsilon=1e12)
    run(tiny, tmp_path / "run")
    set_seed(0)
    before = build(tiny).make_model().state_dict()
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "run").state_dict()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value * 0.25, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_accumulation_is_the_same_as_one_batch(recipe, tmp_path):
    run(recipe(), tmp_path / "one")
    made = recipe(micro_batch_size=1)
    assert training_arguments(made.training, 12, str(tmp_path), "loss").gradient_accumulation_steps == 4
    run(made, tmp_path / "four")
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "four"), rel=1e-4)


@pytest.mark.slow
def test_half_precision(recipe, tmp_path):
    run(recipe(), tmp_path / "plain")
    run(recipe(precision="bf16"), tmp_path / "half")
    assert losses(tmp_path / "half") != losses(tmp_path / "plain")
    assert losses(tmp_path / "half") == pytest.approx(losses(tmp_path / "plain"), rel=0.05)


@pytest.mark.slow
def test_gradient_checkpointing(recipe, tmp_path, monkeypatch):
    run(recipe(), tmp_path / "plain")
    original, calls = TNNLayer.forward, []

    def forward(layer, *positional, **options):
        calls.append(layer.training)
        return original(layer, *positional, **options)

    monkeypatch.setattr(TNNLayer, "forward", forward)
    run(recipe(gradient_checkpointing=True, steps=2, evaluate_every=2, schedule="constant"), tmp_path / "saving")
    assert sum(calls) == 2 * 2 * 2  # layers, steps, and each forward again in the backward pass
    assert losses(tmp_path / "saving")[0] == pytest.approx(losses(tmp_path / "plain")[0], rel=1e-5)


@pytest.mark.slow
def test_another_way_through_the_same_batches(recipe, tmp_path):
    """Settings with no effect on the weights may change when a run is resumed."""
    run(recipe(steps=8), tmp_path / "complete")
    run(recipe(steps=8), tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "checkpoint-8")
    run(recipe(steps=8, micro_batch_size=2), tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "complete"), rel=1e-4)


@pytest.mark.parametrize("norm", ["norm", "final_norm"])
def test_batch_norm_needs_the_same_micro_batches(recipe, tmp_path, norm):
    runs.begin(tmp_path, recipe(model={norm: "batch"}, micro_batch_size=2), {})
    runs.check(tmp_path, recipe(model={norm: "batch"}, micro_batch_size=2, log_every=2), resume=True)
    with pytest.raises(ValueError, match=r"another recipe: training.micro_batch_size was 2, and is 1 now$"):
        runs.check(tmp_path, recipe(model={norm: "batch"}, micro_batch_size=1), resume=True)


def test_a_model_to_start_from_may_have_batch_norm(recipe, tmp_path):
    def more(**options):
        made = recipe(**options).model_dump(exclude_none=True)
        return parse_recipe(made | {"model": {"start_from": str(tmp_path / "first")}})

    runs.begin(tmp_path / "run", more(micro_batch_size=2), {})
    load_preset("mini-alm", norm="layer").save_pretrained(tmp_path / "first")
    runs.check(tmp_path / "run", more(micro_batch_size=1), resume=True)
    load_preset("mini-alm", norm="batch").save_pretrained(tmp_path / "first")
    with pytest.raises(ValueError, match=r"another recipe: training.micro_batch_size was 2, and is 1 now$"):
        runs.check(tmp_path / "run", more(micro_batch_size=1), resume=True)


@pytest.mark.slow
def test_a_refused_run_leaves_its_folder_free(recipe, tmp_path):
    with pytest.raises(FileNotFoundError, match="no text at absent"):
        run(recipe(data={"corpus": "absent"}), tmp_path / "run")
    run(recipe(steps=2), tmp_path / "run")


@pytest.mark.slow
def test_starting_from_a_model(recipe, tmp_path):
    def more(**options):
        made = recipe(**options).model_dump(exclude_none=True)
        return parse_recipe(made | {"model": {"start_from": str(tmp_path / "first")}})

    run(recipe(), tmp_path / "first")
    run(more(steps=2), tmp_path / "second")
    assert losses(tmp_path / "second")[0] < losses(tmp_path / "first")[0] - 0.5
    with pytest.raises(ValueError, match=r"does not fit the model: .*first was trained with another one"):
        run(more(data={"tokenizer": "bpe:270"}), tmp_path / "third")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, r"of another shape \d+ keys \(model\.\S+, .*"),
        ({"num_hidden_layers": 3}, r"missing \d+ keys \(model\.layers\.2\.\S+, .*"),
        ({"num_hidden_layers": 1}, r"left over \d+ keys \(model\.layers\.1\.\S+, .*"),
        ({"rpe_num_layers": 7}, r"missing 4 keys \(model\.layers\.0\.\S+, .*"),
        ({"inner_norm": "layer"}, r"missing \d+ keys \(model\.layers\.\S+, .*"),
    ],
)
def test_weights_that_do_not_fit(tmp_path, changes, message):
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "is_decoder": False}
    TNNForMaskedLM(TNNConfig(**sizes)).save_pretrained(tmp_path)
    model = load_head(TNNForSequenceClassification, tmp_path, {"num_labels": 3})
    assert model.config.num_labels == 3
    with pytest.raises(ValueError, match=rf"the weights in {tmp_path} do not fit the model: {message}$"):
        load_head(TNNForSequenceClassification, tmp_path, {"num_labels": 3, **changes})


@pytest.mark.slow
def test_the_best_weights_are_kept(recipe, tmp_path):
    """A rate that is far too high after the first evaluation ruins the rest."""
    tiny = recipe(steps=12, evaluate_every=2, save_every=2, keep_best=True, learning_rate=3.0, warmup_steps=12, clip=0)
    measured = run(tiny, tmp_path / "run")
    eval_losses = [entry["eval_loss"] for entry in runs.RunLog(tmp_path / "run").entries() if "eval_loss" in entry]
    assert len(eval_losses) == 6
    assert measured["eval_loss"] == pytest.approx(min(eval_losses), rel=1e-6)
    assert min(eval_losses) < eval_losses[5]


@pytest.mark.slow
def test_patience(recipe, tmp_path):
    tiny = recipe(steps=40, evaluate_every=1, patience=3, learning_rate=3.0, warmup_steps=20, clip=0, save_every=1)
    run(tiny, tmp_path / "run")
    assert len(losses(tmp_path / "run")) < 40


@pytest.mark.slow
def test_masked(recipe, tmp_path):
    measured = run(recipe("masked-lm", data={"tokenizer": "bpe:300"}, steps=30), tmp_path / "run")
    model, tokenizer = (kind.from_pretrained(tmp_path / "run") for kind in (AutoModelForMaskedLM, AutoTokenizer))
    assert len(tokenizer) == model.config.vocab_size == 301
    assert tokenizer.mask_token_id == 300
    assert measured["eval_loss"] < math.log(301)


# --- ends of a run, and resuming


def start(recipe_file, out):
    command = [sys.executable, "-m", "tnn", "train", str(recipe_file), "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)


def wait_for(process, text):
    for line in process.stderr:
        if line.startswith(text):
            return
    raise AssertionError(f"no {text!r} came")


@pytest.fixture(scope="module")
def kill_at():
    """Another step each time, but one that is known: it is in the name of a failure."""
    return 7 + int(time.time()) % 12


@pytest.mark.slow
def test_kill_and_resume(recipe_file, tmp_path, kill_at):
    """The weights are bit-equal, with dropout and accumulation, whatever the step."""
    path = recipe_file(model={"dropout": 0.1}, steps=24, save_every=5, micro_batch_size=2, evaluate_every=8)
    run(load_recipe(str(path)), tmp_path / "complete")
    with start(path, tmp_path / "killed") as killed:
        wait_for(killed, f"step {kill_at} ")
        killed.send_signal(signal.SIGKILL)
    assert not runs.is_finished(tmp_path / "killed")
    run(load_recipe(str(path)), tmp_path / "killed", resume=True)
    assert weights(tmp_path / "killed") == weights(tmp_path / "complete"), f"killed at step {kill_at}"
    assert losses(tmp_path / "killed")[-1] == losses(tmp_path / "complete")[-1]
    steps = [entry["step"] for entry in runs.RunLog(tmp_path / "killed").entries() if "loss" in entry]
    assert steps == list(range(1, 25))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_saves(recipe_file, tmp_path, number):
    path = recipe_file(steps=400, save_every=400)
    with start(path, tmp_path / "run") as process:
        wait_for(process, "step 6 ")
        process.send_signal(number)
        output = process.stderr.read()
    assert process.returncode == 130
    last = output.splitlines()[-1]
    assert "of 400; continue with: tnn train" in last
    assert last.endswith(f"{path} --out {tmp_path / 'run'} --resume")
    step = int(last.split("after step ")[1].split()[0])
    assert runs.last_checkpoint(tmp_path / "run").name == f"checkpoint-{step}"


@pytest.mark.slow
def test_resuming_ignores_incomplete_checkpoints(recipe, tmp_path):
    out = tmp_path / "run"
    run(recipe(), out)
    expected = weights(out)
    (out / "config.json").unlink()  # as if it had been killed
    (out / "checkpoints" / "checkpoint-12" / "trainer_state.json").unlink()
    half = out / "checkpoints" / "checkpoint-15"
    half.mkdir()
    (half / "trainer_state.json").write_text('{"global_st')
    (half / "model.safetensors").write_bytes(b"half")
    assert runs.last_checkpoint(out).name == "checkpoint-10"
    run(recipe(), out, resume=True)
    assert not half.exists()
    assert weights(out) == expected


@pytest.mark.slow
def test_a_finished_run_stays(recipe, tmp_path):
    out, output = tmp_path / "run", []
    measured = run(recipe(), out)
    written = (out / "model.safetensors").stat().st_mtime_ns
    assert train(recipe(), out, resume=True, log=output.append) == measured
    assert output == [f"{out} is finished already"]
    assert (out / "model.safetensors").stat().st_mtime_ns == written


@pytest.mark.slow
def test_folders_that_cannot_be_used(recipe, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(FileNotFoundError, match="no run to resume in"):
        run(recipe(), out, resume=True)
    run(recipe(), out)
    with pytest.raises(FileExistsError, match="exists already: continue it with --resume, or give another --out"):
        run(recipe(), out)
    with pytest.raises(ValueError, match=r"has another recipe: training.learning_rate was 0.01, and is 0.02 now"):
        run(recipe(learning_rate=0.02), out, resume=True)
    (out / "recipe.yaml").write_text("half: [")
    with pytest.raises(ValueError, match=r"recipe.yaml is damaged"):
        run(recipe(), out, resume=True)


@pytest.mark.slow
def test_a_loss_that_is_nan_or_infinite_stops_the_run(recipe, tmp_path):
    tiny = recipe(learning_rate=1e30, warmup_steps=0, schedule="constant", clip=0, save_every=1, weight_decay=0)
    with pytest.raises(Diverged, match=r"(loss|gradient's norm) is (nan|inf) at step \d+; ") as error:
        run(tiny, tmp_path / "run")
    last = runs.last_checkpoint(tmp_path / "run")
    assert str(last or "no checkpoint") in str(error.value)
    assert not runs.is_finished(tmp_path / "run")


@pytest.mark.slow
def test_a_mistake_of_the_program_is_no_divergence(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(RecipeTrainer, "training_step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError, match=r"^division by zero$"):
        run(recipe(), tmp_path / "run")


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint(recipe, tmp_path, monkeypatch):
    original, calls = torch.save, []

    def save(value, path, *positional, **options):
        calls.append(path)
        if "checkpoint-10" in str(path):
            raise RuntimeError("[enforce fail] PytorchStreamWriter failed writing file: No space left on device")
        return original(value, path, *positional, **options)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(OSError, match=r"checkpoint of step 10 could not be written: .*No space left on device"):
        run(recipe(), tmp_path / "run")
    assert calls
    monkeypatch.undo()
    assert runs.last_checkpoint(tmp_path / "run").name == "checkpoint-5"


# --- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": {"vocab_size": 100}}, "tokenizer does not fit the model: its vocabulary is 100, .* 260 tokens"),
        (
            {"model": {"preset": "mini-blm"}},
            "model.preset must be a causal text model for causal-lm; got 'mini-blm'",
        ),
        ({"data": {"length": 50_000}}, "the training text must fill a block of 50000 tokens; got"),
        ({"data": {"corpus": "absent"}}, "no text at absent"),
        ({"data": {"tokenizer": "bpe:many"}}, "bpe:SIZE, such as bpe:8000; got 'bpe:many'"),
        ({"data": {"tokenizer": "absent"}}, "absent"),
        ({"report_to": ["nothing"]}, "training.report_to: nothing is not installed"),
    ],
)
def test_refusals(recipe, tmp_path, options, message):
    with pytest.raises((ValueError, OSError), match=message) as error:
        run(recipe(**options), tmp_path / "run")
    assert "\n" not in str(error.value)


# --- fine-tuning


@pytest.fixture
def glue(tmp_path):
    """Sentences whose first word tells their class."""
    for folder, header in (("CoLA", None), ("SST-2", "sentence\tlabel")):
        (tmp_path / "glue" / folder).mkdir(parents=True)
        for split, count in (("train", 64), ("dev", 32)):
            rows = [(("good" if i % 2 else "bad") + f" sentence number {i}", i % 2) for i in range(count)]
            lines = [f"x\t{label}\t\t{text}" if header is None else f"{text}\t{label}" for text, label in rows]
            (tmp_path / "glue" / folder / f"{split}.tsv").write_text(
                "\n".join([*([header] if header else []), *lines, ""])
            )
    return tmp_path / "glue"


@pytest.mark.slow
def test_pre_training_then_fine_tuning(recipe, values, tmp_path, glue):
    run(recipe("masked-lm"), tmp_path / "base")
    tuning = values(epochs=4, steps=None, learning_rate=0.01, evaluate_every=16, save_every=16, keep_best=True)
    tuning |= {"task": "glue", "model": {"start_from": str(tmp_path / "base")}, "learning_rates": [1e-5, 0.01]}
    tuning["data"] = {"glue": str(glue), "tasks": ["cola", "sst2"], "length": 40}
    with locked(tmp_path / "tuned" / "cola" / "lr-1e-05"), pytest.raises(BlockingIOError, match="lr-1e-05 is in use"):
        run(parse_recipe(tuning), tmp_path / "tuned")
    scores = run(parse_recipe(tuning), tmp_path / "tuned")
    assert scores == {"cola": 1.0, "sst2": 1.0}
    table = json.loads((tmp_path / "tuned" / "scores.json").read_text())
    assert table["sst2"]["majority_eval_accuracy"] == 0.5
    assert table["cola"]["learning_rate"] == 0.01
    best = tmp_path / "tuned" / "sst2" / "lr-0.01"
    assert AutoModelForSequenceClassification.from_pretrained(best).config.num_labels == 2
    assert run(parse_recipe(tuning), tmp_path / "tuned", resume=True) == scores
    before, dev = build(parse_recipe(tuning)).fingerprints(), glue / "CoLA" / "dev.tsv"
    dev.write_text(dev.read_text().replace("good", "fine", 1))
    after = build(parse_recipe(tuning)).fingerprints()
    assert (before["data"] != after["data"], before["tokenizer"] == after["tokenizer"]) == (True, True)
