"""A trial: one measurement of an experiment. It is run once; after that its record is used."""

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
    """What a user can choose; None: the default of the experiment."""

    scale: Scale = "mini"
    methods: tuple[str, ...] | None = None  # rows of the table
    seeds: int | None = None  # per row: 0, 1, ...
    steps: int | None = None  # updates per training

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
class TrialContext:
    """What a trial needs to run."""

    data: Path  # the folder with all data sets
    models: Path  # the folder for trained models, one subfolder each
    records: "Records"


@dataclass(frozen=True)
class Trial:
    """One measurement of one row with one seed. `settings` is everything that decides the outcome, as JSON values.

    >>> from paper.harness.trial import Trial
    >>> Trial("alm", "tnn", {"steps": 20}, lambda context: {"perplexity": 4.0}, seed=1).title
    'alm, tnn, seed 1'
    """

    experiment: str  # whose records it belongs to; other experiments may use them
    row: str
    settings: dict[str, Any]
    work: Callable[[TrialContext], Metrics] = field(compare=False, repr=False)
    part: str = ""  # of a row: a task, or a learning rate of the search
    seed: int = 0
    cost: float = 1.0  # relative to the experiment's other trials, to estimate the remaining time

    @property
    def title(self) -> str:
        words = [self.experiment, self.row, self.part, f"seed {self.seed}"]
        return ", ".join(word for word in words if word)

    @property
    def key(self) -> str:
        """Trials with the same key are the same measurement."""
        return dumps([self.experiment, self.row, self.part, self.seed, self.settings], sort_keys=True)

    def folder(self, context: TrialContext) -> Path:
        """The folder of the model that it trains; other settings have another folder."""
        digest = sha256(self.key.encode()).hexdigest()[:8]
        name = "-".join(word for word in (self.row, self.part, f"seed-{self.seed}", digest) if word)
        return context.models / self.experiment / name.replace(" ", "-").replace(":", "-")
