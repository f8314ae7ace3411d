"""Checkpoints of a run: complete or absent, ordered by step, each with a manifest of checksums.

A checkpoint is written under another name, then its manifest, and then it is renamed. So one that does not agree with
its manifest was damaged later.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKPOINTS, UNFINISHED, MANIFEST = "checkpoints", ".unfinished", "manifest.json"
PREFIX = "checkpoint-"
PICKLE = "training_args.bin"  # of transformers; the recipe has the same values
Report = Callable[[str], None]


def step_of(checkpoint: Path | None) -> int:
    """The step after which a checkpoint was written; 0 without one.

    >>> from pathlib import Path
    >>> from tnn.training.checkpoints import step_of
    >>> step_of(Path("checkpoints/checkpoint-200")), step_of(None)
    (200, 0)
    """
    return int(checkpoint.name.removeprefix(PREFIX)) if checkpoint else 0


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is, in the folder of a run."""
    return folder / CHECKPOINTS / f"{PREFIX}{step}"


def is_checkpoint(path: Path) -> bool:
    """Whether this is where the checkpoint of a run is.

    >>> from pathlib import Path
    >>> from tnn.training.checkpoints import is_checkpoint
    >>> is_checkpoint(Path("runs/mine/checkpoints/checkpoint-200")), is_checkpoint(Path("runs/mine"))
    (True, False)
    """
    number = path.name.removeprefix(PREFIX)
    return path.parent.name == CHECKPOINTS and number != path.name and number.isdecimal()


def list_checkpoints(folder: Path) -> list[Path]:
    """Those of a run, newest first: by step, whatever the clock was."""
    return sorted(filter(is_checkpoint, (folder / CHECKPOINTS).glob(f"{PREFIX}*")), key=step_of, reverse=True)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint."""
    return next((path for path in list_checkpoints(folder) if find_damage(path) is None), None)


def choose_checkpoint(folder: Path, report: Report) -> Path | None:
    """The newest whole checkpoint, to continue from; None if none was written yet. What came after it is removed.

    `report` is told about damaged ones. If all are damaged, it is a ValueError, and all stay.
    """
    shutil.rmtree(folder / CHECKPOINTS / UNFINISHED, ignore_errors=True)
    damaged: dict[Path, str] = {}
    for path in list_checkpoints(folder):
        damage = find_damage(path)
        if damage is None:
            for later, text in damaged.items():
                report(f"{later} is damaged and is removed: {text}; continuing from {path.name}")
                shutil.rmtree(later)
            return path
        damaged[path] = damage
    if damaged:
        newest, damage = next(iter(damaged.items()))
        raise ValueError(f"no checkpoint in {newest.parent} is whole: {newest.name}: {damage}; give another --out")
    return None


# --- writing


def publish(unfinished: Path, folder: Path, best: int | None = None) -> Path:
    """Complete a checkpoint that was written to `unfinished`, and move it to its place in the folder of a run.

    `best` is the step of the checkpoint with the best weights, if the run needs them at its end.
    """
    (unfinished / PICKLE).unlink(missing_ok=True)
    final = checkpoint_path(folder, step_of(unfinished))
    names = sorted(path.relative_to(unfinished).as_posix() for path in unfinished.rglob("*") if path.is_file())
    files = {name: _sum_and_sync(unfinished / name) for name in names}
    content = {"step": step_of(final), "best": best, "files": files}
    (unfinished / MANIFEST).write_text(json.dumps({"content": content, "sha256": _sum(content)}, indent=1))
    sync(unfinished / MANIFEST)
    sync(unfinished)
    unfinished.rename(final)
    unfinished.parent.rmdir()
    sync(final.parent)
    return final


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk: also a power failure leaves it complete."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rotate(folder: Path, keep: int, best: int | None = None) -> None:
    """Remove all checkpoints except the newest `keep`, and the best one."""
    for path in list_checkpoints(folder)[keep:]:
        if step_of(path) != best:
            shutil.rmtree(path)


def _sum_and_sync(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"size": file.tell(), "sha256": digest}


def _sum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# --- checking


def find_damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, and in which file; None if it is whole.

    >>> from pathlib import Path
    >>> from tnn.training.checkpoints import find_damage
    >>> find_damage(Path("checkpoint-200"))
    'manifest.json is missing'
    """
    try:
        return _find_damage(checkpoint)
    except OSError as error:
        return _unreadable(checkpoint, error)


def find_own_damage(checkpoint: Path) -> str | None:
    """The same for its own files alone: the best checkpoint, which a run needs at its end, may be gone."""
    try:
        return _damage_of_files(checkpoint)
    except OSError as error:
        return _unreadable(checkpoint, error)


def _unreadable(checkpoint: Path, error: OSError) -> str:
    return f"{Path(error.filename or checkpoint).name} cannot be read: {error.strerror}"


def _find_damage(checkpoint: Path) -> str | None:
    damage = _damage_of_files(checkpoint)
    best = None if damage else _read_manifest(checkpoint / MANIFEST)["best"]
    if best is not None and best != step_of(checkpoint):
        damage = find_damage(checkpoint.parent / f"{PREFIX}{best}")
        return damage and f"{PREFIX}{best}, which has the best weights: {damage}"
    return damage


def _damage_of_files(checkpoint: Path) -> str | None:
    if not (checkpoint / MANIFEST).is_file():
        return f"{MANIFEST} is missing"
    content = _read_manifest(checkpoint / MANIFEST)
    if content is None:
        return f"{MANIFEST} is damaged"
    if content["step"] != step_of(checkpoint):
        return f"{MANIFEST} is of step {content['step']}"
    for name, expected in content["files"].items():
        if damage := _compare(checkpoint / name, expected):
            return f"{name} {damage}"
    for path in checkpoint.rglob("*"):
        name = path.relative_to(checkpoint).as_posix()
        if path.is_file() and name != MANIFEST and name not in content["files"] and not path.name.startswith("."):
            return f"{name} is not in its {MANIFEST}"
    return None


def _read_manifest(path: Path) -> Any:
    """The content, if its own checksum is right."""
    try:
        values = json.loads(path.read_bytes())
        return values["content"] if _sum(values["content"]) == values["sha256"] else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _compare(path: Path, expected: dict[str, Any]) -> str | None:
    if not path.is_file():
        return "is missing"
    if (size := path.stat().st_size) != expected["size"]:
        return f"has {size:,} bytes, not {expected['size']:,}"
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
            return "is not what was written: its checksum is another"
    return None
