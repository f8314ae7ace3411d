"""A document as Markdown."""

import re

from paper.harness.experiment import Claim, Table
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


def to_markdown(document: Document) -> str:
    """The complete text.

    >>> from paper.report.document import Code, Document, Heading, Paragraph
    >>> from paper.report.markdown import to_markdown
    >>> print(to_markdown(Document("Results", (Heading("Speed"), Paragraph("As printed by"), Code("python -m paper")))))
    # Results
    <BLANKLINE>
    ## Speed
    <BLANKLINE>
    As printed by
    <BLANKLINE>
    ```
    python -m paper
    ```
    <BLANKLINE>
    """
    targets = {block.anchor: _slug(block.text) for block in document.blocks if isinstance(block, Heading)}
    parts = [f"# {document.title}", *(_render(block, targets) for block in document.blocks)]
    return "\n\n".join(parts) + "\n"


def _render(block: Block, targets: dict[str, str]) -> str:
    match block:
        case Heading(text):
            return f"## {text}"
        case Subject(text, anchor):
            return f"**[{text}](#{targets[anchor]})**"
        case Paragraph(text):
            return text
        case Code(text):
            return f"```\n{text}\n```"
        case Numbers(values):
            return Table("", (tuple(values), tuple(values.values()))).to_markdown()
        case Contents(texts):
            return " · ".join(f"[{text}](#{targets[anchor]})" for anchor, text in texts.items())
        case Claims(claims, evidence):
            return "\n".join(_claim(claim, evidence) for claim in claims)
        case Sentences(head, rows):
            return "\n".join(_sentences(head, row) for row in rows)
        case Table(title):
            return f"### {title}\n\n{block.to_markdown()}"
        case Image(path, caption):
            return f"![{caption}]({path})"
        case Comment(text):
            return f"<!-- {text} -->"


def _slug(heading: str) -> str:
    """The anchor that readers of Markdown give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _claim(claim: Claim, evidence: bool) -> str:
    text = claim.to_markdown() if evidence else f"**{claim.verdict}**: {claim.text}"
    return f"- {SIGNS[claim.verdict]} {text}"


def _sentences(head: tuple[str, ...], row: tuple[str, ...]) -> str:
    about, *texts = row
    return f"- **{about}.** " + " ".join(
        f"{name.capitalize()}: {text}." for name, text in zip(head[1:], texts, strict=True)
    )
