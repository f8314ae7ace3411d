"""The figure of a forecast: the last values of each series, the median after them, and the interval around it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tnn.training.figures import COLORS, INK, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 6  # series and targets that are drawn
HEIGHT = 2.0  # inches of a panel


def draw_forecasts(rows: Sequence[Any]) -> "Figure":
    """One panel for each series and target, the first ones if there are many, of the rows of a forecast."""
    panels: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        panels.setdefault((row.get("series", ""), row["target"]), []).append(row)
    drawn = list(panels.items())[:PANELS]
    figure = new_figure(height=0.3 + HEIGHT * len(drawn))
    for axes, ((series, target), forecast) in zip(
        figure.subplots(len(drawn), 1, squeeze=False)[:, 0], drawn, strict=True
    ):
        _draw(axes, forecast)
        tidy(axes, f"{series}: {target}" if series else target)
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="center left", bbox_to_anchor=(1.01, 0.5))
    axes.set_xlabel("steps after the last value", fontsize=8, color=INK)
    return figure


def _draw(axes: "Axes", forecast: Sequence[Any]) -> None:
    past = forecast[0].past
    steps = [row["step"] for row in forecast]
    levels = list(forecast[0]["quantiles"])
    axes.plot(np.arange(1 - len(past), 1), past, color=INK, linewidth=1, label="values")
    for low, high in zip(levels, reversed(levels), strict=True):
        if float(low) < float(high):
            lower, upper = ([row["quantiles"][level] for row in forecast] for level in (low, high))
            share = f"{float(high) - float(low):.0%} interval"
            axes.fill_between(steps, lower, upper, color=COLORS[0], alpha=0.2, linewidth=0, label=share)
    axes.plot(steps, [row["median"] for row in forecast], color=COLORS[0], linewidth=1.6, label="median")
