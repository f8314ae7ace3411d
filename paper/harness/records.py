"""What trials have measured: a JSON object a line, one file an experiment. Lines are added and never changed."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paper.harness.trial import Metrics, Trial


@dataclass(frozen=True)
class Record:
    """A trial and its outcome, and what a reader needs to judge and repeat it."""

    experiment: str
    row: str
    part: str
    seed: int
    settings: dict[str, Any]
    metrics: Metrics
    seconds: float  # of the whole trial
    peak_memory_mb: float | None  # of the process, with all that it has loaded
    machine: dict[str, Any]
    versions: dict[str, str]


class Records:
    """The records in a folder.

    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from paper.harness.records import Record, Records
    >>> from paper.harness.trial import Trial
    >>> trial = Trial("alm", "tnn", {"steps": 20}, lambda place: {})
    >>> with TemporaryDirectory() as folder:
    ...     records = Records(Path(folder))
    ...     records.add(Record("alm", "tnn", "", 0, {"steps": 20}, {"perplexity": 4.0}, 9.5, 700.0, {}, {}))
    ...     records.find(trial).metrics
    {'perplexity': 4.0}
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def add(self, record: Record) -> None:
        """At once and as one line, so that several processes can add theirs to the same file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(_without_nan(asdict(record)), allow_nan=False) + "\n"
        with self._path(record.experiment).open("a", encoding="utf-8") as file:
            file.write(line)

    def find(self, trial: Trial) -> Record | None:
        """What was measured with these settings; the last time, if it was more than once."""
        wanted = _without_nan((trial.row, trial.part, trial.seed, trial.settings))
        found = [r for r in self.read(trial.experiment) if [r.row, r.part, r.seed, r.settings] == wanted]
        return found[-1] if found else None

    def read(self, experiment: str) -> Iterator[Record]:
        path = self._path(experiment)
        if not path.is_file():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                yield Record(**json.loads(line))
            except (ValueError, TypeError):
                raise ValueError(f"{path}, line {number} is damaged: remove it, and its trial is run again") from None

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"


def _without_nan(value: Any) -> Any:
    """As JSON has it: infinite and undefined numbers are null, tuples are lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return value
