"""Lines against the length, in panels side by side. Both axes are logarithmic, so a slope is an exponent."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tnn.training.figures import COLORS, FAINT, INK, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """Values of each row by length, from the shortest on; a row may end before the last length."""

    title: str
    label: str
    values: Mapping[str, Sequence[float]]


def draw_panels(panels: Sequence[Panel], lengths: Sequence[int], faint: Sequence[str] = ()) -> "Figure":
    """A row has the same colour in all panels; TNN's line is the strongest, `faint` rows share one colour.

    >>> from paper.efficiency.panels import Panel, draw_panels
    >>> panel = Panel("ours", "milliseconds", {"tnn": [1.0, 2.1], "attention": [1.0]})
    >>> len(draw_panels([panel], [512, 1024]).axes)
    1
    """
    figure = new_figure(height=3.8)
    named = list(dict.fromkeys(row for panel in panels for row in panel.values if row not in faint))
    handles: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for row, values in panel.values.items():
            (handle,) = axes.plot(lengths[: len(values)], values, marker="o", markersize=3, **_style(row, named))
            if row in named:
                handles[row] = handle
        _scale(axes, lengths)
        tidy(axes, panel.title, x="length", y=panel.label)
    figure.legend(
        list(handles.values()), list(handles), loc="outside right upper", frameon=False, fontsize=7, labelcolor=INK
    )
    return figure


def _style(row: str, named: list[str]) -> dict[str, Any]:
    if row == "tnn":
        return {"color": INK, "linewidth": 2.4, "zorder": 3}
    if row not in named:
        return {"color": FAINT, "linewidth": 0.8, "zorder": 1}
    number = named.index(row)
    return {"color": COLORS[number % len(COLORS)], "linewidth": 1.2, "linestyle": "-" if number < len(COLORS) else "--"}


def _scale(axes: "Axes", lengths: Sequence[int]) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths], rotation=45)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
