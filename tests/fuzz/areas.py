"""What is fuzzed: each area makes the case of a number, always the same one."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.commands import command_lines
from tests.fuzz.data import arrays, caches, labelled, photographs, tables, tagged, texts
from tests.fuzz.judge import Case, verdict
from tests.fuzz.models import configurations, generation_settings, tokenizers, weights
from tests.fuzz.recipes import recipes
from tests.fuzz.runs import checkpoints
from tests.fuzz.samples import Samples

SEED = 0
AREAS: dict[str, tuple[int, Callable[[Random, Samples, Path], Case]]] = {  # shares in a thousand
    "command lines": (220, command_lines),
    "recipes": (200, recipes),
    "configurations": (110, configurations),
    "tokenizers": (80, tokenizers),
    "generation settings": (60, generation_settings),
    "weights": (80, weights),
    "texts": (75, texts),
    "tables": (40, tables),
    "labelled tables": (20, labelled),
    "tagged words": (15, tagged),
    "arrays": (40, arrays),
    "photographs": (25, photographs),
    "token caches": (25, caches),
    "checkpoints": (10, checkpoints),
}


@dataclass(frozen=True)
class Judged:
    """A case that was run."""

    area: str
    number: int
    what: str
    verdict: str  # "right", "refused" or "failed"
    complaint: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.area} {self.number} ({self.what}): {self.complaint}"


def counts(cases: int) -> dict[str, int]:
    """How many cases each area gets."""
    total = sum(share for share, _ in AREAS.values())
    return {area: max(1, cases * share // total) for area, (share, _) in AREAS.items()}


def judge(area: str, numbers: range, samples: Samples, seed: int = SEED) -> Iterator[Judged]:
    """Makes and runs the cases of some numbers, each in a folder of its own."""
    for number in numbers:
        around = Path(tempfile.mkdtemp(prefix="fuzz-"))  # for commands that write to ..
        here = around / "here"
        here.mkdir()
        try:
            case = AREAS[area][1](Random(f"{seed} {area} {number}"), samples, here)
            with samples.small_demo():  # the whole one takes minutes
                reached, complaint, result = verdict(case, here)
        finally:
            os.chdir(samples.home)
            shutil.rmtree(around)
        yield Judged(area, number, case.what, reached, complaint, result.seconds)
