"""All experiments together: what their records say, and what it took. Two pages show it: page.py and readme.py."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paper.catalogue import EXPERIMENTS
from paper.harness.experiment import Experiment, Outcome, Table, Verdict
from paper.harness.records import Record, Records
from paper.harness.trial import Options, Scale, Trial
from paper.report.cost import FLOPS, PEAK, SHARE, Cost, Estimates, load_estimates
from paper.running import command
from tnn.training.report import duration

TITLE = "The paper, measured again"
ABOUT = (
    "Qin et al., Toeplitz Neural Network for Sequence Modeling (ICLR 2023): its tables and figures, one command each, "
    "and its claims, judged by what came out."
)
SCALES: dict[Scale, str] = {
    "mini": "At mini scale a model has up to two million parameters and trains for minutes on a CPU. All methods of "
    "a table have as many parameters as TNN, within 5%, and get the same data, tokens, updates and search for a "
    "learning rate; where a table departs from that, it says so. The numbers are not the paper's and cannot be: what "
    "can be compared is the order of the methods, and whether a claim holds.",
    "paper": "At paper scale models, data and updates are the published ones.",
}
VERDICTS: dict[Verdict, str] = {"holds": "✓", "holds in part": "≈", "does not hold": "✗", "not measured": "–"}
TALLY: dict[Verdict, str] = {
    "holds": "claims that hold",
    "holds in part": "that hold in part",
    "does not hold": "that do not hold",
    "not measured": "that are not measured",
}
IN_PART = (
    "A claim holds in part if it holds for some of the methods or tasks that it names, for the mean and not for every "
    "seed, or by a looser measure that its text has. That one is the best does not hold if another is as good. A claim "
    "is not measured if trials are missing that could change the verdict, or if no method learnt what it is about."
)
NOTHING = "Nothing of it has been measured yet."
PAPER = "python -m paper all --scale paper --data-dir DIR"
COST = (
    f"An estimate: {FLOPS} operations for a parameter and a token, on one A100 at "
    f"{SHARE:.0%} of its peak, which is {PEAK['fp32'] / 1e12:g} TFLOP/s in fp32, the paper's precision, and "
    f"{PEAK['TF32'] / 1e12:g} in TF32. The mixing of tokens is not counted, nor is fine-tuning; texts of Long-Range "
    "Arena are counted as if all had the greatest length. Small models reach a much smaller share of the peak: "
    "those of Long-Range Arena take far longer than this."
)
HOURS = ("operations", *(f"GPU-hours, {precision}" for precision in PEAK))


@dataclass(frozen=True)
class Section:
    """An experiment and what is known of it."""

    experiment: Experiment
    outcome: Outcome
    options: Options
    trials: tuple[Trial, ...]
    known: dict[str, Record]  # by the key of the trial

    @property
    def is_measured(self) -> bool:
        """Some of it, or there is nothing to measure."""
        return bool(self.known) or not self.trials

    @property
    def own(self) -> list[Record]:
        """Without those of trials that it shares with another experiment, which counts them."""
        return [record for record in self.known.values() if record.experiment == self.experiment.name]

    @property
    def command(self) -> str:
        return command(self.experiment.name, self.options)

    @property
    def silence(self) -> str:
        """What to say where there are no claims."""
        return "It judges no claim of the paper." if self.is_measured else NOTHING

    def facts(self) -> list[str]:
        """What was done, in a few words each."""
        shared = len(self.known) - len(self.own)
        facts = [f"{len(self.known)} of {len(self.trials)} trials measured"]
        facts += [f"{shared} of them in other experiments"] if shared else []
        facts += [time(self.own), memory(self.own)] if self.own else []
        return [*facts, *_searches(self.trials)] if self.trials else []


@dataclass(frozen=True)
class Summary:
    """All of them, and what they cost."""

    scale: Scale
    sections: tuple[Section, ...]
    spent: Table  # at this scale, by the records
    estimates: tuple[Table, ...]  # for the paper's

    @property
    def records(self) -> list[Record]:
        """Each once: experiments share them."""
        return list({key: record for section in self.sections for key, record in section.known.items()}.values())

    def tally(self) -> dict[Verdict, int]:
        """How many claims got each verdict."""
        found = Counter(claim.verdict for section in self.sections for claim in section.outcome.claims)
        return {verdict: found[verdict] for verdict in VERDICTS}

    def extent(self) -> str:
        """How much was run, on what, and how long it took, in a paragraph."""
        trials = {trial.key for section in self.sections for trial in section.trials}
        if not self.records:
            return f"Of {len(trials):,} trials none has been measured yet."
        machines = "; ".join(_distinct(_machine(record.machine) for record in self.records))
        names = list(dict.fromkeys(name for record in self.records for name in record.versions))
        versions = [
            f"{name} {' and '.join(_distinct(record.versions.get(name, '') for record in self.records))}"
            for name in names
        ]
        return (
            f"{len(self.records):,} of {len(trials):,} trials have been measured; they took {time(self.records)}, one "
            f"after the other. Machine: {machines}. Versions: {', '.join(versions)}."
        )


def gather(options: Options, records: Records) -> Summary:
    """Every experiment, whether it has been run or not.

    >>> from pathlib import Path
    >>> from paper.harness.records import Records
    >>> from paper.report.summary import gather
    >>> from paper.harness.trial import Options
    >>> gather(Options(), Records(Path("results/mini"))).sections[0].command  # doctest: +SKIP
    'python -m paper alm --scale mini'
    """
    sections = tuple(_section(experiment, options, records) for experiment in EXPERIMENTS.values())
    estimates = load_estimates()
    return Summary(options.scale, sections, _spent(sections), (_recipes(estimates), _experiments(estimates)))


def _section(experiment: Experiment, options: Options, records: Records) -> Section:
    trials = tuple({trial.key: trial for trial in experiment.plan(options)}.values())
    known = {trial.key: record for trial in trials if (record := records.find(trial)) is not None}
    return Section(experiment, experiment.conclude(options, records), options, trials, known)


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


def time(records: Iterable[Record]) -> str:
    """Of all of them, one after the other.

    >>> from paper.harness.records import Record
    >>> from paper.report.summary import time
    >>> time([Record("alm", "tnn", "", 0, {}, {}, 5400.0, None, {}, {})] * 3)
    '4.5 h'
    """
    seconds = sum(record.seconds for record in records)
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else duration(seconds)


def memory(records: Iterable[Record]) -> str:
    """Of the trial that took most."""
    peaks = [record.peak_memory_mb for record in records if record.peak_memory_mb is not None]
    return f"at most {max(peaks):,.0f} MB" if peaks else "memory unknown"


def _machine(machine: dict[str, Any]) -> str:
    device, cores, threads = (machine.get(key) for key in ("device", "cores", "threads"))
    threads = f"{threads} thread{'s' * (threads != 1)} a trial"
    return f"{cores} CPU cores, {threads}, native kernel {machine.get('kernel')}" if device == "cpu" else f"{device}"


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted({text for text in texts if text})


def _spent(sections: Iterable[Section]) -> Table:
    """What the experiments took, by their records."""
    rows: list[tuple[str, ...]] = [("experiment", "trials", "measured", "shared", "time", "memory")]
    for section in sections:
        own = section.own
        counts = (len(section.trials), len(section.known), len(section.known) - len(own))
        spent = (time(own), memory(own).removeprefix("at most ")) if own else ("", "")
        rows.append((section.experiment.name, *map(str, counts), *spent))
    return Table("Measured, at this scale", tuple(rows))


def _recipes(estimates: Estimates) -> Table:
    """What one training of each of the paper's recipes would cost."""
    rows: list[tuple[str, ...]] = [("recipe", "parameters", "updates", "tokens an update", *HOURS)]
    for name, cost in estimates.recipes.items():
        sizes = (f"{cost.parameters:,}", f"{cost.updates:,}", f"{cost.tokens:,}")
        rows.append((name, *sizes, *_hours([cost])))
    return Table("One training of TNN", tuple(rows))


def _experiments(estimates: Estimates) -> Table:
    """What all trainings of the experiments would cost."""
    costs = {name: list(counter.elements()) for name, counter in estimates.experiments.items()}
    costs["all"] = [cost for several in costs.values() for cost in several]
    rows = [(name, str(len(found)), *_hours(found)) for name, found in costs.items() if found]
    return Table("All trainings of the experiments", (("experiment", "trainings", *HOURS), *rows))


def _hours(costs: list[Cost]) -> list[str]:
    hours = [sum(cost.hours(precision) for cost in costs) for precision in PEAK]
    return [f"{sum(cost.operations for cost in costs):.1e}", *(f"{h:,.0f}" if h >= 10 else f"{h:.2g}" for h in hours)]
