"""The log of a run: JSON lines that are only appended, and cut where a run is resumed."""

import json
from collections.abc import Iterator
from pathlib import Path

from tnn._files import write_text
from tnn.training.run_files import LOG

SAVED, SECONDS = "checkpoint", "seconds"  # keys of entries


class RunLog:
    """One JSON object per line: `step`, and the metrics of that step.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tnn.training.run_log import RunLog
    >>> with TemporaryDirectory() as folder:
    ...     log = RunLog(Path(folder))
    ...     log.add(10, {"loss": 2.5, "seconds": 4.1})
    ...     list(log.entries()), log.seconds()
    ([{'step': 10, 'loss': 2.5, 'seconds': 4.1}], 4.1)
    """

    def __init__(self, folder: Path):
        self.path = folder / LOG

    def cut(self, step: int) -> None:
        """Remove all entries after a step, from which the run is resumed."""
        kept = [entry for entry in self.entries() if entry["step"] <= step]
        write_text(self.path, "".join(json.dumps(entry) + "\n" for entry in kept))

    def add_checkpoint(self, step: int) -> None:
        """A checkpoint was written after this step."""
        self.add(step, {SAVED: step})

    def last_saved(self) -> int | None:
        """The step of the last checkpoint that was written, also if it is gone; None if there was none."""
        return max((int(entry["step"]) for entry in self.entries() if SAVED in entry), default=None)

    def seconds(self) -> float | None:
        """The time of the training so far, without interruptions; None if it is not known."""
        return max((entry[SECONDS] for entry in self.entries() if SECONDS in entry), default=None)

    def add(self, step: int, values: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def entries(self) -> Iterator[dict[str, float]]:
        if self.path.is_file():
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            for number, line in enumerate(lines, start=1):
                if line.endswith("\n"):  # not the last line of a run that was killed
                    yield self._parse(line, f"{self.path}, line {number}")

    def _parse(self, line: str, where: str) -> dict[str, float]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise ValueError(f'{where} is damaged: it must be a JSON object with a "step"; got {line.strip()[:40]!r}')
        if not all(isinstance(value, int | float) for value in entry.values()):
            raise ValueError(f"{where} is damaged: its values must be numbers; got {line.strip()[:40]!r}")
        return entry
