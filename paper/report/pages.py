"""The report of all experiments: README.md, and report.html with the same content."""

from collections.abc import Callable
from pathlib import Path

from paper.catalogue import STUDIES
from paper.harness.experiment import Verdict
from paper.harness.records import Records
from paper.harness.trial import Options, Scale
from paper.report.cost import FLOPS, PEAK, SHARE
from paper.report.discrepancies import DISCREPANCIES
from paper.report.document import (
    SIGNS,
    Block,
    Claims,
    Code,
    Contents,
    Document,
    Heading,
    Numbers,
    Paragraph,
    Sentences,
    Subject,
)
from paper.report.markdown import to_markdown
from paper.report.page import to_html
from paper.report.section import make_section, total_time, write_section
from paper.report.summary import Summary, gather
from tnn._files import write_text

TITLE = "The paper, reproduced"
ABOUT = (
    "Qin et al., Toeplitz Neural Network for Sequence Modeling (ICLR 2023): its tables and figures, one command each, "
    "and its claims, judged by the numbers measured here."
)
SCALE_TEXTS: dict[Scale, str] = {
    "mini": "At mini scale a model has up to two million parameters and trains for minutes on a CPU. All methods of "
    "a table have as many parameters as TNN, within 5%, and get the same data, tokens, updates and learning rate "
    "search; exceptions are noted below the table. The numbers cannot equal the paper's. What can be compared is the "
    "order of the methods, and whether a claim holds.",
    "paper": "At paper scale models, data and updates are the published ones.",
}
TALLY: dict[Verdict, str] = {
    "holds": "claims hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
    "not measured": "not measured",
}
VERDICTS = (
    "A claim holds in part if it holds for some of the methods or tasks that it names, for the mean but not for every "
    "seed, or by the looser criterion that its text gives. A claim that a method is the best does not hold if another "
    "is as good. A claim is not measured if missing trials could change the verdict, or if no method learned the task."
)
COMMAND = "python -m paper all --scale paper --data-dir DIR"
COST = (
    f"An estimate: {FLOPS} operations per parameter and token, on one A100 at {SHARE:.0%} of its peak of "
    f"{PEAK['fp32'] / 1e12:g} TFLOP/s in fp32, the paper's precision, and {PEAK['TF32'] / 1e12:g} in TF32. Token "
    "mixing and fine-tuning are not counted; texts of Long-Range Arena are counted at their maximum length. Small "
    "models reach a much smaller share of the peak: those of Long-Range Arena take far longer than this."
)


def write_report(options: Options, out: Path, log: Callable[[str], None] = print) -> Path:
    """Write `out`/README.md and `out`/report.html from the records in `out`, and the pages of all tables.

    -> the path of the page.

    >>> from pathlib import Path
    >>> from paper.report.pages import write_report
    >>> from paper.harness.trial import Options
    >>> write_report(Options(), Path("results"))  # doctest: +SKIP
    PosixPath('results/report.html')
    """
    folder = out / options.scale
    folder.mkdir(parents=True, exist_ok=True)
    summary = gather(options, Records(folder))
    for section in summary.sections:
        if section.is_measured:
            write_section(section, folder, redraw=False)
    for study in STUDIES.values():  # not of the paper: they have pages of their own only
        section = make_section(study, options, Records(folder))
        if section.known:
            write_section(section, folder, redraw=False)
    report = make_report(summary)
    write_text(out / "README.md", to_markdown(report))
    write_text(out / "report.html", to_html(report, out))
    log(f"{summary.progress()} Written to {out / 'report.html'} and {out / 'README.md'}.")
    return out / "report.html"


def make_report(summary: Summary) -> Document:
    """Claims first, then each experiment, then discrepancies and costs."""
    blocks = [*_opening(summary), *_claims(summary)]
    for section in summary.sections:
        image = f"{summary.scale}/{section.name}.png"
        blocks += [Heading(section.title, section.name), *section.blocks(image, evidence=False)]
    return Document(TITLE, (*blocks, *_discrepancies(), *_costs(summary)))


def _opening(summary: Summary) -> list[Block]:
    numbers = {f"{SIGNS[verdict]} {TALLY[verdict]}": str(count) for verdict, count in summary.tally().items()}
    numbers |= {"trials measured": f"{len(summary.records):,}", "compute time": total_time(summary.records)}
    names = {section.name: section.name for section in summary.sections}
    return [
        Paragraph(f"{ABOUT} {SCALE_TEXTS[summary.scale]}"),
        Paragraph(summary.progress(), small=True),
        Numbers(numbers),
        Contents({"claims": "Claims", **names, "discrepancies": "Discrepancies", "cost": "Cost"}),
    ]


def _claims(summary: Summary) -> list[Block]:
    blocks: list[Block] = [Heading("The paper's claims", "claims"), Paragraph(VERDICTS)]
    for section in summary.sections:
        claims = section.outcome.claims
        blocks += [Subject(section.title, section.name)]
        blocks += [Claims(claims) if claims else Paragraph(section.silence, small=True)]
    return blocks


def _discrepancies() -> list[Block]:
    return [
        Heading("Where paper and code disagree", "discrepancies"),
        Paragraph(f"{len(DISCREPANCIES)} places where the paper contradicts itself or the code of its authors."),
        Sentences(("where", "the paper", "code or counts", "here"), DISCREPANCIES),
    ]


def _costs(summary: Summary) -> list[Block]:
    return [
        Heading("What it costs", "cost"),
        summary.spent,
        Paragraph("Times are sums over an experiment's own trials, one after the other."),
        Heading("At paper scale"),
        Code(COMMAND),
        Paragraph(COST),
        *summary.estimates,
    ]
