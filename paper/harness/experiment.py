"""An experiment: its trials, and what their records say about a table of the paper."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from paper.harness.records import Records
from paper.harness.trial import Options, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["holds", "holds in part", "does not hold", "not measured"]


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first row is the head, the first column names the rows.

    >>> from paper.harness.experiment import Table
    >>> print(Table("Perplexity", (("method", "published"), ("tnn", "24.67"))).to_markdown())
    | method | published |
    |:-------|----------:|
    | tnn    |     24.67 |
    """

    title: str
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = [_line(row, widths) for row in self.rows]
        rules = [":" + "-" * (widths[0] + 1), *("-" * (width + 1) + ":" for width in widths[1:])]
        return "\n".join([lines[0], "|" + "|".join(rules) + "|", *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "| " + " | ".join([first, *rest]) + " |"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: its text, our verdict, the numbers behind it, and what else was checked.

    >>> from paper.harness.experiment import Claim
    >>> Claim("It is the best.", "does not hold", "number 2 of 3", checked="with longer trainings it is.").to_markdown()
    '**does not hold**: It is the best. *number 2 of 3* Checked: with longer trainings it is.'
    """

    text: str
    verdict: Verdict
    evidence: str
    checked: str = ""

    def to_markdown(self) -> str:
        evidence = f" *{self.evidence}*" if self.evidence else ""
        checked = f" Checked: {self.checked}" if self.checked else ""
        return f"**{self.verdict}**: {self.text}{evidence}{checked}"


@dataclass(frozen=True)
class Outcome:
    """What the records say; some may still be missing."""

    tables: tuple[Table, ...]
    figure: "Callable[[], Figure] | None" = None  # draws it; None: there is nothing to draw
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader must know to compare the numbers


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper. `plan` lists its trials; `conclude` turns their records into an outcome."""

    name: str
    about: str  # one line
    rows: tuple[str, ...]  # what --methods can choose
    plan: Callable[[Options], list[Trial]] = field(repr=False)
    conclude: Callable[[Options, Records], Outcome] = field(repr=False)
    takes_mixers: bool = False  # whether --methods may name a mixer of the user's own, as package.module:Class
