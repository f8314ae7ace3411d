"""Measured and published accuracies on Long-Range Arena, as tables and a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import TYPE_CHECKING

from paper.harness.experiment import Table
from paper.harness.formatting import format_mean_std
from paper.harness.judging import ranks
from paper.harness.records import Record
from tnn.training.figures import COLORS, INK, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "text": "Text",
    "listops": "ListOps",
    "retrieval": "Retrieval",
    "pathfinder": "Pathfinder",
    "pathx": "Path-X",
    "image": "Image",
}
Scores = dict[str, dict[str, float]]  # by row and task


@dataclass(frozen=True)
class Findings:
    """Records by row and task, one per seed; and the published accuracies on the same tasks."""

    tasks: tuple[str, ...]
    records: Mapping[str, Mapping[str, list[Record]]]
    theirs: Scores

    @cached_property
    def ours(self) -> Scores:
        """Means over the seeds that have been run."""
        return {
            row: {task: mean(values) for task in self.tasks if (values := self.accuracies(row, task))}
            for row in self.records
        }

    def accuracies(self, row: str, task: str) -> list[float]:
        """A training that failed counts 0."""
        several = [record.metrics for record in self.records[row][task]]
        return [0.0 if "failed" in metrics else metrics["accuracy"] for metrics in several]

    def failures(self, row: str, task: str) -> int:
        return sum("failed" in record.metrics for record in self.records[row][task])

    def most_frequent_class(self, task: str) -> float | None:
        return next((value for row in self.records for value in self._all(row, task, "most_frequent_class")), None)

    def _all(self, row: str, task: str, metric: str) -> list[float]:
        return [record.metrics[metric] for record in self.records[row][task] if metric in record.metrics]

    def averages(self, scores: Scores) -> dict[str, float]:
        """Of the rows that have all tasks."""
        wanted = set(self.tasks)
        return {row: mean(own[task] for task in self.tasks) for row, own in scores.items() if wanted <= set(own)}

    def ranks(self, scores: Scores, task: str) -> dict[str, int]:
        """Among the paper's rows; 1 is the best."""
        return ranks({row: own[task] for row, own in scores.items() if task in own and row in self.theirs}, high=True)

    def average_ranks(self, scores: Scores) -> dict[str, int]:
        return ranks({row: value for row, value in self.averages(scores).items() if row in self.theirs}, high=True)

    @property
    def order(self) -> list[str]:
        """The best average first, rows that have none last."""
        known = self.averages(self.ours)
        return sorted(self.records, key=lambda row: -known.get(row, -1.0))

    def rates(self, row: str) -> dict[str, float]:
        """The learning rate of each task."""
        return {task: rates[0] for task in self.tasks if (rates := self._all(row, task, "learning_rate"))}

    def parameters(self, row: str) -> list[float]:
        """In ascending order: tasks differ in their inputs and classes."""
        return sorted({size for task in self.tasks for size in self._all(row, task, "parameters")})


def accuracy_table(findings: Findings) -> Table:
    head = [word for task in findings.tasks for word in (f"{TITLES[task]}, published", "ours")]
    lines = [("method", *head, "average, published", "ours")]
    their_averages, our_averages = findings.averages(findings.theirs), findings.averages(findings.ours)
    for row in findings.order:
        cells = [row]
        for task in findings.tasks:
            failed = findings.failures(row, task)
            cells.append(_number(findings.theirs.get(row, {}).get(task)))
            cells.append(
                format_mean_std(findings.accuracies(row, task), 1) + (f" ({failed} diverged)" if failed else "")
            )
        lines.append((*cells, _number(their_averages.get(row)), _number(our_averages.get(row), 1)))
    frequent = [cell for task in findings.tasks for cell in ("", _number(findings.most_frequent_class(task), 1))]
    lines.append(("(most frequent class)", *frequent, "", ""))
    return Table("Accuracy on the test set in percent, higher is better", tuple(lines))


def rank_table(findings: Findings) -> Table:
    """Ranks, sizes and learning rates."""
    pairs = [(findings.ranks(findings.theirs, task), findings.ranks(findings.ours, task)) for task in findings.tasks]
    pairs.append((findings.average_ranks(findings.theirs), findings.average_ranks(findings.ours)))
    names = [*(TITLES[task] for task in findings.tasks), "average"]
    head = [word for name in names for word in (f"{name}, published", "ours")]
    lines = [("method", *head, "parameters", "learning rates")]
    for row in findings.order:
        cells = [str(column.get(row, "")) for pair in pairs for column in pair]
        sizes = findings.parameters(row)
        size = " to ".join(f"{value:,}" for value in dict.fromkeys((sizes[0], sizes[-1]))) if sizes else ""
        lines.append((row, *cells, size, ", ".join(f"{rate:g}" for rate in findings.rates(row).values())))
    return Table("Ranks among the paper's methods, sizes, and the learning rate of each task", tuple(lines))


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def draw_lra(findings: Findings) -> "Figure":
    """One panel per task and one for the averages; the dotted line is the accuracy of the most frequent class."""
    order = list(reversed(findings.order))
    figure = new_figure(height=1.3 + 0.26 * len(order))
    their_averages, our_averages = findings.averages(findings.theirs), findings.averages(findings.ours)
    panels = figure.subplots(1, len(findings.tasks) + 1, sharey=True)
    for axes, task in zip(panels, (*findings.tasks, None), strict=True):
        for y, row in enumerate(order):
            theirs = their_averages.get(row) if task is None else findings.theirs.get(row, {}).get(task)
            averages = [our_averages[row]] if row in our_averages else []
            ours = averages if task is None else findings.accuracies(row, task)
            if theirs is not None:
                axes.plot(theirs, y, "o", color=COLORS[5], markerfacecolor="none", markersize=5)
            axes.plot(ours, [y] * len(ours), "o", color=COLORS[1 if row == "tnn" else 0], markersize=5)
        if task is not None and (frequent := findings.most_frequent_class(task)) is not None:
            axes.axvline(frequent, color=COLORS[5], linewidth=0.8, linestyle=":")
        axes.set_yticks(range(len(order)), order)
        tidy(axes, "average" if task is None else TITLES[task])
    meaning = "accuracy in percent; filled: ours, open: published, dotted: the most frequent class"
    figure.supxlabel(meaning, fontsize=8, color=INK)
    return figure
