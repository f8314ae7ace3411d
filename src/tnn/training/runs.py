"""The folder of a run: its recipe, its log, its checkpoints, and at the end the model."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from transformers import AutoConfig

from tnn.data.augmentation import Augmentation
from tnn.models import load_preset
from tnn.training.recipe import ImageRecipe, Recipe, dump_recipe, parse_recipe, read_yaml
from tnn.training.tasks.task import checked_model_folder

RECIPE, LOG, CHECKPOINTS = "recipe.yaml", "log.jsonl", "checkpoints"
MODEL, MEASURED, SCRATCH = "config.json", "measured.json", ".model"
HARMLESS = {  # keys that may change when a run goes on: its weights do not depend on them
    *("about", "data.cache", "data.check_counts", "training.log_every"),
    *("training.keep_checkpoints", "training.report_to", "training.save_every"),
}
MICRO_BATCH = "training.micro_batch_size"  # may change too, where examples are alone in their batch


def check(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Whether a run can begin in a folder, or go on there."""
    if not resume:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FileExistsError(f"{folder} exists already: go on with it by --resume, or give another --out")
    elif not (folder / RECIPE).is_file():
        raise FileNotFoundError(f"there is no run to go on with in {folder}: it has no {RECIPE}")
    else:
        for key, old, new in _differences(_read_yaml(folder / RECIPE), read_yaml(dump_recipe(recipe))):
            if key not in HARMLESS and (key != MICRO_BATCH or _examples_meet(recipe)):
                raise ValueError(f"{folder} is of another recipe: {key} was {old}, and is {new} now")


def _examples_meet(recipe: Recipe) -> bool:
    """Whether what is learnt of an example depends on those beside it in memory: by batch norm, mixup or cutmix."""
    if isinstance(recipe, ImageRecipe):
        augmentation = Augmentation(**recipe.data.augmentation)
        if augmentation.mixup or augmentation.cutmix:
            return True
    section = recipe.model
    if section.start_from is not None:
        config = AutoConfig.from_pretrained(checked_model_folder(section.start_from), **section.changes)
    else:
        assert section.preset is not None
        config = load_preset(section.preset, **section.changes)
    return any(value == "batch" for key, value in vars(config).items() if key.endswith("norm"))


def begin(folder: Path, recipe: Recipe) -> None:
    """When all else has been found in order: make the folder, and say in it what is done there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RECIPE, dump_recipe(recipe))


def _differences(old: dict[str, Any], new: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each key whose value is another one, and both values."""
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
    """The recipe that made a model, if it is known.

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
    found = (folder / CHECKPOINTS).glob("checkpoint-*")
    return sorted((path for path in found if path.name[11:].isdecimal()), key=step_of, reverse=True)


def step_of(checkpoint: Path | None) -> int:
    """The step after which a checkpoint was written; 0 without one.

    >>> from pathlib import Path
    >>> from tnn.training.runs import step_of
    >>> step_of(Path("checkpoints/checkpoint-200")), step_of(None)
    (200, 0)
    """
    return int(checkpoint.name.removeprefix("checkpoint-")) if checkpoint else 0


def _is_whole(checkpoint: Path) -> bool:
    """The trainer writes its state last."""
    try:
        return json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == step_of(checkpoint)
    except (OSError, ValueError, KeyError):
        return False


@contextmanager
def writing(what: str) -> Iterator[None]:
    """A full disk, in the words of whoever met it, is an OSError of one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise OSError(f"{what} could not be written: {error}") from error


def finish(folder: Path, processor: Any, measured: dict[str, float]) -> None:
    """Move the model from its scratch folder beside the recipe; the configuration last: it is there when all is."""
    if processor is not None:
        processor.save_pretrained(folder / SCRATCH)
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
