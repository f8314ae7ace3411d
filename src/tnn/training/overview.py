"""All runs in a folder: state, scores, time. Nothing is written, and a damaged run is a line like the others."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tnn.training.checkpoints import CHECKPOINTS, list_checkpoints, step_of
from tnn.training.durations import format_time
from tnn.training.recipe import read_yaml
from tnn.training.run_files import FINGERPRINTS, LOG, MEASURED, MODEL, RECIPE
from tnn.training.run_lock import lock_holder
from tnn.training.run_log import RunLog

State = Literal["running", "stopped", "finished", "damaged"]
SCORE, TIMES = "eval_", ("_runtime", "_per_second")  # beginning of scores in a log, and endings of what is none
HEAD = ("run", "state", "step", "model", "data", "validation", "time")


@dataclass(frozen=True)
class RunSummary:
    """One run. What is not known is None."""

    folder: str
    state: State
    process: str | None = None  # that trains it
    step: int = 0  # a run that was stopped continues from here
    steps: int | None = None
    model: str | None = None
    data: str | None = None
    metric: str | None = None
    last: float | None = None
    best: float | None = None
    seconds: float | None = None  # of training
    problem: str | None = None  # of a damaged run


def list_runs(folder: Path) -> list[RunSummary]:
    """The runs in a folder and below it, by name; the folder may be that of a run.

    >>> from pathlib import Path
    >>> from tnn.training.overview import list_runs
    >>> list_runs(Path("runs"))  # doctest: +SKIP
    [RunSummary(folder='runs/mine', state='finished', ...)]
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: tnn train makes runs in runs/")
    return [summarize(found) for found in _find(folder)]


def _find(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != CHECKPOINTS and not name.startswith("."))
        if len({RECIPE, LOG, FINGERPRINTS} & {*files}) >= 2 and not _has_parts(Path(root), files):
            yield Path(root)


def _has_parts(folder: Path, files: Sequence[str]) -> bool:
    """Whether this is a recipe of several trainings, which have folders of their own."""
    return LOG not in files and any(folder.glob(f"*/**/{LOG}"))


def summarize(folder: Path) -> RunSummary:
    """What the files of one run say.

    >>> from pathlib import Path
    >>> from tnn.training.overview import summarize
    >>> summarize(Path("no-such-run")).problem
    'recipe.yaml is missing'
    """
    try:
        return _summarize(folder)
    except OSError as error:
        problem = f"{Path(error.filename or folder).name} "
        problem += "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
    except (ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).removeprefix(f"{folder}{os.sep}").split())
    return RunSummary(str(folder), "damaged", problem=problem)


def _summarize(folder: Path) -> RunSummary:
    recipe = _sections(folder / RECIPE)
    log, process = RunLog(folder), lock_holder(folder)
    entries = list(log.entries())
    finished = process is None and (folder / MODEL).is_file()
    last_step = int(entries[-1]["step"]) if entries else 0
    saved = step_of(next(iter(list_checkpoints(folder)), None))
    metric, scores = _scores([*entries, _measured(folder)] if finished else entries)
    better = min if metric == "loss" else max
    training, model = recipe["training"], recipe["model"]
    steps = training.get("steps")
    return RunSummary(
        folder=str(folder),
        state="running" if process else "finished" if finished else "stopped",
        process=process,
        step=last_step if process or finished else saved,
        steps=steps if isinstance(steps, int) else None,
        model=str(model.get("preset") or model.get("start_from")),
        data=next((value for value in recipe["data"].values() if isinstance(value, str)), None),
        metric=metric,
        last=scores[-1] if scores else None,
        best=better(scores) if scores else None,
        seconds=log.seconds(),
    )


def _sections(path: Path) -> dict[str, dict[str, Any]]:
    """Those of a recipe. It is not checked further: a mixer of the user need not be known here."""
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
        sections = {name: values[name] for name in ("model", "data", "training")}
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, LookupError):
        sections = {}
    if not sections or not all(isinstance(section, dict) for section in sections.values()):
        raise ValueError(f"{path} is damaged: it is not a recipe")
    return sections


def _measured(folder: Path) -> dict[str, float]:
    """The scores of the final model; none if they cannot be read."""
    try:
        values = json.loads((folder / MEASURED).read_bytes())
        return {key: value for key, value in values.items() if isinstance(value, int | float)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _scores(entries: Iterable[dict[str, float]]) -> tuple[str | None, list[float]]:
    """The name of the score that counts, and its values: the loss, if there is no other."""
    evaluations = [
        {key: value for key, value in entry.items() if key.startswith(SCORE) and not key.endswith(TIMES)}
        for entry in entries
    ]
    keys = list(dict.fromkeys(key for evaluation in evaluations for key in evaluation))
    key = next((key for key in keys if not key.endswith("_loss")), keys[0] if keys else None)
    if key is None:
        return None, []
    return key.removeprefix(SCORE), [e[key] for e in evaluations if math.isfinite(e.get(key, math.nan))]


def to_table(runs: Sequence[RunSummary]) -> str:
    """One line per run.

    >>> from tnn.training.overview import RunSummary, to_table
    >>> runs = [RunSummary("runs/mine", "stopped", step=200, steps=800, model="tnn-mini", data="my-texts")]
    >>> print(to_table([*runs, RunSummary("runs/old", "damaged", problem="recipe.yaml is missing")]))
    run        state    step        model     data      validation  time
    runs/mine  stopped  200 of 800  tnn-mini  my-texts  -           -
    runs/old   damaged  recipe.yaml is missing
    """
    rows = [HEAD, *(_cells(run) for run in runs)]
    widths = [max(len(row[i]) for row in rows if len(row) == len(HEAD)) for i in range(len(HEAD))]
    widths[:2] = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    )


def _cells(run: RunSummary) -> tuple[str, ...]:
    if run.problem is not None:
        return run.folder, run.state, run.problem
    score = "-" if run.last is None else f"{run.metric} {run.last:.4f}, best {run.best:.4f}"
    time = "-" if run.seconds is None else format_time(run.seconds)
    state = f"running, process {run.process}" if run.process else run.state
    step = f"{run.step:,}" + (f" of {run.steps:,}" if run.steps else "")
    return run.folder, state, step, run.model or "-", run.data or "-", score, time
