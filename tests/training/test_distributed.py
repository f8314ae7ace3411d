"""Two processes on the CPU against one: the same losses, the same weights, the same ends."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tnn.training import runs
from tnn.training.processes import on_cpu
from tnn.training.recipe import load_recipe
from tnn.training.run_recipe import train
from tnn.training.trainer import RecipeTrainer, training_arguments

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tnn", "train"]
ACCELERATE = {
    "ddp": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--module", "tnn", "train"],
    "fsdp": shlex.split("accelerate.commands.launch --use_fsdp --fsdp_version 2 --num_processes 2 --module tnn train"),
}
FREE_PORT = ["--main_process_port", "0"]  # torchrun --standalone finds one by itself
MODES = {"ddp": (), "fsdp": ("training.arguments.fsdp=true",)}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def launch(launcher, *arguments):
    command = [sys.executable, "-m", *launcher, *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def ranks(*arguments):
    """The two processes as a launcher starts them, each in reach."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    size = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    command = [sys.executable, "-m", "tnn", "train", *map(str, arguments)]
    processes = [
        subprocess.Popen(
            command, env={**ENVIRONMENT, **size, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def ends(processes):
    """Exit codes and the outputs on stderr."""
    output = [process.communicate(timeout=100)[1] for process in processes]
    return [process.returncode for process in processes], output


def losses(folder):
    return [entry["loss"] for entry in runs.RunLog(folder).entries() if "loss" in entry]


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def undo_the_end(folder: Path):
    """As if the run had been killed, and the random numbers of the second process had been damaged."""
    os.truncate(folder / "checkpoints" / "checkpoint-6" / "rng_state_1.pth", 100)
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_two_processes_learn_what_one_does(recipe_file, tmp_path, mode):
    file = recipe_file(steps=6, save_every=3, batch_size=8, micro_batch_size=2)
    train(load_recipe(str(file)), tmp_path / "one", log=lambda text: None)
    two = tmp_path / "two"
    output = launch(TORCHRUN, file, *MODES[mode], "--out", two).stdout
    assert output.count("sequence length") == 1  # only the main process prints
    checkpoint = {path.name for path in (two / "checkpoints" / "checkpoint-3").iterdir()}
    assert {"rng_state_0.pth", "rng_state_1.pth"} < checkpoint
    assert ("pytorch_model_fsdp.bin" in checkpoint) == (mode == "fsdp")

    assert losses(two) == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    expected, actual, logged = weights(tmp_path / "one"), weights(two), losses(two)
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=0)
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert {path.name for path in two.iterdir()} == names
    assert (two / "model.safetensors").stat().st_size == (tmp_path / "one" / "model.safetensors").stat().st_size

    undo_the_end(two)
    launcher = [ACCELERATE[mode][0], *FREE_PORT, *ACCELERATE[mode][1:]]
    output = launch(launcher, file, *MODES[mode], "--out", two, "--resume").stdout
    assert output.count("checkpoint-6 is damaged and is removed: rng_state_1.pth has 100 bytes, not ") == 1
    assert "continuing at step 4\n" in output
    assert losses(two) == logged
    torch.testing.assert_close(weights(two), actual, atol=0, rtol=0)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_at_the_same_step(recipe_file, tmp_path):
    out, file = tmp_path / "run", recipe_file(steps=400, save_every=400)
    with ranks(file, "--out", out) as processes:
        until = time.monotonic() + 100
        while not losses(out):
            assert time.monotonic() < until
            assert all(process.poll() is None for process in processes)
            time.sleep(0.02)
        with pytest.raises(BlockingIOError, match=rf"is in use by process {processes[0].pid}:"):
            train(load_recipe(str(file)), out, resume=True, log=lambda text: None)
        processes[1].send_signal(signal.SIGINT)
        codes, output = ends(processes)
    assert codes == [130, 130]
    (checkpoint,) = (out / "checkpoints").iterdir()
    step = int(checkpoint.name.removeprefix("checkpoint-"))
    assert f"stopped after step {step} of 400; continue with: the same command and --resume" in output[0]
    assert "stopped" not in output[1]
    assert runs.last_checkpoint(out) == checkpoint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.learning_rate=1e30", "at step 2; there is no checkpoint before it"),
        ("data.corpus=nowhere", "nowhere"),
    ],
)
def test_what_fails_ends_all_processes_with_one_line_each(recipe_file, tmp_path, change, message):
    file = recipe_file(schedule="constant", warmup_steps=0, clip=0.0)
    with ranks(file, change, "--out", tmp_path / "run") as processes:
        codes, output = ends(processes)
    assert codes == [1, 1]
    for text in output:
        assert message in text
        assert "Traceback" not in text


def test_fsdp_has_the_precision_of_the_recipe(recipe, tmp_path):
    training = recipe(precision="bf16").training
    arguments = training_arguments(training, 1, str(tmp_path), "loss")
    trainer = RecipeTrainer(training, tmp_path, model=torch.nn.Linear(1, 1), args=arguments)
    for sharded in (False, True):  # without FSDP, accelerate sees to it
        trainer.is_fsdp_enabled = sharded
        with trainer.compute_loss_context_manager():
            assert torch.is_autocast_enabled("cpu") == sharded


def test_the_document_has_these_commands():
    document = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text()
    assert f"\ntorchrun {shlex.join(TORCHRUN[1:])} mini-alm\n" in document
    for launcher in ACCELERATE.values():
        assert f"\naccelerate launch {shlex.join(launcher[1:])} mini-alm\n" in document
    assert f"{shlex.join(TORCHRUN[1:])} mini-alm {shlex.join(MODES['fsdp'])}\n" in document


@pytest.mark.parametrize(
    ("device", "several", "asked", "expected"),
    [
        ("cuda", True, False, False),
        ("cuda", True, True, True),
        ("mps", False, False, False),
        ("mps", True, False, True),  # each process would train alone
        (None, False, False, True),
    ],
)
def test_where_the_work_is_done(recipe, monkeypatch, device, several, asked, expected):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: device is not None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: device == "mps")
    monkeypatch.setenv("WORLD_SIZE", "2" if several else "1")
    tiny = recipe(arguments={"use_cpu": True} if asked else {})
    assert on_cpu(tiny.training) is expected
