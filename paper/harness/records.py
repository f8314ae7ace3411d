"""What trials have measured: one JSON object per line, one file per experiment. Lines are added and never changed."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paper.harness.migration import migrate
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
    seconds: float  # of the complete trial
    peak_memory_mb: float | None  # of the process, with everything that it has loaded
    machine: dict[str, Any]
    versions: dict[str, str]


class _File(NamedTuple):
    """A file as it was read last."""

    stamp: tuple[int, ...]  # changes when the file does
    records: list[Record]
    by_key: dict[str, Record]  # the last record of each key


class Records:
    """The records in a folder. A file is read again only when it has changed: other processes may add lines.

    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from paper.harness.records import Record, Records
    >>> from paper.harness.trial import Trial
    >>> trial = Trial("alm", "tnn", {"steps": 20}, lambda context: {})
    >>> with TemporaryDirectory() as folder:
    ...     records = Records(Path(folder))
    ...     records.add(Record("alm", "tnn", "", 0, {"steps": 20}, {"perplexity": 4.0}, 9.5, 700.0, {}, {}))
    ...     records.find(trial).metrics
    {'perplexity': 4.0}
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._files: dict[str, _File] = {}

    def add(self, record: Record) -> None:
        """At once and as one line, so that several processes can add theirs to the same file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(_to_json(asdict(record)), allow_nan=False) + "\n"
        with self._path(record.experiment).open("a", encoding="utf-8") as file:
            file.write(line)

    def find(self, trial: Trial) -> Record | None:
        """What was measured with these settings; the last record, if there are several."""
        file = self._load(trial.experiment)
        return file.by_key.get(_key(trial)) if file.by_key else None

    def read(self, experiment: str) -> Iterator[Record]:
        """All records of an experiment, in the order in which they were added, with the settings in today's names."""
        yield from self._load(experiment).records

    def _load(self, experiment: str) -> _File:
        path = self._path(experiment)
        try:
            status = path.stat()
        except FileNotFoundError:
            return _File((), [], {})
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        file = self._files.get(experiment)
        if file is None or file.stamp != stamp:
            records = list(_parse(path))
            file = self._files[experiment] = _File(stamp, records, {_key(record): record for record in records})
        return file

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"


def _parse(path: Path) -> Iterator[Record]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            values = json.loads(line)
            yield Record(**values | {"settings": migrate(values["settings"])})
        except (ValueError, TypeError, LookupError, AttributeError):
            raise ValueError(f"{path}, line {number} is damaged: remove it, and its trial is run again") from None


def _key(measured: Trial | Record) -> str:
    """Equal for a trial and its record, whatever names their settings have, and whether a number is 1 or 1.0."""
    settings = migrate(measured.settings)
    return json.dumps([measured.row, measured.part, measured.seed, _to_json(settings, integers=True)], sort_keys=True)


def _to_json(value: Any, *, integers: bool = False) -> Any:
    """As JSON has it: infinite and undefined numbers are null, tuples are lists; 1.0 is 1 if `integers`."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if integers and value.is_integer() else value
    if isinstance(value, dict):
        return {key: _to_json(entry, integers=integers) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(entry, integers=integers) for entry in value]
    return value
