"""Four times the updates for TNN and S4: how much of their tables is due to short trainings."""

from functools import partial
from typing import TYPE_CHECKING

from paper import published
from paper.harness.experiment import Experiment, Outcome, Table
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.lra.findings import TITLES
from paper.lra.setups import MINI
from paper.lra.trials import longer_trial, lra_trials
from tnn.training.figures import COLORS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = ("s4", "tnn")
TASKS = ("text", "pathfinder")  # where they differ most
TIMES = 4  # as many updates as in lra-large

Numbers = dict[tuple[str, str], tuple[float | None, float | None]]  # by row and task: with fewer updates, with more


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # its trainings are not short
        return []
    trials: list[Trial] = []
    for row in options.methods or ROWS:
        for task in TASKS:
            searches, finals = lra_trials(row, task, options, large=True)
            trials += [*searches, finals[0], longer_trial(row, task, TIMES, options)]
    return trials


def _conclude(options: Options, records: Records) -> Outcome:
    rows = options.methods or ROWS
    accuracies = _accuracies(rows, options, records)
    head = ["method"]
    for task in TASKS:
        head += [f"{TITLES[task]}, published", *(f"{count:,} updates" for count in _updates(task, options))]
    lines = [tuple(head)]
    for row in rows:
        cells = [row]
        for task in TASKS:
            theirs = published.LRA_LARGE[row][published.LRA_LARGE_TASKS.index(task)]
            cells += [_cell(number) for number in (theirs, *accuracies[row, task])]
        lines.append(tuple(cells))
    notes = ("Not in the paper. Seed 0, at the best learning rates of the shorter trainings.",)
    table = Table("Accuracy of the large models in percent, higher is better", tuple(lines))
    measured = any(number is not None for pair in accuracies.values() for number in pair)
    return Outcome((table,), partial(_draw, accuracies, options) if measured else None, (), notes)


def about_longer(options: Options, records: Records) -> str:
    """A sentence; empty unless all of it has been measured."""
    if options.scale == "paper":
        return ""
    accuracies = _accuracies(ROWS, options, records)
    if any(number is None for pair in accuracies.values() for number in pair):
        return ""
    numbers = [f"{row} {more:.1f} on {TITLES[task]} ({fewer:.1f})" for (row, task), (fewer, more) in accuracies.items()]
    return f"with {TIMES} times the updates of lra-large (in brackets: with as many): {', '.join(numbers)}."


def _updates(task: str, options: Options) -> tuple[int, int]:
    fewer = options.steps or MINI[task].steps
    return fewer, TIMES * fewer


def _accuracies(rows: tuple[str, ...], options: Options, records: Records) -> Numbers:
    def accuracy(trial: Trial) -> float | None:
        return None if (record := records.find(trial)) is None else record.metrics.get("accuracy", 0.0)

    accuracies: Numbers = {}
    for task in TASKS:
        for row in rows:
            _, finals = lra_trials(row, task, options, large=True)
            accuracies[row, task] = accuracy(finals[0]), accuracy(longer_trial(row, task, TIMES, options))
    return accuracies


def _cell(number: float | None) -> str:
    return "" if number is None else f"{number:.1f}"


def _draw(accuracies: Numbers, options: Options) -> "Figure":
    figure = new_figure(height=3)
    for axes, task in zip(figure.subplots(1, len(TASKS)), TASKS, strict=True):
        updates = _updates(task, options)
        for color, row in zip(COLORS, ROWS, strict=False):
            known = [(x, y) for x, y in zip(updates, accuracies.get((row, task), ()), strict=False) if y is not None]
            axes.plot([x for x, _ in known], [y for _, y in known], "o-", color=color, label=row)
        axes.set_xscale("log")
        axes.set_xticks(list(updates), [f"{count:,}" for count in updates])
        axes.minorticks_off()
        tidy(axes, TITLES[task], x="updates", y="accuracy, %")
    return figure


LRA_LONGER_EXPERIMENT = Experiment(
    "lra-longer", "Long-Range Arena: the larger TNN and S4 with four times the updates.", ROWS, _plan, _conclude
)
