"""A trial: one measurement of an experiment, which is run once and then known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tnn._checks import check_positive

if TYPE_CHECKING:
    from paper.harness.records import Records

Scale = Literal["mini", "paper"]
Metrics = dict[str, Any]  # what JSON can hold


@dataclass(frozen=True)
class Options:
    """What a user can choose; None: as the experiment has it."""

    scale: Scale = "mini"
    methods: tuple[str, ...] | None = None  # rows of the table
    seeds: int | None = None  # of each row: 0, 1, ...
    steps: int | None = None  # updates of a training

    def __post_init__(self) -> None:
        for name in ("seeds", "steps"):
            if (value := getattr(self, name)) is not None:
                check_positive(name, value)

    def command(self, name: str) -> str:
        """What makes the same table again.

        >>> from paper.harness.trial import Options
        >>> Options(methods=("tnn", "transformer"), steps=20).command("alm")
        'python -m paper alm --scale mini --methods tnn,transformer --steps 20'
        """
        words = ["python -m paper", name, "--scale", self.scale]
        words += ["--methods", ",".join(self.methods)] if self.methods else []
        words += [f"--{key} {value}" for key in ("seeds", "steps") if (value := getattr(self, key)) is not None]
        return " ".join(words)


@dataclass(frozen=True)
class Place:
    """Where a trial finds what it needs."""

    data: Path  # the folder with all data sets
    models: Path  # trained ones, each in a folder of its own
    records: "Records"


@dataclass(frozen=True)
class Trial:
    """One row's measurement with one seed. `settings` are all that decides the outcome, in what JSON can hold.

    >>> from paper.harness.trial import Trial
    >>> Trial("alm", "tnn", {"steps": 20}, lambda context: {"perplexity": 4.0}, seed=1).title
    'alm, tnn, seed 1'
    """

    experiment: str  # whose records it belongs to; others may use them
    row: str
    settings: dict[str, Any]
    work: Callable[[Place], Metrics] = field(compare=False, repr=False)
    part: str = ""  # of a row: a task, or a learning rate that is tried
    seed: int = 0
    cost: float = 1.0  # in relation to the experiment's other trials, to tell how long they take

    @property
    def title(self) -> str:
        words = [self.experiment, self.row, self.part, f"seed {self.seed}"]
        return ", ".join(word for word in words if word)

    @property
    def key(self) -> str:
        """Trials with the same key are the same measurement."""
        return dumps([self.experiment, self.row, self.part, self.seed, self.settings], sort_keys=True)

    def folder(self, place: Place) -> Path:
        """For what it trains; other settings have another one."""
        digest = sha256(self.key.encode()).hexdigest()[:8]
        name = "-".join(word for word in (self.row, self.part, f"seed-{self.seed}", digest) if word)
        return place.models / self.experiment / name.replace(" ", "-").replace(":", "-")
