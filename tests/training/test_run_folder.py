"""The folder of a run: who may write into it, what a failed run leaves, and files of the wrong shape."""

import errno
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from tnn.cli import app
from tnn.models.finite import find_non_finite
from tnn.training import checkpoints, evaluate, runs
from tnn.training.interruption import Interruption
from tnn.training.recipe import load_recipe, parse_recipe
from tnn.training.run_lock import locked
from tnn.training.run_recipe import Diverged, train
from tnn.training.tasks.registry import find_task
from tnn.training.trainer import Progress, RecipeTrainer


def run(recipe, folder, **options):
    output = []
    train(recipe, folder, log=output.append, **options)
    return output


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def undo_the_end(folder):
    """As if the run had been killed after the checkpoint of step 10."""
    for name in ("config.json", "model.safetensors", "measured.json"):
        (folder / name).unlink()
    for path in checkpoints.list_checkpoints(folder)[:1]:
        (folder / "checkpoints" / ".unfinished").mkdir()
        path.rename(folder / "checkpoints" / ".unfinished" / path.name)


# --- locks


def test_a_folder_is_used_by_one_process(recipe, tmp_path):
    out = tmp_path / "run"
    with locked(out):
        for resume in (False, True):
            runs.begin(out, recipe(), {})
            with pytest.raises(BlockingIOError, match=rf"run is in use by process {os.getpid()}: wait for it, or"):
                run(recipe(), out, resume=resume)


def test_a_folder_in_use_is_no_folder_that_exists_already(recipe, tmp_path):
    out = tmp_path / "run"
    with locked(out):
        runs.begin(out, recipe(), {})
        checkpoints.checkpoint_path(out, 5).mkdir(parents=True)
        (checkpoints.checkpoint_path(out, 5) / "manifest.json").touch()
        with pytest.raises(BlockingIOError, match=f"run is in use by process {os.getpid()}: wait for it"):
            run(recipe(), out)
    with pytest.raises(FileExistsError, match="run exists already"):
        run(recipe(), out)


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = "import sys, time; from pathlib import Path; from tnn.training.run_lock import locked\n"
    code += "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError, match=f"process {process.pid}:"), locked(tmp_path):
            pass
        process.kill()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_a_lock_leaves_nothing(tmp_path):
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


# --- runs that failed


@pytest.mark.slow
def test_the_corrected_command_works(recipe, tmp_path):
    out = tmp_path / "run"
    bad = recipe(learning_rate=1e30, warmup_steps=0, schedule="constant", clip=0, weight_decay=0)
    with pytest.raises(Diverged, match="there is no checkpoint before it"):
        run(bad, out)
    assert (out / "recipe.yaml").is_file()
    run(recipe(steps=2), out)
    assert runs.is_finished(out)
    assert [entry["step"] for entry in runs.RunLog(out).entries() if "loss" in entry] == [1, 2]


@pytest.mark.parametrize(
    ("files", "blocks"),
    [
        (["recipe.yaml", "fingerprints.json", "log.jsonl", ".lock", "checkpoints/runs/events"], False),
        (["recipe.yaml", "fingerprints.json", "checkpoints/.unfinished/checkpoint-5/model.safetensors"], False),
        (["recipe.yaml", "fingerprints.json", "cola/lr-0.1/recipe.yaml", "cola/lr-0.1/log.jsonl"], False),
        ([".lock", ".fingerprints.json-ab12/fingerprints.json"], False),
        (["recipe.yaml"], True),  # the user's own
        (["recipe.yaml", "fingerprints.json", "notes.txt"], True),
        (["recipe.yaml", "fingerprints.json", "checkpoints/checkpoint-5/manifest.json"], True),
        (["recipe.yaml", "fingerprints.json", "cola/lr-0.1/checkpoints/checkpoint-5/manifest.json"], True),
        (["recipe.yaml", "fingerprints.json", "config.json"], True),
    ],
)
def test_what_blocks_a_folder(tmp_path, files, blocks):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert runs.holds_something(tmp_path) == blocks


