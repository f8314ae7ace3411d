"""What was measured in Long-Range Arena beside what was published, as tables and a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import TYPE_CHECKING

from paper.harness.experiment import Table
from paper.harness.judging import ranks, spread
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
    """Records of each row and task, one a seed; and the published accuracies of the same tasks."""

    tasks: tuple[str, ...]
    records: Mapping[str, Mapping[str, list[Record]]]
    theirs: Scores

    @cached_property
    def ours(self) -> Scores:
        """Means over seeds, where there are any."""
        return {
            row: {task: mean(values) for task in self.tasks if (values := self.accuracies(row, task))}
            for row in self.records
        }

    def accuracies(self, row: str, task: str) -> list[float]:
        """A training that failed counts 0."""
        found = [record.metrics for record in self.records[row][task]]
        return [0.0 if "failed" in metrics else metrics["accuracy"] for metrics in found]

    def failures(self, row: str, task: str) -> int:
        return sum("failed" in record.metrics for record in self.records[row][task])

    def most_frequent_class(self, task: str) -> float | None:
        return next((value for row in self.records for value in self._all(row, task, "most_frequent_class")), None)

    def _all(self, row: str, task: str, metric: str) -> list[float]:
        return [record.metrics[metric] for record in self.records[row][task] if metric in record.metrics]

    def averages(self, scores: Scores) -> dict[str, float]:
        """Of the rows that have all the tasks."""
        wanted = set(self.tasks)
        return {row: mean(own[task] for task in self.tasks) for row, own in scores.items() if wanted <= set(own)}

    def ranks(self, scores: Scores, task: str) -> dict[str, int]:
        """1 for the best of the paper's rows."""
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
        return {task: found[0] for task in self.tasks if (found := self._all(row, task, "learning_rate"))}

    def parameters(self, row: str) -> list[float]:
        """From the fewest to the most: tasks differ in their inputs and classes."""
        return sorted({size for task in self.tasks for size in self._all(row, task, "parameters")})


def accuracy_table(found: Findings) -> Table:
    head = [word for task in found.tasks for word in (f"{TITLES[task]}, published", "ours")]
    lines = [("method", *head, "average, published", "ours")]
    their_averages, our_averages = found.averages(found.theirs), found.averages(found.ours)
    for row in found.order:
        cells = [row]
        for task in found.tasks:
            failed = found.failures(row, task)
            cells.append(_number(found.theirs.get(row, {}).get(task)))
            cells.append(spread(found.accuracies(row, task), 1) + (f" ({failed} diverged)" if failed else ""))
        lines.append((*cells, _number(their_averages.get(row)), _number(our_averages.get(row), 1)))
    frequent = [cell for task in found.tasks for cell in ("", _number(found.most_frequent_class(task), 1))]
    lines.append(("(most frequent class)", *frequent, "", ""))
    return Table("Accuracy on the test set in percent, higher is better", tuple(lines))


def rank_table(found: Findings) -> Table:
    """With sizes and learning rates."""
    pairs = [(found.ranks(found.theirs, task), found.ranks(found.ours, task)) for task in found.tasks]
    pairs.append((found.average_ranks(found.theirs), found.average_ranks(found.ours)))
    names = [*(TITLES[task] for task in found.tasks), "average"]
    head = [word for name in names for word in (f"{name}, published", "ours")]
    lines = [("method", *head, "parameters", "learning rates")]
    for row in found.order:
        cells = [str(column.get(row, "")) for pair in pairs for column in pair]
        sizes = found.parameters(row)
        size = " to ".join(f"{value:,}" for value in dict.fromkeys((sizes[0], sizes[-1]))) if sizes else ""
        lines.append((row, *cells, size, ", ".join(f"{rate:g}" for rate in found.rates(row).values())))
    return Table("Ranks among the paper's methods, sizes, and the learning rate of each task in turn", tuple(lines))


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def draw_arena(found: Findings) -> "Figure":
    """A panel a task, and one of the averages: ours filled, theirs open; a line where no one learns anything."""
    order = list(reversed(found.order))
    figure = new_figure(height=1.3 + 0.26 * len(order))
    their_averages, our_averages = found.averages(found.theirs), found.averages(found.ours)
    panels = figure.subplots(1, len(found.tasks) + 1, sharey=True)
    for axes, task in zip(panels, (*found.tasks, None), strict=True):
        for place, row in enumerate(order):
            theirs = their_averages.get(row) if task is None else found.theirs.get(row, {}).get(task)
            averages = [our_averages[row]] if row in our_averages else []
            ours = averages if task is None else found.accuracies(row, task)
            if theirs is not None:
                axes.plot(theirs, place, "o", color=COLORS[5], markerfacecolor="none", markersize=5)
            axes.plot(ours, [place] * len(ours), "o", color=COLORS[1 if row == "tnn" else 0], markersize=5)
        if task is not None and (frequent := found.most_frequent_class(task)) is not None:
            axes.axvline(frequent, color=COLORS[5], linewidth=0.8, linestyle=":")
        axes.set_yticks(range(len(order)), order)
        tidy(axes, "average" if task is None else TITLES[task])
    meaning = "accuracy in percent; filled: ours, open: published, dotted: the most frequent class"
    figure.supxlabel(meaning, fontsize=8, color=INK)
    return figure
