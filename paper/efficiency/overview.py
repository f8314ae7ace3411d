"""Overview: speed, accuracy and memory of the methods in one figure, from the experiments lra and speed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from statistics import mean
from typing import TYPE_CHECKING, Any

from paper import published
from paper.efficiency.growth import collect_growth
from paper.efficiency.speed import LENGTHS, SPEED_EXPERIMENT
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.judging import collect, means, ranks, verdict_of
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.lra.longer import about_longer
from paper.lra.lra import LRA_EXPERIMENT
from tnn.training.figures import COLORS, INK, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = tuple(row for row in LRA_EXPERIMENT.rows if row in SPEED_EXPERIMENT.rows)
LENGTH = 4096  # where speed is compared: that of Long-Range Arena's texts
MARGIN = 1.0  # percentage points that make a lead clear


@dataclass(frozen=True)
class Point:
    """A method that has been measured in both experiments."""

    accuracy: float  # the mean over tasks
    rate: float  # training steps per second; 0 if it did not reach the length
    megabytes: float


def _lra(options: Options) -> list[Trial]:
    return LRA_EXPERIMENT.plan(replace(options, methods=options.methods or ROWS))


def _speed(options: Options) -> list[Trial]:
    """Without --steps and --seeds, which are for trainings."""
    return SPEED_EXPERIMENT.plan(Options(options.scale, options.methods or ROWS))


def _plan(options: Options) -> list[Trial]:
    return [*_lra(options), *_speed(options)]


def _conclude(options: Options, records: Records) -> Outcome:
    accuracies = _accuracies(options, records)
    growths = collect_growth(_speed(options), records)
    cells = {row: cell for row, growth in growths.items() if (cell := growth.at(LENGTH)) is not None}
    points = {
        row: Point(accuracy, 1 / cells[row].seconds, cells[row].megabytes) if row in cells else Point(accuracy, 0, inf)
        for row, accuracy in accuracies.items()
        if row in growths
    }
    lines: list[tuple[str, ...]] = [
        ("method", "published accuracy", "steps per second", "ours, accuracy", "steps per second", "MB")
    ]
    for row in sorted(options.methods or ROWS, key=lambda row: -accuracies.get(row, 0.0)):
        ours = (f"{1 / cells[row].seconds:.2f}", f"{cells[row].megabytes:,.0f}") if row in cells else ("", "")
        lines.append((row, *map(_cell, _published(row)), _cell(accuracies.get(row)), *ours))
    notes = (
        f"Accuracy is the mean over {', '.join(_tasks(options))}, for the methods that have all of them."
        f"{_same_tasks(_tasks(options))}",
        f"Speed and memory are of a training step at {LENGTH:,} tokens, from the experiment speed. Its models differ "
        "from those of the accuracies, as in the paper. The paper shows memory only in its figure. "
        "The right half of that figure is the experiment extrapolation.",
    )
    table = Table(f"Accuracy on Long-Range Arena, and speed and memory at {LENGTH:,} tokens", tuple(lines))
    drawn = {row: point for row, point in points.items() if point.rate}
    figure = partial(_draw, drawn) if drawn else None
    return Outcome((table,), figure, _claims(points, about_longer(options, records)), notes)


def _tasks(options: Options) -> tuple[str, ...]:
    planned = {trial.part for trial in _lra(options)}
    return tuple(task for task in published.LRA_TASKS if task in planned)


def _accuracies(options: Options, records: Records) -> dict[str, float]:
    """The mean over the tasks, for each method that has all of them."""
    trials, tasks = _lra(options), _tasks(options)
    columns = [
        means(collect([trial for trial in trials if trial.part == task], records, "accuracy", diverged=0.0))
        for task in tasks
    ]
    rows = set.intersection(*(set(column) for column in columns))
    return {row: mean(column[row] for column in columns) for row in rows}


def _same_tasks(tasks: tuple[str, ...]) -> str:
    """The paper's best methods on the same tasks, if they are not all of its tasks."""
    if set(tasks) == set(published.LRA_TASKS):
        return ""
    columns = [published.LRA_TASKS.index(task) for task in tasks]
    theirs = {row: mean(numbers[i] or 0.0 for i in columns) for row, numbers in published.LRA.items()}
    first, second = sorted(theirs, key=lambda row: -theirs[row])[:2]
    best = f"{first} with {theirs[first]:.2f} and {second} with {theirs[second]:.2f}"
    return f" On these tasks, of its five, the paper's best are {best}."


