"""A small training that is killed, damaged, or starved of disk, and then continued: is the result the same?

Each fault gives one of three outcomes: EQUAL, the weights are bit-equal to those of a run without faults; REFUSED, one
line that says why; or anything else, which is a defect.
"""

import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tnn.training import checkpoints, runs
from tnn.training.recipe import parse_recipe
from tnn.training.run_recipe import train

EQUAL, REFUSED = "equal", "refused"
STEPS, SAVE_EVERY, KEEP = 12, 2, 3
WORDS = ("a", "toeplitz", "matrix", "has", "one", "entry", "along", "each", "diagonal")
PROCESSES = get_context("forkserver")  # imports torch once, for all processes that are killed
PROCESSES.set_forkserver_preload(["tests.faults.lab"])


class Lab:
    """A folder with a text, a finished run, and a copy of it as it was after step 10. Keywords go to its training."""

    def __init__(self, folder: Path, seed: int = 0, **training: Any):
        self.folder, self.random = folder, random.Random(seed)
        corpus = folder / "corpus"
        corpus.mkdir(parents=True)
        words = random.Random(0)
        for split, lines in (("train", 90), ("valid", 10), ("test", 10)):
            text = [" ".join(words.choices(WORDS, k=8)) + "\n" for _ in range(lines)]
            (corpus / f"{split}.txt").write_text("".join(text))
        self.values: dict[str, Any] = {
            "name": "tiny",
            "task": "causal-lm",
            "model": {"preset": "mini-alm", "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "dropout": 0.1},
            "data": {"corpus": str(corpus), "length": 32, "cache": str(folder / "cache")},
            "training": {
                "steps": STEPS,
                "batch_size": 4,
                "learning_rate": 0.01,
                "schedule": "cosine",
                "log_every": 1,
                "save_every": SAVE_EVERY,
                "keep_checkpoints": KEEP,
                **training,
            },
        }
        self.train(folder / "finished")
        self.values["training"]["keep_checkpoints"] = KEEP - 1  # a run that is continued has one to remove
        self.expected = weights(folder / "finished")
        shutil.copytree(folder / "finished", folder / "stopped")
        for name in ("config.json", "model.safetensors", "measured.json"):
            (folder / "stopped" / name).unlink()
        shutil.rmtree(checkpoints.checkpoint_path(folder / "stopped", STEPS))

    def train(self, out: Path, resume: bool = False) -> list[str]:
        """In this process. Returns what was logged."""
        output: list[str] = []
        with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
            train(parse_recipe(self.values), out, resume=resume, log=output.append)
        return output

    def start(self, out: Path, **options: Any) -> BaseProcess:
        """In a process of its own, which can be killed."""
        process = PROCESSES.Process(target=_train, args=(self.values, out), kwargs=options)
        process.start()
        return process

    def stopped_run(self) -> Path:
        """A new copy of the run that was stopped after step 10."""
        out = self.folder / f"run-{self.random.getrandbits(48):x}"
        shutil.copytree(self.folder / "stopped", out)
        return out

    def resume(self, out: Path) -> tuple[str, str]:
        """The outcome, and what was said."""
        try:
            output = self.train(out, resume=(out / runs.RECIPE).is_file())
            outcome = EQUAL if weights(out) == self.expected else "other weights"
        except (OSError, ValueError) as error:
            output, outcome = [str(error)], REFUSED if "\n" not in str(error) else "an error of several lines"
        except Exception as error:
            output, outcome = [str(error)], f"traceback: {type(error).__name__}"
        return outcome, "\n".join(output)


def _train(values: Any, out: Path, resume: bool = False, largest_file: int | None = None) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nowhere, output)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    train(parse_recipe(values), out, resume=resume)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


# --- kill -9


def kill_at_any_time(lab: Lab, times: int = 1, longest: float = 0.4) -> tuple[str, bool]:
    """Killed at random moments after the first step, and continued; also whether it was never too late for that."""
    out, running = lab.folder / f"killed-{lab.random.getrandbits(48):x}", True
    for resume in [False, True, True][:times]:
        process = lab.start(out, resume=resume)
        wait_for(lambda: log_size(out) > 0, process)
        time.sleep(lab.random.uniform(0, longest))
        running = running and process.is_alive()
        kill(process)
    return lab.resume(out)[0], running


