"""How each row of Long-Range Arena is trained: at mini scale all alike, at paper scale as published."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paper.harness.mixers import is_own_mixer
from paper.harness.trainings import Search, Setup
from paper.harness.trial import Options

QUOTED = (  # from Skyformer's table
    *("transformer", "kernelized", "nystromformer", "linformer", "informer"),
    *("performer", "reformer", "bigbird", "skyformer"),
)
LRA_METHODS = (*QUOTED, "transformer-ls", "cosformer", "flash", "s4", "tnn")
ONE_AXIS = "tnn-1d"  # on images: pixel rows as one sequence, as all methods except TNN read them
RELATIVE = "tnn-relative"  # on texts: without absolute positions, and with decay
IMAGE_TASKS = ("pathfinder", "pathx", "image")
FOLDER = ("data.folder",)
RATES = (1e-3, 3e-3, 1e-2)  # of the search at mini scale


def lra_setup(row: str, task: str, options: Options, *, large: bool = False) -> Setup:
    """The training of a row on a task.

    >>> from paper.lra.setups import lra_setup
    >>> from paper.harness.trial import Options
    >>> lra_setup("s4", "text", Options()).load().model.preset
    'mini-lra-s4'
    """
    if options.scale == "mini":
        return mini_setup(task, mini_model(row, task, large), options.steps)
    steps = () if options.steps is None else ("training.epochs=null", f"training.steps={options.steps}")
    changes = _large_changes(row, task) if large else _paper_changes(row, task)
    return Setup(f"lra-{task}-large" if large else f"lra-{task}", (*changes, *steps), FOLDER)


def lra_search(task: str, options: Options) -> Search | None:
    """None at paper scale: the rates are the published ones."""
    if options.scale == "paper":
        return None
    mini = MINI[task]
    return Search(RATES, max(1, (options.steps or mini.steps) * mini.search_steps // mini.steps))


# --- Mini scale: rows differ only in the mixer and in the sizes that match the parameter counts.


@dataclass(frozen=True)
class MiniTask:
    """A task for one CPU core; `model` has fields of every row's model, `own` fields that only TNN has."""

    folder: str
    length: int  # in tokens: texts are cut to it, images have this many patches
    shorter: int  # the published inputs are this many times as long
    steps: int
    search_steps: int  # with each learning rate
    model: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)


MINI = {
    "text": MiniTask(
        folder="imdb",
        length=512,
        shorter=8,
        steps=700,
        search_steps=150,
        own={"decay_mode": "none", "initializer_range": 1.0},
    ),
    "listops": MiniTask(
        folder="listops-lra-generated",
        length=512,
        shorter=4,
        steps=400,
        search_steps=100,
        model={"pooling": "first"},  # the outermost operation
        own={"decay": 0.99, "initializer_range": 1.0},
    ),
    "pathfinder": MiniTask(
        folder="pathfinder-easy",
        length=64,
        shorter=16,
        steps=2500,
        search_steps=800,  # fewer are not enough: all rows start with some hundred updates without progress
        model={"patch_size": 4, "num_labels": 2},
        own={"form": "product", "inner_norm": None, "decay_mode": "fixed", "decay": 0.7},
    ),
    "image": MiniTask(
        folder="cifar10-gray",
        length=256,
        shorter=4,
        steps=1200,
        search_steps=150,
        model={"patch_size": 2},
    ),
}
COMMON = {"embedding_dropout": 0.0}
# Sizes that shrink in proportion to the inputs: 128 landmarks for 4,096 tokens become 16 for 512.
PARTS = {
    "nystromformer": {"landmarks": 128},
    "skyformer": {"landmarks": 128},
    "linformer": {"projected": 128},
    "informer": {"factor": 128},
    "reformer": {"chunk": 64},
    "bigbird": {"block": 64},
}


def mini_setup(task: str, model: dict[str, Any], steps: int | None, *more: str) -> Setup:
    """The training of a model on a task at mini scale; `more` are changes of the recipe."""
    mini = MINI[task]
    steps = steps or mini.steps
    changes = [
        f"model={json.dumps(model)}",
        f"data.folder={mini.folder}",
        f"training.steps={steps}",
        f"training.warmup_steps={max(1, steps // 10)}",
        "training.batch_size=32",
        "training.seed=0",
        "training.clip=1.0",
        "training.log_every=50",
        "training.evaluate_every=null",
        "training.evaluate_examples=2000",
    ]
    changes += [] if task in IMAGE_TASKS else [f"data.length={mini.length}"]
    recipe = "mini-cifar" if task == "image" else f"mini-{task}"
    return Setup(recipe, (*changes, *more), FOLDER)


def mini_model(row: str, task: str, large: bool = False) -> dict[str, Any]:
    """The model section of a recipe."""
    mini = MINI[task]
    base = "mini-lra-image" if task in IMAGE_TASKS else "mini-lra"
    wider: dict[str, Any] = {"hidden_size": 64} if large else {}
    if row == "s4" and large:
        wider["mixer_options"] = {"state_size": 26}
    if is_own_mixer(row):
        axes = {"dims": 1} if task in IMAGE_TASKS else {}
        return {"preset": base, "mixer": row, "initializer": "torch", **COMMON, **mini.model, **axes}
    if row not in ("tnn", ONE_AXIS, RELATIVE):
        return {"preset": f"{base}-{row}", **COMMON, **mini.model, **_parts(row, mini), **wider}
    model = {"preset": base, "initializer": "torch", **COMMON, **mini.model, **mini.own, **wider}
    if row == ONE_AXIS and task in IMAGE_TASKS:
        model |= {"dims": 1, "glu_expansion": 1.75}  # to match the parameters of the second axis
        model |= {"decay": 0.95}  # over a row of patches it falls as 0.7 does over a patch
    if row == RELATIVE and task not in IMAGE_TASKS:
        model |= {"position_embedding": "none", "decay_mode": "fixed", "decay": 0.9}
    return model