def _published(row: str) -> tuple[float | None, float | None]:
    """Accuracy and steps per second; None if they are not in the tables."""
    rates = dict(zip(LENGTHS, published.SPEED.get(row, ()), strict=False))
    return published.LRA[row][-1], rates.get(LENGTH)


def _cell(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _claims(points: Mapping[str, Point], checked: str) -> tuple[Claim, ...]:
    """TNN compared with all other methods."""
    best = f"TNN beats the competitors in accuracy by a clear margin ({MARGIN:g} point or more; 4.1 in the paper)."
    fast = f"TNN is as fast as most of them: in the faster half at {LENGTH:,}."
    small = "TNN takes no more memory than most of them: in the smaller half."
    if set(points) != set(ROWS):
        missing = f"needs all {len(ROWS)} methods; {len(points)} have been measured in both experiments"
        return tuple(Claim(text, "not measured", missing) for text in (best, fast, small))
    others = {row: point for row, point in points.items() if row != "tnn"}
    tnn, second = points["tnn"], max(others, key=lambda row: others[row].accuracy)
    gap = tnn.accuracy - others[second].accuracy
    better = [row for row, point in others.items() if point.accuracy > tnn.accuracy and point.rate > tnn.rate]
    return (
        Claim(
            best,
            verdict_of([gap > 0, gap >= MARGIN]),
            f"TNN {tnn.accuracy:.2f}, {second} {others[second].accuracy:.2f}; "
            f"both more accurate and faster: {', '.join(better) or 'none'}",
            checked,
        ),
        _among(fast, {row: point.rate for row, point in points.items()}, "steps per second", high=True),
        _among(small, {row: point.megabytes for row, point in points.items()}, "MB", high=False),
    )


def _among(text: str, values: dict[str, float], unit: str, *, high: bool) -> Claim:
    places = ranks(values, high=high)
    best = min(places, key=lambda row: places[row])
    lead = "" if best == "tnn" else f"; {best} has {values[best]:.3g}"
    evidence = f"number {places['tnn']} of {len(places)} with {values['tnn']:.3g} {unit}{lead}"
    return Claim(text, verdict_of([2 * places["tnn"] <= len(places) + 1]), evidence)


def _draw(points: Mapping[str, Point]) -> "Figure":
    from matplotlib.ticker import LogLocator

    figure = new_figure(height=4.2)
    left, right = figure.subplots(1, 2)
    for number, row in enumerate(sorted(points, key=lambda row: points[row].accuracy)):
        point, (accuracy, rate) = points[row], _published(row)
        above = bool(number % 2)  # so that names of neighbours do not overlap
        if accuracy is not None and rate is not None:
            _bubble(left, row, rate, accuracy, area=60, above=above)
        _bubble(right, row, point.rate, point.accuracy, area=point.megabytes, above=above)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.margins(0.12)
    tidy(left, "published", x=f"steps per second at {LENGTH:,} tokens", y="mean accuracy on Long-Range Arena, %")
    tidy(right, "ours; areas are memory", x=f"steps per second at {LENGTH:,} tokens")
    return figure


def _bubble(axes: "Axes", row: str, rate: float, accuracy: float, area: float, above: bool) -> None:
    color = COLORS[1] if row == "tnn" else COLORS[0]
    axes.scatter([rate], [accuracy], s=[area], color=color, alpha=0.5, linewidths=0)
    style: dict[str, Any] = {"fontsize": 7, "color": INK, "ha": "center", "va": "center", "textcoords": "offset points"}
    axes.annotate(row, (rate, accuracy), xytext=(0, 8 if above else -8), **style)


OVERVIEW_EXPERIMENT = Experiment(
    "overview", "Speed, accuracy and memory of the methods in one figure.", ROWS, _plan, _conclude
)
