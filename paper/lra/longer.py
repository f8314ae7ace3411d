"""Four times the updates for TNN and S4: what of their tables comes of short trainings."""

from functools import partial
from typing import TYPE_CHECKING

from paper import published
from paper.harness.experiment import Experiment, Outcome, Table
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.lra.findings import TITLES
from paper.lra.setups import MINI
from paper.lra.trials import arena_trials, longer_trial
from tnn.training.figures import COLORS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = ("s4", "tnn")
TASKS = ("text", "pathfinder")  # where they are the furthest apart
TIMES = 4  # the updates of lra-large

Numbers = dict[tuple[str, str], tuple[float | None, float | None]]  # of row and task: after fewer updates, after more


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # whose trainings are not short
        return []
    trials: list[Trial] = []
    for row in options.methods or ROWS:
        for task in TASKS:
            searches, finals = arena_trials(row, task, options, large=True)
            trials += [*searches, finals[0], longer_trial(row, task, TIMES, options)]
    return trials


def _conclude(options: Options, records: Records) -> Outcome:
    rows = options.methods or ROWS
    found = _accuracies(rows, options, records)
    head = ["method"]
    for task in TASKS:
        head += [f"{TITLES[task]}, published", *(f"{count:,} updates" for count in _updates(task, options))]
    lines = [tuple(head)]
    for row in rows:
        cells = [row]
        for task in TASKS:
            theirs = published.LRA_LARGE[row][published.LRA_LARGE_TASKS.index(task)]
            cells += [_cell(number) for number in (theirs, *found[row, task])]
        lines.append(tuple(cells))
    notes = ("It is not in the paper. Seed 0, at the learning rates that were found for the shorter trainings.",)
    table = Table("Accuracy of the large models in percent, higher is better", tuple(lines))
    measured = any(number is not None for pair in found.values() for number in pair)
    return Outcome((table,), partial(_draw, found, options) if measured else None, (), notes)


def about_longer(options: Options, records: Records) -> str:
    """In a sentence; nothing unless all of it is known."""
    if options.scale == "paper":
        return ""
    found = _accuracies(ROWS, options, records)
    if any(number is None for pair in found.values() for number in pair):
        return ""
    numbers = [f"{row} {more:.1f} on {TITLES[task]} ({fewer:.1f})" for (row, task), (fewer, more) in found.items()]
    return f"with {TIMES} times the updates of lra-large (and with those): {', '.join(numbers)}."


def _updates(task: str, options: Options) -> tuple[int, int]:
    fewer = options.steps or MINI[task].steps
    return fewer, TIMES * fewer


def _accuracies(rows: tuple[str, ...], options: Options, records: Records) -> Numbers:
    def accuracy(trial: Trial) -> float | None:
        return None if (record := records.find(trial)) is None else record.metrics.get("accuracy", 0.0)

    found: Numbers = {}
    for task in TASKS:
        for row in rows:
            _, finals = arena_trials(row, task, options, large=True)
            found[row, task] = accuracy(finals[0]), accuracy(longer_trial(row, task, TIMES, options))
    return found


def _cell(number: float | None) -> str:
    return "" if number is None else f"{number:.1f}"


def _draw(found: Numbers, options: Options) -> "Figure":
    figure = new_figure(height=3)
    for axes, task in zip(figure.subplots(1, len(TASKS)), TASKS, strict=True):
        updates = _updates(task, options)
        for color, row in zip(COLORS, ROWS, strict=False):
            known = [(x, y) for x, y in zip(updates, found.get((row, task), ()), strict=False) if y is not None]
            axes.plot([x for x, _ in known], [y for _, y in known], "o-", color=color, label=row)
        axes.set_xscale("log")
        axes.set_xticks(list(updates), [f"{count:,}" for count in updates])
        axes.minorticks_off()
        tidy(axes, TITLES[task], x="updates", y="accuracy, %")
    return figure


ARENA_LONGER = Experiment(
    "lra-longer", "Long-Range Arena: the larger TNN and S4 with four times the updates.", ROWS, _plan, _conclude
)
