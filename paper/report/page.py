"""A document as a page: one HTML file that needs nothing else."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

from paper.harness.experiment import Claim, Table, Verdict
from paper.report.document import (
    SIGNS,
    Block,
    Claims,
    Code,
    Comment,
    Contents,
    Document,
    Heading,
    Image,
    Numbers,
    Paragraph,
    Sentences,
    Subject,
)
from tnn.training import html

COLORS: dict[Verdict, str] = {"holds": "good", "holds in part": "fair", "does not hold": "bad", "not measured": "none"}


def to_html(document: Document, folder: Path) -> str:
    """The complete page; images are read from `folder` and put into it.

    >>> from pathlib import Path
    >>> from paper.report.document import Document, Heading, Paragraph
    >>> from paper.report.page import to_html
    >>> to_html(Document("Results", (Heading("Speed", "speed"), Paragraph("1 < 2"))), Path())
    '<!doctype html>...<h2 id="speed">Speed</h2>\\n<p>1 &lt; 2</p>...'
    """
    return html.document(document.title, "\n".join(_render(block, folder) for block in document.blocks))


def _render(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, anchor):
            return f'<h2 id="{escape(anchor)}">{escape(text)}</h2>' if anchor else f"<h2>{escape(text)}</h2>"
        case Subject(text, anchor):
            return f'<h3><a href="#{escape(anchor)}">{escape(text)}</a></h3>'
        case Paragraph(text, small):
            return f'<p class="facts">{escape(text)}</p>' if small else f"<p>{escape(text)}</p>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case Numbers(values):
            return html.headlines(dict(values))
        case Contents(texts):
            return _contents(texts)
        case Claims(claims, evidence):
            entries = [f"<li>{_claim(claim, evidence)}</li>" for claim in claims]
            return '<ul class="claims">\n' + "\n".join(entries) + "\n</ul>"
        case Sentences(head, rows):
            return html.table(head, rows, "texts")
        case Table(title, (first, *rest)):
            return f"<h3>{escape(title)}</h3>\n{html.table(first, rest, 'named', marked='tnn')}"
        case Image(path, caption):
            return html.figure((folder / path).read_bytes(), caption, wide=True)
        case Comment(text):
            return f"<!-- {escape(text)} -->"
    raise TypeError(f"no such block: {block!r}")


def _contents(texts: Mapping[str, str]) -> str:
    entries = [f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>' for anchor, text in texts.items()]
    return '<nav aria-label="Contents"><ul>\n' + "\n".join(entries) + "\n</ul></nav>"


def _claim(claim: Claim, evidence: bool) -> str:
    badge = f'<span class="verdict {COLORS[claim.verdict]}">{SIGNS[claim.verdict]} {claim.verdict}</span>'
    facts = [claim.evidence, f"Checked: {claim.checked}" if claim.checked else ""] if evidence else []
    below = "".join(f'<p class="facts">{escape(fact)}</p>' for fact in facts if fact)
    return f"{badge}<div><p>{escape(claim.text)}</p>{below}</div>"
