"""All experiments together: what their records say, and what they cost."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paper.catalogue import EXPERIMENTS
from paper.harness.experiment import Table, Verdict
from paper.harness.records import Record, Records
from paper.harness.trial import Options, Scale
from paper.report.cost import PEAK, Cost, Estimates, load_estimates
from paper.report.document import SIGNS
from paper.report.section import Section, format_memory, make_section, total_time

HOURS = ("operations", *(f"GPU hours, {precision}" for precision in PEAK))


@dataclass(frozen=True)
class Summary:
    """All experiments, and their cost."""

    scale: Scale
    sections: tuple[Section, ...]
    spent: Table  # at this scale, by the records
    estimates: tuple[Table, ...]  # at paper scale

    @property
    def records(self) -> list[Record]:
        """Each once: experiments share them."""
        return list({key: record for section in self.sections for key, record in section.known.items()}.values())

    def tally(self) -> dict[Verdict, int]:
        """How many claims got each verdict."""
        counts = Counter(claim.verdict for section in self.sections for claim in section.outcome.claims)
        return {verdict: counts[verdict] for verdict in SIGNS}

    def progress(self) -> str:
        """How much was run, on which machines, and how long it took, in a paragraph."""
        trials = {trial.key for section in self.sections for trial in section.trials}
        if not self.records:
            return f"None of the {len(trials):,} trials has been measured yet."
        machines = "; ".join(_distinct(_machine(record.machine) for record in self.records))
        names = list(dict.fromkeys(name for record in self.records for name in record.versions))
        versions = [
            f"{name} {' and '.join(_distinct(record.versions.get(name, '') for record in self.records))}"
            for name in names
        ]
        return (
            f"{len(self.records):,} of {len(trials):,} trials have been measured; they took "
            f"{total_time(self.records)}, one after the other. Machine: {machines}. Versions: {', '.join(versions)}."
        )


def gather(options: Options, records: Records) -> Summary:
    """Every experiment, whether it has been run or not.

    >>> from pathlib import Path
    >>> from paper.harness.records import Records
    >>> from paper.report.summary import gather
    >>> from paper.harness.trial import Options
    >>> gather(Options(), Records(Path("results/mini"))).sections[0].name  # doctest: +SKIP
    'alm'
    """
    sections = tuple(make_section(experiment, options, records) for experiment in EXPERIMENTS.values())
    estimates = load_estimates()
    return Summary(options.scale, sections, _spent(sections), (_recipes(estimates), _experiments(estimates)))


def _machine(machine: dict[str, Any]) -> str:
    device, cores, threads = (machine.get(key) for key in ("device", "cores", "threads"))
    threads = f"{threads} thread{'s' * (threads != 1)} per trial"
    return f"{cores} CPU cores, {threads}, native kernel {machine.get('kernel')}" if device == "cpu" else f"{device}"


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted({text for text in texts if text})


def _spent(sections: Iterable[Section]) -> Table:
    """What the experiments took, by their records."""
    rows: list[tuple[str, ...]] = [("experiment", "trials", "measured", "shared", "time", "memory")]
    for section in sections:
        own = section.own
        counts = (len(section.trials), len(section.known), len(section.known) - len(own))
        spent = (total_time(own), format_memory(own).removeprefix("at most ")) if own else ("", "")
        rows.append((section.name, *map(str, counts), *spent))
    return Table("Measured at this scale", tuple(rows))


def _recipes(estimates: Estimates) -> Table:
    """What one training of each of the paper's recipes would cost."""
    rows: list[tuple[str, ...]] = [("recipe", "parameters", "updates", "tokens per update", *HOURS)]
    for name, cost in estimates.recipes.items():
        sizes = (f"{cost.parameters:,}", f"{cost.updates:,}", f"{cost.tokens:,}")
        rows.append((name, *sizes, *_hours([cost])))
    return Table("One training of TNN", tuple(rows))


def _experiments(estimates: Estimates) -> Table:
    """What all trainings of the experiments would cost."""
    costs = {name: list(counter.elements()) for name, counter in estimates.experiments.items()}
    costs["all"] = [cost for several in costs.values() for cost in several]
    rows = [(name, str(len(several)), *_hours(several)) for name, several in costs.items() if several]
    return Table("All trainings of the experiments", (("experiment", "trainings", *HOURS), *rows))


def _hours(costs: list[Cost]) -> list[str]:
    hours = [sum(cost.hours(precision) for cost in costs) for precision in PEAK]
    return [f"{sum(cost.operations for cost in costs):.1e}", *(f"{h:,.0f}" if h >= 10 else f"{h:.2g}" for h in hours)]
