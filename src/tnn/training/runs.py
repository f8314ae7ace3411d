"""The folder of a run: its recipe, what it is trained on, its log, its checkpoints, and at the end the model."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

from tnn._files import check_folder, check_name, write_text
from tnn.models import load_preset
from tnn.models.loading import read_config
from tnn.training.checkpoints import CHECKPOINTS as CHECKPOINTS
from tnn.training.checkpoints import PREFIX, UNFINISHED, find_own_damage, is_checkpoint, sync
from tnn.training.checkpoints import last_checkpoint as last_checkpoint
from tnn.training.checkpoints import step_of as step_of
from tnn.training.model_card import write_card
from tnn.training.recipe import dump_recipe, parse_recipe, read_yaml
from tnn.training.run_files import FINGERPRINTS, MEASURED, MODEL
from tnn.training.run_files import LOG as LOG
from tnn.training.run_files import RECIPE as RECIPE
from tnn.training.run_lock import LOCK, check_unused, locked
from tnn.training.run_log import RunLog as RunLog
from tnn.training.schema import Recipe
from tnn.training.tasks.registry import find_task
from tnn.training.tasks.setup import checked_model_folder

SCRATCH = ".model"
WRITTEN = (RECIPE, LOG, FINGERPRINTS, LOCK)  # also before the first checkpoint
RESUMABLE_KEYS = {  # keys with no effect on the weights: they may change when a run is resumed. A task may have more
    *("about", "training.log_every"),
    *("training.keep_checkpoints", "training.report_to", "training.save_every"),
}
LENGTH = {"training.steps", "training.epochs"}  # may change too: see tnn.training.lengthening
MICRO_BATCH = "training.micro_batch_size"  # may change too, unless examples of a batch have an effect on each other


@contextmanager
def opened(folder: Path, recipe: Recipe, resume: bool) -> Iterator[None]:
    """The folder is checked, and locked until the run ends."""
    check_name(folder)
    check_folder(folder)
    check_unused(folder)  # what another process has written there is no reason to give
    check(folder, recipe, resume)  # before anything is written
    with locked(folder):
        check(folder, recipe, resume)  # it may have changed before it was locked
        yield


def check(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Raises an error if a run cannot start in this folder, or cannot be resumed there."""
    if not resume:
        if holds_something(folder):
            raise FileExistsError(f"{folder} exists already: continue it with --resume, or give another --out")
    elif not (folder / RECIPE).is_file():
        raise FileNotFoundError(f"there is no run to resume in {folder}: it has no {RECIPE}")
    else:
        task = find_task(recipe.task)
        resumable = RESUMABLE_KEYS | task.resumable_keys | task.places  # other data have another fingerprint
        if not task.trainings(recipe):  # several would not be compared at the same length
            resumable |= LENGTH
        if not recipe.training.needs_evaluation:
            resumable |= {"training.evaluate_every"}
        for key, old, new in _differences(_read_yaml(folder / RECIPE), read_yaml(dump_recipe(recipe))):
            if key not in resumable and (key != MICRO_BATCH or _mixes_examples(recipe)):
                raise ValueError(f"{folder} has another recipe: {key} was {old}, and is {new} now")


