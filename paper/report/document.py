"""A document as a list of blocks: what it says, apart from how it looks. markdown.py and page.py render it."""

from collections.abc import Mapping
from dataclasses import dataclass

from paper.harness.experiment import Claim, Table, Verdict

SIGNS: dict[Verdict, str] = {"holds": "✓", "holds in part": "≈", "does not hold": "✗", "not measured": "–"}


@dataclass(frozen=True)
class Heading:
    """Of a part of the document, which links find by its anchor."""

    text: str
    anchor: str = ""


@dataclass(frozen=True)
class Subject:
    """What the next blocks are about: a part of the document with this anchor."""

    text: str
    anchor: str


@dataclass(frozen=True)
class Paragraph:
    text: str
    small: bool = False


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Numbers:
    """The few numbers to remember, by their names."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Contents:
    """Links to the parts, by their anchors."""

    texts: Mapping[str, str]


@dataclass(frozen=True)
class Claims:
    """Verdicts, one per claim; with the numbers and checks behind them, or without."""

    claims: tuple[Claim, ...]
    evidence: bool = True


@dataclass(frozen=True)
class Sentences:
    """A table of texts: the first column says what a row is about."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Image:
    """A PNG file; its path is relative to the document."""

    path: str
    caption: str


@dataclass(frozen=True)
class Comment:
    """For programs: readers do not see it."""

    text: str


Block = Heading | Subject | Paragraph | Code | Numbers | Contents | Claims | Sentences | Table | Image | Comment


@dataclass(frozen=True)
class Document:
    title: str
    blocks: tuple[Block, ...]
