"""The folder of a run: its recipe, its log, its checkpoints, and at the end the model."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tnn.experiments.recipe import Recipe, dump_recipe, parse_recipe

RECIPE, LOG, CHECKPOINTS = "recipe.yaml", "log.jsonl", "checkpoints"
MODEL, MEASURED, SCRATCH = "config.json", "measured.json", ".model"


def begin(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Make the folder, or find that it can be gone on with."""
    if not resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} exists already: go on with it by --resume, or give another --out")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / RECIPE, dump_recipe(recipe))
    elif not (folder / RECIPE).is_file():
        raise FileNotFoundError(f"there is no run to go on with in {folder}: it has no {RECIPE}")
    elif difference := _first_difference(_read_yaml(folder / RECIPE), yaml.safe_load(dump_recipe(recipe))):
        raise ValueError(f"{folder} is of another recipe: {difference}")


def _first_difference(old: dict[str, Any], new: dict[str, Any], path: str = "") -> str | None:
    for key in [*old, *(key for key in new if key not in old)]:
        a, b = old.get(key), new.get(key)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            return _first_difference(a, b, f"{path}{key}.")
        return f"{path}{key} was {a}, and is {b} now"
    return None


def is_finished(folder: Path) -> bool:
    """Whether the model has been saved: its configuration is written last."""
    return (folder / MODEL).is_file()


def load_run_recipe(folder: Path) -> Recipe | None:
    """The recipe that made a model, if it is known.

    >>> from pathlib import Path
    >>> from tnn.experiments.runs import load_run_recipe
    >>> load_run_recipe(Path("no-such-folder")) is None
    True
    """
    path = folder / RECIPE
    return parse_recipe(_read_yaml(path), str(path)) if path.is_file() else None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged: it is no recipe")
    return values


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole one."""
    return next((path for path in _checkpoints(folder) if _is_whole(path)), None)


def remove_unfinished(folder: Path) -> None:
    """Checkpoints that were not written to their end."""
    for path in _checkpoints(folder):
        if not _is_whole(path):
            shutil.rmtree(path)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / CHECKPOINTS).glob("checkpoint-*"), key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _is_whole(checkpoint: Path) -> bool:
    """The trainer writes its state last."""
    try:
        return json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == _step(checkpoint)
    except (OSError, ValueError, KeyError):
        return False


def finish(folder: Path, tokenizer: Any, measured: dict[str, float]) -> None:
    """Move the model from its scratch folder beside the recipe; the configuration last: it is there when all is."""
    tokenizer.save_pretrained(folder / SCRATCH)
    (folder / SCRATCH / "training_args.bin").unlink(missing_ok=True)  # a pickle; the recipe says the same
    write_text(folder / MEASURED, json.dumps(measured, indent=2))
    for path in sorted((folder / SCRATCH).iterdir(), key=lambda path: path.name == MODEL):
        path.replace(folder / path.name)
    (folder / SCRATCH).rmdir()


def load_measured(folder: Path) -> dict[str, float]:
    """What was measured of the final weights."""
    return json.loads((folder / MEASURED).read_text())


class Log:
    """One JSON object a line: `step`, and what was measured there."""

    def __init__(self, folder: Path):
        self.path = folder / LOG

    def cut(self, step: int) -> None:
        """Forget what came after a step that is gone back to."""
        kept = [entry for entry in self.entries() if entry["step"] <= step]
        write_text(self.path, "".join(json.dumps(entry) + "\n" for entry in kept))

    def add(self, step: int, values: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def entries(self) -> Iterator[dict[str, float]]:
        if self.path.is_file():
            for line in self.path.read_text().splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    return  # the last line of a run that was killed


def write_text(path: Path, text: str) -> None:
    """Whole or not at all."""
    scratch = path.with_name(f".{path.name}-{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