# --- resuming with other data


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["data", "tokenizer"])
def test_changed_data_are_refused(recipe, tmp_path, corpus, changed):
    out, tiny = tmp_path / "run", recipe(data={"tokenizer": "bpe:300"})
    run(tiny, out)
    undo_the_end(out)
    for split in ("train", "valid"):  # the same text, written again
        (corpus / f"{split}.txt").write_text((corpus / f"{split}.txt").read_text())
    runs.check_fingerprints(out, _fingerprints(tiny))
    split = "train" if changed == "tokenizer" else "valid"  # the tokenizer is trained on the first
    (corpus / f"{split}.txt").write_text((corpus / f"{split}.txt").read_text().replace("few", "many"))
    with pytest.raises(ValueError, match=rf"^the {changed} changed after the run in .*run began; --allow-changed-data"):
        run(tiny, out, resume=True)
    assert not runs.is_finished(out)
    assert "continuing at step 11" in run(tiny, out, resume=True, allow_changed_data=True)


@pytest.mark.slow
def test_a_text_that_was_moved(recipe, tmp_path, corpus):
    out, tiny = tmp_path / "run", recipe()
    run(tiny, out)
    expected = weights(out)
    undo_the_end(out)
    moved = recipe(data={"corpus": str(corpus.rename(tmp_path / "elsewhere"))})
    with pytest.raises(FileNotFoundError, match="no text at"):
        run(tiny, out, resume=True)
    assert "continuing at step 11" in run(moved, out, resume=True)
    assert weights(out) == expected
    assert runs.load_run_recipe(out).data.corpus == moved.data.corpus


@pytest.mark.slow
def test_another_text_at_another_place(recipe, tmp_path, corpus):
    out = tmp_path / "run"
    run(recipe(), out)
    undo_the_end(out)
    shutil.copytree(corpus, tmp_path / "other")
    (tmp_path / "other" / "train.txt").write_text((corpus / "train.txt").read_text().replace("few", "many"))
    other = recipe(data={"corpus": str(tmp_path / "other")})
    with pytest.raises(ValueError, match=r"^the data changed after the run in .*run began; --allow-changed-data"):
        run(other, out, resume=True)
    assert runs.load_run_recipe(out).data.corpus == str(corpus)
    assert "continuing at step 11" in run(other, out, resume=True, allow_changed_data=True)


def _fingerprints(recipe):
    return find_task(recipe.task).build(recipe).fingerprints()


def test_changed_data_are_for_resuming(recipe, tmp_path):
    with pytest.raises(ValueError, match="give --resume too"):
        run(recipe(), tmp_path / "run", allow_changed_data=True)


# --- checkpoints that are gone


@pytest.mark.slow
def test_checkpoints_that_are_gone_are_no_beginning(recipe, tmp_path):
    out, tiny = tmp_path / "run", recipe()
    run(tiny, out)
    expected = weights(out)
    for path in out.iterdir():
        if path.name not in (*runs.WRITTEN, "checkpoints"):
            path.unlink()
    shutil.rmtree(out / "checkpoints")
    log = (out / "log.jsonl").read_bytes()
    message = r"^the checkpoints in .*run/checkpoints are gone, the last of step 12: put them back, or start anew with"
    with pytest.raises(FileNotFoundError, match=message):
        run(tiny, out, resume=True)
    assert (out / "log.jsonl").read_bytes() == log
    run(tiny, out)
    assert weights(out) == expected


def test_the_log_of_checkpoints(tmp_path):
    log = runs.RunLog(tmp_path)
    assert log.last_saved() is None
    log.add(4, {"loss": 1.0})
    assert log.last_saved() is None
    log.add_checkpoint(5)
    log.add_checkpoint(10)
    assert log.last_saved() == 10
    log.cut(5)
    assert log.last_saved() == 5


# --- results that are not finite


class Spoiled(RecipeTrainer):
    """After the update of step 7, a weight is NaN."""

    def _maybe_log_save_evaluate(self, *inputs, **options):
        if self.state.global_step == 7:
            with torch.no_grad():
                next(self.model.parameters())[0, 0] = float("nan")
            self.control.should_training_stop = self.control.should_save = True
        super()._maybe_log_save_evaluate(*inputs, **options)


@pytest.mark.slow
def test_weights_that_are_not_finite_are_never_saved(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("tnn.training.run_recipe.RecipeTrainer", Spoiled)
    message = r"a weight is NaN or infinite after step 7 in \S+; .*checkpoint-5 is the last checkpoint"
    with pytest.raises(Diverged, match=message):
        run(recipe(keep_checkpoints=1), tmp_path / "run")
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path / "run")] == ["checkpoint-5"]
    assert find_non_finite(AutoModelForCausalLM.from_pretrained(runs.last_checkpoint(tmp_path / "run"))) is None
    assert not runs.is_finished(tmp_path / "run")