def holds_something(folder: Path) -> bool:
    """Whether a new run would overwrite anything: not the rest of one that ended before its first checkpoint."""
    if not folder.is_dir():
        return folder.exists()
    rest = _is_rest if (folder / FINGERPRINTS).is_file() else _is_temporary
    return any(not rest(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def _is_rest(path: Path) -> bool:
    """Whether a file in the folder of a run has no value without a checkpoint."""
    if path.name in WRITTEN or UNFINISHED in path.parts:
        return True
    if CHECKPOINTS in path.parts:
        return not any(part.startswith(PREFIX) for part in path.parts)
    return _is_temporary(path)


def _is_temporary(path: Path) -> bool:
    """Whether a file is the lock, or one that was not renamed before the end of its process."""
    return any(part.startswith((LOCK, SCRATCH, *(f".{name}-" for name in WRITTEN))) for part in path.parts)


def _mixes_examples(recipe: Recipe) -> bool:
    """Whether an update depends on which examples are in one micro-batch: by batch norm, or by the task."""
    if find_task(recipe.task).mixes_examples(recipe):
        return True
    section = recipe.model
    if section.start_from is not None:
        config = read_config(checked_model_folder(section.start_from), **section.changes)
    else:
        assert section.preset is not None
        config = load_preset(section.preset, **section.changes)
    return any(value == "batch" for key, value in vars(config).items() if key.endswith("norm"))


def begin(folder: Path, recipe: Recipe, fingerprints: Mapping[str, str | None]) -> None:
    """Make the folder, and write what is trained on and the recipe. Call it when everything else has been checked."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / FINGERPRINTS, json.dumps(fingerprints, indent=2))
    write_text(folder / RECIPE, dump_recipe(recipe))


def check_fingerprints(folder: Path, fingerprints: Mapping[str, str | None]) -> None:
    """Raises a ValueError if the data or the tokenizer are not those that a run began with."""
    path, advice = folder / FINGERPRINTS, "--allow-changed-data goes on all the same"
    if not path.is_file():
        raise ValueError(f"{path} is missing, so it is not known what the run was trained on; {advice}")
    known = _read_json(path)
    changed = [name for name in reversed(list(fingerprints)) if known.get(name) != fingerprints[name]]
    if changed:  # with another tokenizer, the data are other tokens too
        raise ValueError(f"the {changed[0]} changed after the run in {folder} began; {advice}")


def _differences(old: dict[str, Any], new: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each key whose value has changed, with the old and the new value."""
    for key in [*old, *(key for key in new if key not in old)]:
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{path}{key}.")
        elif a != b:
            yield f"{path}{key}", a, b


def is_finished(folder: Path) -> bool:
    """Whether the model has been saved: its configuration is written last."""
    return (folder / MODEL).is_file()


def newest_model(folder: Path) -> Path:
    """The folder with the newest weights of a run: its own if it is finished, else its last whole checkpoint.

    The folder of any other model is returned as it is; a checkpoint must be whole.

    >>> from pathlib import Path
    >>> from tnn.training.runs import newest_model
    >>> newest_model(Path("runs/mine"))  # doctest: +SKIP
    PosixPath('runs/mine/checkpoints/checkpoint-200')
    """
    if is_checkpoint(folder) and folder.is_dir() and (damage := find_own_damage(folder)):
        raise ValueError(f"{folder} is damaged: {damage}")
    if is_finished(folder) or not (folder / RECIPE).is_file():
        return folder
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        raise FileNotFoundError(f"there is no model in {folder} yet: it has no whole checkpoint; training writes them")
    return checkpoint


def load_run_recipe(folder: Path) -> Recipe | None:
    """The recipe that trained a model, or None if there is none in its folder.

    >>> from pathlib import Path
    >>> from tnn.training.runs import load_run_recipe
    >>> load_run_recipe(Path("no-such-folder")) is None
    True
    """
    path = folder / RECIPE
    if not path.is_file():
        return None
    values = _read_yaml(path)
    recipe = parse_recipe(values, str(path))
    former = {key: value for key, value in find_task(recipe.task).former_data.items() if key not in values["data"]}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=former)}) if former else recipe


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged: it is not a recipe")
    return values


def reopen(folder: Path) -> None:
    """A finished run goes on: its model is no longer that of the run. The weights are in its last checkpoint."""
    for name in (MODEL, MEASURED):
        (folder / name).unlink(missing_ok=True)
    sync(folder)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turns what torch and safetensors raise on a full disk into an OSError of one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise OSError(f"{what} could not be written: {error}") from error


def finish(folder: Path, processor: Any, measured: dict[str, float], card: str) -> None:
    """Move the model from its scratch folder to that of the run. The configuration is last: it marks a finished run."""
    if processor is not None:
        processor.save_pretrained(folder / SCRATCH)
    (folder / SCRATCH / "training_args.bin").unlink(missing_ok=True)  # a pickle; the recipe has the same values
    write_text(folder / MEASURED, json.dumps(measured, indent=2))
    write_card(folder, card)
    for path in (folder / SCRATCH).iterdir():
        sync(path)
    for path in sorted((folder / SCRATCH).iterdir(), key=lambda path: path.name == MODEL):
        path.replace(folder / path.name)
    (folder / SCRATCH).rmdir()
    sync(folder)


def load_measured(folder: Path) -> dict[str, float]:
    """The metrics of the final weights."""
    measured = _read_json(folder / MEASURED)
    if not all(isinstance(value, int | float) for value in measured.values()):
        raise ValueError(f"{folder / MEASURED} is damaged: it must hold numbers by name")
    return measured


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is damaged: it is not a JSON object")
    return values
