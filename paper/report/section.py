"""One experiment and everything that is known of it: what its own page and its part of the report show."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from paper.harness.experiment import Experiment, Outcome
from paper.harness.formatting import format_time
from paper.harness.mixers import about_own_mixers
from paper.harness.records import Record, Records
from paper.harness.trial import Options, Trial
from paper.report.document import Block, Claims, Code, Comment, Document, Image, Paragraph
from paper.report.markdown import to_markdown
from tnn._files import write_text
from tnn.training.figures import save_figure

NOTHING = "Nothing has been measured yet."


@dataclass(frozen=True)
class Section:
    """An experiment, its trials, their records, and what follows from them."""

    experiment: Experiment
    outcome: Outcome
    options: Options
    trials: tuple[Trial, ...]
    known: dict[str, Record]  # by the key of the trial

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def title(self) -> str:
        return self.experiment.about.removesuffix(".")

    @property
    def is_measured(self) -> bool:
        """In part at least, or there is nothing to measure."""
        return bool(self.known) or not self.trials

    @property
    def own(self) -> list[Record]:
        """Without the records of trials that it shares with another experiment, which counts them."""
        return [record for record in self.known.values() if record.experiment == self.name]

    @property
    def silence(self) -> str:
        """What to print where there are no claims."""
        return "This experiment judges no claim of the paper." if self.is_measured else NOTHING

    def facts(self) -> list[str]:
        """What was done, in a few words each."""
        shared = len(self.known) - len(self.own)
        facts = [f"{len(self.known)} of {len(self.trials)} trials measured"]
        facts += [f"{shared} of them in other experiments"] if shared else []
        facts += [total_time(self.own), format_memory(self.own)] if self.own else []
        return [*facts, *_searches(self.trials)] if self.trials else []

    def blocks(self, image: str, *, evidence: bool) -> list[Block]:
        """Command, claims, tables, figure (at the path `image`) and notes."""
        blocks: list[Block] = [Code(self.options.command(self.name))]
        if not self.is_measured:
            return [*blocks, Paragraph(NOTHING)]
        outcome = self.outcome
        blocks += [Paragraph(" · ".join(facts), small=True)] if (facts := self.facts()) else []
        blocks += [Claims(outcome.claims, evidence)] if outcome.claims else []
        blocks += outcome.tables
        blocks += [Image(image, self.title)] if outcome.figure is not None else []
        return [*blocks, *map(Paragraph, (*outcome.notes, *about_own_mixers(self.options.methods)))]

    @property
    def fingerprint(self) -> str:
        """Of all that the figure shows: other measurements have another one."""
        records = [[r.experiment, r.row, r.part, r.seed, r.metrics] for r in self.known.values()]
        measured = sorted(json.dumps(record, sort_keys=True) for record in records)
        return sha256(json.dumps([self.options.methods, measured]).encode()).hexdigest()[:16]


def make_section(experiment: Experiment, options: Options, records: Records) -> Section:
    trials = tuple({trial.key: trial for trial in experiment.plan(options)}.values())  # each once
    known = {trial.key: record for trial in trials if (record := records.find(trial)) is not None}
    return Section(experiment, experiment.conclude(options, records), options, trials, known)


def write_section(section: Section, folder: Path, *, redraw: bool = True) -> None:
    """NAME.md and NAME.png, beside NAME.jsonl. Without `redraw` a figure stays that shows the same measurements."""
    folder.mkdir(parents=True, exist_ok=True)
    page, image = folder / f"{section.name}.md", folder / f"{section.name}.png"
    comment = Comment(f"The figure shows the measurements {section.fingerprint}.")
    blocks = [Paragraph(section.experiment.about), *section.blocks(image.name, evidence=True)]
    if section.outcome.figure is not None:
        known = page.read_text(encoding="utf-8") if page.is_file() and image.is_file() else ""
        if redraw or comment.text not in known:
            save_figure(section.outcome.figure(), image)
        blocks.append(comment)
    write_text(page, to_markdown(Document(section.name, tuple(blocks))))


def _searches(trials: Iterable[Trial]) -> list[str]:
    """The budget of each search for a learning rate."""
    texts = []
    for settings in (trial.settings for trial in trials):
        if "search" in settings:
            search = settings["search"]
            texts.append(f"learning rates {_list(search['rates'])} tried for {search['steps']:,} updates each")
        if rates := settings.get("recipe", {}).get("learning_rates"):
            texts.append(f"learning rates {_list(rates)} tried in fine-tuning")
    return list(dict.fromkeys(texts))


def _list(rates: Iterable[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def total_time(records: Iterable[Record]) -> str:
    """The time of all trials together, one after the other.

    >>> from paper.harness.records import Record
    >>> from paper.report.section import total_time
    >>> total_time([Record("alm", "tnn", "", 0, {}, {}, 5400.0, None, {}, {})] * 3)
    '4.5 h'
    """
    seconds = sum(record.seconds for record in records)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else format_time(seconds)


def format_memory(records: Iterable[Record]) -> str:
    """The memory of the trial that took most."""
    peaks = [record.peak_memory_mb for record in records if record.peak_memory_mb is not None]
    return f"at most {max(peaks):,.0f} MB" if peaks else "memory unknown"