@pytest.mark.slow
def test_the_advice_after_a_divergence_works(recipe, tmp_path):
    """A checkpoint has a tokenizer too."""
    tiny = recipe(steps=1, data={"tokenizer": "bpe:300"})
    run(tiny, tmp_path / "run")
    start = {"model": {"start_from": str(runs.last_checkpoint(tmp_path / "run"))}}
    run(parse_recipe(tiny.model_dump(exclude_none=True) | start), tmp_path / "again")


@pytest.mark.slow
def test_a_final_loss_that_is_not_finite_is_an_error(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(RecipeTrainer, "evaluate", lambda *_, **__: {"eval_loss": float("nan")})
    with pytest.raises(Diverged, match=r"the eval loss of the final weights is nan; .*checkpoint-12 is the last"):
        run(recipe(), tmp_path / "run")
    assert not runs.is_finished(tmp_path / "run")
    assert not (tmp_path / "run/measured.json").exists()


@pytest.mark.slow
def test_without_a_finite_evaluation_no_weights_are_the_best(recipe, tmp_path, monkeypatch):
    original = RecipeTrainer.evaluate

    def evaluate_badly(trainer, *positional, **options):
        return original(trainer, *positional, **options) | {"eval_loss": float("nan")}

    monkeypatch.setattr(RecipeTrainer, "evaluate", evaluate_badly)
    with pytest.raises(Diverged, match="no evaluation had a finite result"):
        run(recipe(steps=2, evaluate_every=1, save_every=1, keep_best=True), tmp_path / "run")
    monkeypatch.undo()
    run(recipe(steps=2, evaluate_every=5, save_every=5, keep_best=True), tmp_path / "short")  # the only weights


@pytest.mark.slow
def test_the_best_weights_are_loaded_or_nothing(recipe, tmp_path, monkeypatch):
    original = RecipeTrainer._load_best_model

    def damaged(trainer):
        (checkpoints.checkpoint_path(tmp_path / "run", trainer.state.best_global_step) / "model.safetensors").unlink()
        original(trainer)

    monkeypatch.setattr(RecipeTrainer, "_load_best_model", damaged)
    tiny = recipe(steps=4, evaluate_every=2, save_every=2, keep_best=True)
    with pytest.raises(ValueError, match=r"which has the best weights, is damaged: model.safetensors is missing$"):
        run(tiny, tmp_path / "run")
    assert not runs.is_finished(tmp_path / "run")


@pytest.mark.slow
def test_a_run_that_was_moved_finds_its_best_weights(recipe, tmp_path):
    """A rate that is far too high after the first evaluation ruins the rest."""
    tiny = recipe(evaluate_every=2, save_every=2, keep_best=True, learning_rate=3.0, warmup_steps=12, clip=0)
    run(tiny, tmp_path / "run")
    expected = weights(tmp_path / "run")
    undo_the_end(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    run(tiny, tmp_path / "moved", resume=True)
    assert weights(tmp_path / "moved") == expected


# --- files of the wrong shape


@pytest.mark.parametrize(
    "line", ["[1]", "3", '{"loss": 1.0}', '{"step": "x"}', '{"step": 1, "loss": "x"}', "{", "[" * 9_999]
)
def test_log_lines_of_the_wrong_shape(tmp_path, line):
    (tmp_path / "log.jsonl").write_text(f'{{"step": 1, "loss": 2.0}}\n{line}\n{{"step": 3, "loss": 2.0}}\n')
    with pytest.raises(ValueError, match=r"log.jsonl, line 2 is damaged: "):
        list(runs.RunLog(tmp_path).entries())


def test_the_last_line_of_a_killed_run(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert [entry["step"] for entry in runs.RunLog(tmp_path).entries()] == [1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"eval_loss": "x"}', '{"eval_loss": null}'])
def test_measured_of_the_wrong_shape(tmp_path, text):
    (tmp_path / "measured.json").write_text(text)
    with pytest.raises(ValueError, match=r"measured.json is damaged: it "):
        runs.load_measured(tmp_path)


# --- places


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/x", "a\\b", "a\nb", "a\0", "x" * 300])
def test_a_name_stays_in_its_folder(values, name):
    with pytest.raises(ValueError, match=r"name: must be the name of a folder, without / and \\; got"):
        parse_recipe({**values(), "name": name})


@pytest.mark.slow
def test_a_saved_recipe_does_not_say_where_files_go(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("TNN_CACHE", str(tmp_path / "own"))
    run(recipe(steps=1), tmp_path / "run")
    values = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    values["data"]["cache"] = str(tmp_path / "elsewhere")
    (tmp_path / "run" / "recipe.yaml").write_text(yaml.safe_dump(values))
    evaluate(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()
    assert any((tmp_path / "own").iterdir())


# --- values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.dtype=x", "model: the values do not fit preset mini-alm: "),
        ("model.mixer=os:path", "model.mixer: mixer 'os:path' must be a subclass of"),
        ("model.id2label=x", "model: the values do not fit preset mini-alm: "),
        (f"model.num_hidden_layers={2**70}", "model: num_hidden_layers must be at most 1,000; got "),
        ("training.arguments.dataloader_num_workers=many", "arguments: dataloader_num_workers: .* got 'many'"),
        ("training.arguments.ddp_timeout=[1]", r"arguments: ddp_timeout: .* got \[1\]"),
    ],
)
def test_values_of_the_wrong_type(change, message):
    with pytest.raises(ValueError, match=message) as error:
        load_recipe("mini-alm", [change])
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"hidden_size": "wide"}, {"mixer": 3}, {"hidden_size": 24}, {"dtype": "x"}])
def test_changes_of_a_model_to_start_from_that_do_not_fit(recipe, tmp_path, change):
    run(recipe(steps=1), tmp_path / "first")
    made = recipe(steps=1).model_dump(exclude_none=True)
    with pytest.raises(ValueError, match=r"model|mixer|hidden_size|dtype") as error:
        run(parse_recipe(made | {"model": {"start_from": str(tmp_path / "first"), **change}}), tmp_path / "second")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "second").exists()