def _parts(row: str, mini: MiniTask) -> dict[str, Any]:
    if row not in PARTS:
        return {}
    options = {name: size // mini.shorter for name, size in PARTS[row].items()}
    return {"mixer_options": options | ({"max_length": mini.length} if row == "linformer" else {})}


# --- Paper scale: the values of the launch files.


class _Training(NamedTuple):
    rate: float
    weight_decay: float
    warmup: int
    schedule_steps: int
    batch_size: int

    def changes(self) -> tuple[str, ...]:
        return (
            f"training.learning_rate={self.rate}",
            f"training.weight_decay={self.weight_decay}",
            f"training.warmup_steps={self.warmup}",
            f"training.schedule_steps={self.schedule_steps}",
            f"training.batch_size={self.batch_size}",
        )


_SLOW = {
    "text": _Training(1e-4, 0, 80, 50_000, 20),
    "listops": _Training(1e-4, 0, 1000, 50_000, 16),
    "retrieval": _Training(2e-4, 0, 800, 50_000, 16),
    "pathfinder": _Training(2e-4, 0, 312, 50_000, 64),
    "image": _Training(1e-4, 0, 175, 50_000, 256),
}
_AUTHORS = {
    "transformer-ls": _SLOW,
    "flash": _SLOW,
    "cosformer": {
        "text": _Training(5e-4, 0, 80, 50_000, 20),
        "listops": _Training(1e-2, 0.01, 1000, 80_000, 16),
        "retrieval": _Training(1e-3, 0, 800, 50_000, 16),
        "pathfinder": _Training(5e-4, 0, 2500, 500_000, 64),
        "image": _Training(4e-3, 0.05, 1000, 200_000, 256),
    },
    "s4": {
        "text": _Training(1e-2, 0.05, 1000, 50_000, 16),
        "listops": _Training(1e-2, 0.05, 1000, 80_000, 16),
        "retrieval": _Training(1e-2, 0.1, 2500, 50_000, 16),
        "pathfinder": _Training(4e-3, 0.03, 2500, 500_000, 64),
        "image": _Training(1e-2, 0.05, 1000, 200_000, 256),
    },
}
_QUOTED = {  # rate, warm-up, batch
    "text": (1e-4, 80, 32),
    "listops": (1e-4, 1000, 32),
    "retrieval": (2e-4, 800, 16),
    "pathfinder": (2e-4, 312, 128),
    "image": (1e-4, 175, 256),
}
_S4_LARGE: dict[str, tuple[int, int, dict[str, Any], _Training]] = {  # layers, width, options; from S4's authors
    "text": (6, 256, {}, _Training(1e-2, 0.05, 1000, 50_000, 16)),
    "listops": (8, 128, {}, _Training(1e-2, 0.05, 1000, 80_000, 50)),
    "retrieval": (6, 256, {}, _Training(1e-2, 0.05, 2500, 50_000, 64)),
    "pathfinder": (6, 256, {}, _Training(4e-3, 0.03, 2500, 500_000, 64)),
    "pathx": (6, 256, {"dt_min": 1e-4}, _Training(5e-4, 0.05, 10_000, 500_000, 16)),
    "image": (6, 512, {"n_ssm": 2}, _Training(1e-2, 0.05, 900, 180_000, 50)),
}


def _paper_changes(row: str, task: str) -> tuple[str, ...]:
    if row == "tnn":
        return ()
    if row == ONE_AXIS:
        return ("model.dims=1",) if task in IMAGE_TASKS else ()
    if row == RELATIVE:
        return () if task in IMAGE_TASKS else ("model.position_embedding=none", "model.decay_mode=fixed")
    if is_own_mixer(row):
        return (f"model.mixer={row}", *(("model.dims=1",) if task in IMAGE_TASKS else ()))
    preset = f"model.preset=lra-{task}-{row}"
    if row in _AUTHORS:
        return (preset, *_AUTHORS[row][task].changes())
    rate, warmup, batch_size = _QUOTED[task]
    return (
        preset,
        "data.flavour=skyformer",
        "training.epochs=null",
        "training.steps=50000",
        "training.schedule=polynomial",  # linear warm-up and linear decay
        "training.schedule_steps=null",
        f"training.learning_rate={rate}",
        f"training.warmup_from={rate / 25}",
        f"training.final_learning_rate={rate / 25e4}",
        f"training.warmup_steps={warmup}",
        f"training.batch_size={batch_size}",
        "training.epsilon=1e-6",
        "training.keep_best=true",
    )


def _large_changes(row: str, task: str) -> tuple[str, ...]:
    if row == "tnn":
        return ()
    layers, width, options, training = _S4_LARGE[task]
    preset = "pathfinder" if task == "pathx" else task
    size = ["model.image_size=128", "training.epochs=50"] if task == "pathx" else []
    return (
        f"model.preset=lra-{preset}-s4",
        f"model.num_hidden_layers={layers}",
        f"model.hidden_size={width}",
        f"model.mixer_options={json.dumps({'state_size': 64, **options})}",
        *size,
        *training.changes(),
    )
