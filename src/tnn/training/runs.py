"""The folder of a run: its recipe, its log, its checkpoints, and at the end the model."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from transformers import AutoConfig

from tnn._files import write_text
from tnn.models import load_preset
from tnn.training.recipe import dump_recipe, parse_recipe, read_yaml
from tnn.training.schema import Recipe
from tnn.training.tasks.registry import find_task
from tnn.training.tasks.setup import checked_model_folder

RECIPE, LOG, CHECKPOINTS = "recipe.yaml", "log.jsonl", "checkpoints"
MODEL, MEASURED, SCRATCH = "config.json", "measured.json", ".model"
RESUMABLE_KEYS = {  # keys with no effect on the weights: they may change when a run is resumed. A task may have more
    *("about", "training.log_every"),
    *("training.keep_checkpoints", "training.report_to", "training.save_every"),
}
MICRO_BATCH = "training.micro_batch_size"  # may change too, unless examples of a batch have an effect on each other


def check(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Raises an error if a run cannot start in this folder, or cannot be resumed there."""
    if not resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} exists already: continue it with --resume, or give another --out")
    elif not (folder / RECIPE).is_file():
        raise FileNotFoundError(f"there is no run to resume in {folder}: it has no {RECIPE}")
    else:
        resumable = RESUMABLE_KEYS | find_task(recipe.task).resumable_keys
        for key, old, new in _differences(_read_yaml(folder / RECIPE), read_yaml(dump_recipe(recipe))):
            if key not in resumable and (key != MICRO_BATCH or _mixes_examples(recipe)):
                raise ValueError(f"{folder} has another recipe: {key} was {old}, and is {new} now")


def _mixes_examples(recipe: Recipe) -> bool:
    """Whether an update depends on which examples are in one micro-batch: by batch norm, or by the task."""
    if find_task(recipe.task).mixes_examples(recipe):
        return True
    section = recipe.model
    if section.start_from is not None:
        config = AutoConfig.from_pretrained(checked_model_folder(section.start_from), **section.changes)
    else:
        assert section.preset is not None
        config = load_preset(section.preset, **section.changes)
    return any(value == "batch" for key, value in vars(config).items() if key.endswith("norm"))


def begin(folder: Path, recipe: Recipe) -> None:
    """Make the folder and write the recipe. Call it when everything else has been checked."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RECIPE, dump_recipe(recipe))


def _differences(old: dict[str, Any], new: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each key whose value has changed, with the old and the new value."""
    for key in [*old, *(key for key in new if key not in old)]:
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{path}{key}.")
        elif a != b:
            yield path + key, a, b


def is_finished(folder: Path) -> bool:
    """Whether the model has been saved: its configuration is written last."""
    return (folder / MODEL).is_file()


def load_run_recipe(folder: Path) -> Recipe | None:
    """The recipe that trained a model, or None if there is none in its folder.

    >>> from pathlib import Path
    >>> from tnn.training.runs import load_run_recipe
    >>> load_run_recipe(Path("no-such-folder")) is None
    True
    """
    path = folder / RECIPE
    return parse_recipe(_read_yaml(path), str(path)) if path.is_file() else None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged: it is not a recipe")
    return values


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint."""
    return next((path for path in _checkpoints(folder) if _is_complete(path)), None)


def remove_unfinished(folder: Path) -> None:
    """Remove checkpoints that are not complete."""
    for path in _checkpoints(folder):
        if not _is_complete(path):
            shutil.rmtree(path)


def _checkpoints(folder: Path) -> list[Path]:
    paths = (folder / CHECKPOINTS).glob("checkpoint-*")
    return sorted((path for path in paths if path.name[11:].isdecimal()), key=step_of, reverse=True)


def step_of(checkpoint: Path | None) -> int:
    """The step after which a checkpoint was written; 0 without one.

    >>> from pathlib import Path
    >>> from tnn.training.runs import step_of
    >>> step_of(Path("checkpoints/checkpoint-200")), step_of(None)
    (200, 0)
    """
    return int(checkpoint.name.removeprefix("checkpoint-")) if checkpoint else 0


def _is_complete(checkpoint: Path) -> bool:
    """The trainer writes its state last."""
    try:
        return json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == step_of(checkpoint)
    except (OSError, ValueError, KeyError):
        return False


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turns what torch and safetensors raise on a full disk into an OSError of one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise OSError(f"{what} could not be written: {error}") from error


def finish(folder: Path, processor: Any, measured: dict[str, float]) -> None:
    """Move the model from its scratch folder to that of the run. The configuration is last: it marks a finished run."""
    if processor is not None:
        processor.save_pretrained(folder / SCRATCH)
    (folder / SCRATCH / "training_args.bin").unlink(missing_ok=True)  # a pickle; the recipe has the same values
    write_text(folder / MEASURED, json.dumps(measured, indent=2))
    for path in sorted((folder / SCRATCH).iterdir(), key=lambda path: path.name == MODEL):
        path.replace(folder / path.name)
    (folder / SCRATCH).rmdir()


def load_measured(folder: Path) -> dict[str, float]:
    """The metrics of the final weights."""
    return json.loads((folder / MEASURED).read_text())


class RunLog:
    """One JSON object per line: `step`, and the metrics of that step."""

    def __init__(self, folder: Path):
        self.path = folder / LOG

    def cut(self, step: int) -> None:
        """Remove all entries after a step, from which the run is resumed."""
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