def kill_while_saving(lab: Lab) -> tuple[str, bool]:
    """Killed as soon as a checkpoint is being written, or a little later; also whether it was left unfinished."""
    out = lab.folder / f"killed-{lab.random.getrandbits(48):x}"
    unfinished = out / checkpoints.CHECKPOINTS / checkpoints.UNFINISHED
    process, step = lab.start(out), lab.random.randrange(1, STEPS // SAVE_EVERY + 1) * SAVE_EVERY
    wait_for((unfinished / f"checkpoint-{step}").exists, process, pause=0)
    time.sleep(lab.random.uniform(0, 0.02))
    kill(process)
    was_unfinished = unfinished.exists()
    return lab.resume(out)[0], was_unfinished


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def wait_for(condition: Callable[[], bool], process: BaseProcess, pause: float = 0.005) -> None:
    """Until it is true, or the process has ended."""
    until = time.monotonic() + 120
    while process.is_alive() and not condition():
        assert time.monotonic() < until
        time.sleep(pause)


def log_size(out: Path) -> int:
    path = out / runs.LOG
    return path.stat().st_size if path.exists() else 0


# --- damaged files


def delete(path: Path, chance: random.Random) -> None:
    path.unlink()


def empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def flip_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


DAMAGES = {"deleted": delete, "emptied": empty, "truncated": truncate, "bit-flipped": flip_bit}


def checkpoint_files(lab: Lab) -> list[str]:
    return sorted(path.name for path in checkpoints.list_checkpoints(lab.folder / "stopped")[0].iterdir())


def newest_steps(lab: Lab) -> list[int]:
    return [checkpoints.step_of(path) for path in checkpoints.list_checkpoints(lab.folder / "stopped")]


def best_step(lab: Lab) -> int:
    newest = checkpoints.list_checkpoints(lab.folder / "stopped")[0]
    return int(json.loads((newest / checkpoints.MANIFEST).read_text())["content"]["best"])


def damage(lab: Lab, name: str, kind: str, *steps: int) -> tuple[str, bool]:
    """One file of the checkpoints of some steps is damaged. Returns the outcome, and whether the file was named."""
    out = lab.stopped_run()
    for step in steps:
        DAMAGES[kind](checkpoints.checkpoint_path(out, step) / name, lab.random)
    outcome, text = lab.resume(out)
    return outcome, name in text


# --- a full disk, two processes, the clock


def full_disk(lab: Lab) -> tuple[str, bool]:
    """No file can grow beyond some size. Returns the outcome after that, and whether no checkpoint was lost."""
    out = lab.stopped_run()
    newest = checkpoints.list_checkpoints(out)[0]
    largest = max(path.stat().st_size for path in newest.iterdir())
    process = lab.start(out, resume=True, largest_file=lab.random.randrange(1, largest))
    process.join()
    kept = process.exitcode not in (0, None) and checkpoints.last_checkpoint(out) == newest
    return lab.resume(out)[0], kept


def two_processes(lab: Lab) -> tuple[str, bool]:
    """One trains, and another is started there. Returns the outcome of the first, and whether the other was refused."""
    out = lab.folder / f"shared-{lab.random.getrandbits(48):x}"
    process = lab.start(out)
    wait_for(lambda: log_size(out) > 0, process)
    refused = True
    for resume in (False, True):
        try:
            lab.train(out, resume)
            refused = False
        except BlockingIOError as error:
            refused = refused and f"in use by process {process.pid}:" in str(error)
    process.join()
    return EQUAL if weights(out) == lab.expected else "other weights", refused


def clock_back(lab: Lab) -> tuple[str, bool]:
    """The checkpoints so far are from the future. Returns the outcome, and whether those of the last steps were used
    and kept."""
    out = lab.stopped_run()
    for path in checkpoints.list_checkpoints(out):
        later = time.time() + lab.random.uniform(1, 10**6) / checkpoints.step_of(path)
        for file in (*path.iterdir(), path):
            os.utime(file, (later, later))
    outcome, text = lab.resume(out)
    kept = [checkpoints.step_of(path) for path in checkpoints.list_checkpoints(out)]
    return outcome, "continuing at step 11" in text and kept == [12, 10]
