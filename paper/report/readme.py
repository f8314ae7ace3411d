"""The report of the reproduction in Markdown, for those who read the folder of results in a browser of code."""

from paper.harness.experiment import Claim, Table
from paper.report.discrepancies import DISCREPANCIES, Discrepancy
from paper.report.summary import (
    ABOUT,
    COST,
    IN_PART,
    NOTHING,
    PAPER,
    SCALES,
    TALLY,
    TITLE,
    VERDICTS,
    Section,
    Summary,
)


def readme(found: Summary) -> str:
    """The whole text; figures are beside the records."""
    counts = ", ".join(f"{TALLY[verdict]}: {count}" for verdict, count in found.tally().items())
    parts = [f"# {TITLE}", f"{ABOUT} {SCALES[found.scale]}", found.extent()]
    parts += ["## The paper's claims", f"{counts.capitalize()}. {IN_PART}"]
    for section in found.sections:
        parts += [f"**{section.experiment.name}**", "\n".join(map(_claim, section.outcome.claims)) or section.silence]
    for section in found.sections:
        parts += _section(section)
    parts += ["## Where paper and code disagree", "\n".join(map(_discrepancy, DISCREPANCIES))]
    parts += ["## What it costs", *_titled(found.spent), "## At paper scale", f"```\n{PAPER}\n```", COST]
    for table in found.estimates:
        parts += _titled(table)
    return "\n\n".join(parts) + "\n"


def _claim(claim: Claim) -> str:
    return f"- {VERDICTS[claim.verdict]} {claim.to_markdown()}"


def _section(section: Section) -> list[str]:
    name, about = section.experiment.name, section.experiment.about
    parts = [f"## {name}", about, f"```\n{section.command}\n```"]
    if not section.is_measured:
        return [*parts, NOTHING]
    parts += ["; ".join(facts) + "."] if (facts := section.facts()) else []
    for table in section.outcome.tables:
        parts += _titled(table)
    parts += [f"![{about}]({section.options.scale}/{name}.png)"] if section.outcome.figure is not None else []
    return [*parts, *section.outcome.notes]


def _titled(table: Table) -> list[str]:
    return [f"### {table.title}", table.to_markdown()]


def _discrepancy(found: Discrepancy) -> str:
    return f"- **{found.where}.** Paper: {found.printed}. Code or counts: {found.found}. Here: {found.here}."
