"""The picture and the table of kernels.md: python docs/draw_kernels.py [MODEL ...] --out docs/kernels.png

Kernels of position encoders of ReLUs and of sines, as they start, and of the layers of trained models, if their folders
are given: some of them, how many dimensions they span, and what a number of dimensions leaves out.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from tnn.cli.common import load_causal
from tnn.layers import ToeplitzOperator, layer_ranks
from tnn.layers.rank import TOLERANCES, named_operators
from tnn.training.figures import COLORS, INK, TINY, new_figure, save_figure, tidy
from tnn.training.ranks import rank_table

CHANNELS, SIZES = 256, {"rpe_size": 32, "rpe_num_layers": 3}  # those of the preset mini-alm
ENCODERS = {"ReLU": {}, "ReLU, one norm": {"rpe_norm": "last_layer"}, "sine": {"rpe_activation": "sin"}}
DRAWN = ("ReLU", "sine")
DECAYS = (0.9, 0.97, 0.99)
LENGTH, DRAWN_LAGS, DRAWN_KERNELS = 512, 100, 3
STARTS = (0, 16, 64)
LEAST = 1e-4  # share of the norm that is drawn


class Kernels(NamedTuple):
    name: str
    matrix: Tensor  # (lags, channels), causal


def encoder(name: str, decay: float) -> ToeplitzOperator:
    torch.manual_seed(0)
    return ToeplitzOperator(CHANNELS, causal=True, decay=decay, **SIZES, **ENCODERS[name])


def table() -> str:
    """The ranks of all encoders at their start, in Markdown."""
    lines = ["| encoder | decay | all lags | from lag 16 | from lag 64 |", "|---|---|---|---|---|"]
    for name in ENCODERS:
        for decay in DECAYS:
            (ranks,) = layer_ranks(encoder(name, decay), LENGTH)
            cells = ("/".join(map(str, numbers)) for numbers in ranks[3:])
            lines.append(f"| {name} | {decay} | {' | '.join(cells)} |")
    return "\n".join(lines)


def at_start(name: str, decay: float = 0.99) -> Kernels:
    return Kernels(f"{name}, decay {decay}, at the start", encoder(name, decay).kernel(LENGTH).detach())


def kernels_of(model: Any, name: str, layer: int) -> Kernels:
    """The kernels of one layer of a causal model."""
    operators = dict(named_operators(model))
    if f"layer {layer}" not in operators:
        raise SystemExit(f"{name} has no kernel in layer {layer}; its layers: {'; '.join(operators)}")
    return Kernels(f"{name}, layer {layer}", operators[f"layer {layer}"].kernel(LENGTH).detach())


def draw(several: list[Kernels]) -> Figure:
    """One panel of kernels for each, two in a row; below them, for each start, what r dimensions leave out."""
    rows = (len(several) + 1) // 2
    figure = new_figure(height=2 * rows + 2.7)
    above, below = figure.subfigures(2, 1, height_ratios=(2 * rows, 2.7))
    panels = above.subplots(rows, 2, sharey=True, squeeze=False).flat
    for axes, kernels, color in zip(panels, several, COLORS, strict=False):
        _draw_kernels(axes, kernels, color)
    for axes in panels[len(several) :]:
        axes.set_visible(False)
    starts = below.subplots(1, len(STARTS), sharex=True, sharey=True)
    for axes, start in zip(starts, STARTS, strict=True):
        _draw_rest(axes, several, start)
    lines = starts[0].lines[: len(several)]
    names = [kernels.name for kernels in several]
    place = {"loc": "outside upper center", "ncols": 2, "frameon": False}
    below.legend(lines, names, fontsize=8, labelcolor=INK, **place)
    return figure


def _draw_kernels(axes: Axes, kernels: Kernels, color: str) -> None:
    channels = kernels.matrix.shape[1]
    drawn = kernels.matrix[:DRAWN_LAGS, :: max(1, channels // DRAWN_KERNELS)][:, :DRAWN_KERNELS]
    for t, alpha in zip(
        (drawn / drawn.abs().amax(0).clamp_min(TINY)).T, np.linspace(1, 0.3, DRAWN_KERNELS), strict=False
    ):
        axes.plot(t, color=color, linewidth=1.2, alpha=alpha)
    shown = f"{drawn.shape[1]} of {channels} kernels"
    tidy(axes, f"{kernels.name}: {shown}", x="lag", y="t / max |t|")


def _draw_rest(axes: Axes, several: list[Kernels], start: int) -> None:
    for kernels, color in zip(several, COLORS, strict=False):
        axes.plot(left_out(kernels.matrix[start:]), color=color, linewidth=1.4, marker="o", markersize=2.5)
    for tolerance in TOLERANCES:
        axes.axhline(tolerance, color=INK, linewidth=0.7, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(LEAST, 1.5)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    title = f"from lag {start} on" if start else "all lags"
    tidy(axes, title, x="dimensions r", y="" if start else "share of the norm left out")


def left_out(matrix: Tensor) -> np.ndarray:
    """The norm of all singular values but the first r over that of all, for r = 0, 1, ... until it is not drawn."""
    squares = torch.linalg.svdvals(matrix.double()).square().numpy()
    rest = np.sqrt(np.append(squares[::-1].cumsum()[::-1], 0) / max(squares.sum(), TINY))
    return rest[: (rest > LEAST).sum() + 1]  # one below, for the line


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="folder of a causal language model")
    parser.add_argument("--layer", type=int, default=1, help="the layer of the models that is drawn (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("kernels.png"), help="the image file (default: kernels.png)")
    options = parser.parse_args(arguments)
    if len(options.models) > (most := len(COLORS) - len(DRAWN)):
        parser.error(f"there are colours for {most} models; got {len(options.models)}")
    print(table())
    drawn = [at_start(name) for name in DRAWN]
    for folder in options.models:
        model = load_causal(folder)
        print(f"\n{folder.name}\n{rank_table(model)}")
        drawn.append(kernels_of(model, folder.name, options.layer))
    save_figure(draw(drawn), options.out)


if __name__ == "__main__":
    main()