# --- a closed terminal


@pytest.mark.slow
def test_a_closed_terminal_saves(recipe_file, tmp_path):
    """Closing the terminal sends SIGHUP, and nothing can be written to it any more."""
    path, out = recipe_file(steps=4000, save_every=4000), tmp_path / "run"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, here too
        os.environ["OMP_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "tnn", "train", str(path), "--out", str(out)])
    until = time.monotonic() + 100
    while not list(runs.RunLog(out).entries()):
        assert time.monotonic() < until
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 10_000)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert runs.step_of(runs.last_checkpoint(out)) > 0


@pytest.mark.parametrize(("code", "is_an_error"), [(errno.EIO, False), (errno.EPIPE, True)])
@pytest.mark.parametrize("event", ["on_step_end", "on_log", "on_train_end"])
def test_a_terminal_that_is_closed_before_its_signal(event, code, is_an_error):
    """Writing to it fails; if nobody reads a pipe, that is an error as in any command."""

    def write(*_):
        raise OSError(code, os.strerror(code))

    progress = Progress(1, "tokens")
    progress.bar = SimpleNamespace(disable=False, update=write, set_postfix_str=write, close=write)
    progress.on_step_begin(None, None, None)
    state = SimpleNamespace(is_world_process_zero=True, global_step=1, max_steps=2)
    logs = {"loss": 1.0, "learning_rate": 1.0}
    with pytest.raises(BrokenPipeError) if is_an_error else nullcontext():
        getattr(progress, event)(None, state, None, logs=logs)


def test_a_signal_while_something_is_printed(capfd, monkeypatch):
    """Python's files cannot be entered twice: a handler that printed would raise an error in the middle of a line."""

    def write(text):
        raise RuntimeError("reentrant call")

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=write, flush=lambda: None))
    interruption = Interruption()
    with interruption.listening():
        os.kill(os.getpid(), signal.SIGTERM)
    assert interruption.asked
    assert capfd.readouterr().err == "\nfinishing the step and saving; press again to stop at once\n"


def test_nohup_stays():
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption().listening():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)


def test_the_option_of_the_command():
    result = CliRunner().invoke(app, ["train", "mini-alm", "--allow-changed-data"])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "give --resume too" in result.output
