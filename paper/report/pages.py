"""The report of the reproduction as a page: one HTML file that needs nothing else."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from paper.harness.experiment import Claim, Table, Verdict
from paper.harness.records import Records
from paper.harness.trial import Options
from paper.report.discrepancies import DISCREPANCIES
from paper.report.readme import readme
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
    gather,
    time,
)
from paper.running import write_outcome
from tnn.training.html import document, headlines, picture, table
from tnn.training.runs import write_text

COLORS: dict[Verdict, str] = {"holds": "good", "holds in part": "fair", "does not hold": "bad", "not measured": "none"}


def write_report(options: Options, out: Path, log: Callable[[str], None] = print) -> Path:
    """Make `out`/README.md and `out`/report.html of the records in `out`. -> the path of the page.

    >>> from pathlib import Path
    >>> from paper.report.pages import write_report
    >>> from paper.harness.trial import Options
    >>> write_report(Options(), Path("results"))  # doctest: +SKIP
    PosixPath('results/report.html')
    """
    folder = out / options.scale
    folder.mkdir(parents=True, exist_ok=True)
    found = gather(options, Records(folder))
    pictures = {}
    for section in (section for section in found.sections if section.is_measured):
        name = section.experiment.name
        write_outcome(section.experiment, section.outcome, options, folder)
        if section.outcome.figure is not None:
            pictures[name] = (folder / f"{name}.png").read_bytes()
    write_text(out / "README.md", readme(found))
    write_text(out / "report.html", page(found, pictures))
    log(f"{found.extent()} {out / 'report.html'} and {out / 'README.md'} show them")
    return out / "report.html"


def page(found: Summary, pictures: Mapping[str, bytes]) -> str:
    """The whole page; `pictures` are PNG, by the names of experiments."""
    parts = [_opening(found), _contents(found), _claims(found)]
    parts += [_section(section, pictures.get(section.experiment.name)) for section in found.sections]
    return document(TITLE, "\n".join([*parts, _discrepancies(), _costs(found)]))


def _opening(found: Summary) -> str:
    numbers = {f"{VERDICTS[verdict]} {TALLY[verdict]}": str(count) for verdict, count in found.tally().items()}
    numbers |= {"trials measured": f"{len(found.records):,}", "of computing": time(found.records)}
    return f"""<p>{escape(ABOUT)} {escape(SCALES[found.scale])}</p>
<p class="facts">{escape(found.extent())}</p>
{headlines(numbers)}"""


def _contents(found: Summary) -> str:
    names = [section.experiment.name for section in found.sections]
    links = {"claims": "Claims", **{name: name for name in names}}
    links |= {"discrepancies": "Discrepancies", "cost": "Cost"}
    entries = [f'<li><a href="#{escape(place)}">{escape(text)}</a></li>' for place, text in links.items()]
    return '<nav aria-label="Contents"><ul>\n' + "\n".join(entries) + "\n</ul></nav>"


def _claims(found: Summary) -> str:
    parts = [f'<h2 id="claims">The paper\'s claims</h2>\n<p>{escape(IN_PART)}</p>']
    for section in found.sections:
        name, about = escape(section.experiment.name), escape(section.experiment.about.removesuffix("."))
        parts.append(f'<h3><a href="#{name}">{about}</a></h3>')
        parts.append(_claim_list(section, evidence=True) or f'<p class="facts">{escape(section.silence)}</p>')
    return "\n".join(parts)


def _claim_list(section: Section, evidence: bool) -> str:
    entries = [f"<li>{_claim(claim, evidence)}</li>" for claim in section.outcome.claims]
    return '<ul class="claims">\n' + "\n".join(entries) + "\n</ul>" if entries else ""


def _claim(claim: Claim, evidence: bool) -> str:
    badge = f'<span class="verdict {COLORS[claim.verdict]}">{VERDICTS[claim.verdict]} {claim.verdict}</span>'
    facts = [claim.evidence, f"Checked: {claim.checked}" if claim.checked else ""] if evidence else []
    below = "".join(f'<p class="facts">{escape(fact)}</p>' for fact in facts if fact)
    return f"{badge}<div><p>{escape(claim.text)}</p>{below}</div>"


def _section(section: Section, png: bytes | None) -> str:
    name, about, outcome = section.experiment.name, section.experiment.about, section.outcome
    parts = [f'<h2 id="{escape(name)}">{escape(about.removesuffix("."))}</h2>', f"<pre>{escape(section.command)}</pre>"]
    if not section.is_measured:
        return "\n".join([*parts, f"<p>{escape(NOTHING)}</p>"])
    parts += [f'<p class="facts">{" · ".join(map(escape, facts))}</p>'] if (facts := section.facts()) else []
    parts.append(_claim_list(section, evidence=False))
    parts += map(_titled, outcome.tables)
    parts += [picture(png, about.removesuffix("."), wide=True)] if png else []
    return "\n".join([*parts, *(f"<p>{escape(note)}</p>" for note in outcome.notes)])


def _discrepancies() -> str:
    head = ("where", "the paper prints", "code or counts show", "here")
    return f"""<h2 id="discrepancies">Where paper and code disagree</h2>
<p>{len(DISCREPANCIES)} places in which the paper contradicts itself or the code that its authors released.</p>
{table(head, DISCREPANCIES, "texts")}"""


def _costs(found: Summary) -> str:
    estimates = "\n".join(map(_titled, found.estimates))
    return f"""<h2 id="cost">What it costs</h2>
{_titled(found.spent)}
<p>Time is of the experiment's own trials, one after the other.</p>
<h2>At paper scale</h2>
<pre>{PAPER}</pre>
<p>{escape(COST)}</p>
{estimates}"""


def _titled(found: Table) -> str:
    head, *rows = found.rows
    return f"<h3>{escape(found.title)}</h3>\n{table(head, rows, 'named', marked='tnn')}"
