"""A training step of every method that the paper compares TNN with, at growing lengths: its time, its memory.

    python -m benchmarks.methods           writes results/methods.md and results/methods.png

The models are those of the paper's speed table, classifiers of characters with about 0.75 million parameters in their
blocks, all bidirectional. The paper steps 20 rows on a GPU; here it is one row on two cores. Each method runs in a
process of its own, from the shortest length to the longest, for as long as `--limit` allows.

    python -m benchmarks.methods --methods tnn,fnet --lengths 256,512 --limit 30
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks._timing import environment
from paper.efficiency.growth import Growth
from paper.efficiency.steps import TABLES, block_parameters, configuration, measure_steps
from tnn.mixers import METHODS

LENGTHS = [1024, 2048, 3072, 4096, 5120]
BATCH = 1
REPEATS = 3  # fewer if a step is slow
RESULTS = Path(__file__).parent.parent / "results"


class Row(NamedTuple):
    """What was measured of a method."""

    method: str
    layers: int
    width: int
    parameters: int  # of the blocks; tables of positions have one place
    growth: Growth


def measure(method: str, lengths: list[int], limit: float) -> Row:
    config = configuration(method, 1)
    growth = measure_steps(method, lengths, batch=BATCH, steps=REPEATS, limit=limit)
    return Row(method, config.num_hidden_layers, config.hidden_size, block_parameters(method), growth)


def table(rows: list[Row], lengths: list[int], *, memory: bool) -> str:
    head = ["method", "layers", "width", "parameters", *(f"{n:,}" for n in lengths)] + ([] if memory else ["exponent"])
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        growth = row.growth
        cells = [f"{mb:,.0f}" for mb in growth.megabytes] if memory else [f"{1e3 * s:,.0f}" for s in growth.seconds]
        line = [row.method, str(row.layers), str(row.width), f"{row.parameters:,}"]
        line += [*cells, *[f"({growth.ended})"] * (len(lengths) - len(cells))]
        if not memory:
            line.append("" if growth.exponent is None else f"**{growth.exponent:.2f}**")
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def report(rows: list[Row], lengths: list[int], arguments: str) -> str:
    return f"""# Training steps of the methods in comparison

`python -m benchmarks.methods{arguments}`, seed 0, {environment()}.
Classifiers of characters as in the paper's speed table, bidirectional, float32: forward, backward and AdamW of
{BATCH} row (the paper has 20, on a GPU), median of up to {REPEATS} steps. Parameters are those of the blocks; tables
with a place for every position ({", ".join(TABLES)}) come on top.
The paper's depths for tnn, transformer, transformer-ls, performer, cosformer, flash, nystromformer, reformer, fnet and
s4; the others are of about that size. In brackets: what a method ran out of.

## Milliseconds
The exponent is the slope of log time against log length: 1 is linear, 2 quadratic.

{table(rows, lengths, memory=False)}

## Peak memory, MB
Over what the process holds before the model is made.

{table(rows, lengths, memory=True)}

![time and memory against length](methods.png)
"""


def draw(rows: list[Row], lengths: list[int]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(13, 6.5), layout="constrained")
    colours = plt.get_cmap("tab20").colors
    for i, row in enumerate(rows):
        own = row.method == "tnn"
        style = {"color": "black", "linewidth": 2.5, "zorder": 3} if own else {"color": colours[i % 20]}
        style |= {"label": row.method, "marker": "os^vD"[i % 5], "markersize": 4, "linestyle": "-" if i < 20 else "--"}
        panels[0].plot(row.growth.lengths, [1e3 * seconds for seconds in row.growth.seconds], **style)
        panels[1].plot(row.growth.lengths, row.growth.megabytes, **style)
    for axes, label in zip(panels, ("milliseconds a step", "peak memory, MB"), strict=True):
        axes.set(xscale="log", yscale="log", xlabel="length", ylabel=label)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(RESULTS / "methods.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", help="names with commas between them; all of them if not given")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--limit", type=float, default=60, help="seconds that a method may take")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    lengths = sorted(int(n) for n in options.lengths.split(","))
    torch.set_num_threads(options.threads)
    methods = options.methods.split(",") if options.methods else ["tnn", *METHODS]
    if unknown := set(methods) - {"tnn", *METHODS}:
        parser.error(f"no method {', '.join(sorted(unknown))}; there are tnn, {', '.join(METHODS)}")
    rows = []
    for method in methods:
        rows.append(measure(method, lengths, options.limit))
        print(table(rows[-1:], lengths, memory=False).splitlines()[-1], flush=True)
    text = report(rows, lengths, "".join(f" {word}" for word in sys.argv[1:]))
    print(text)
    RESULTS.mkdir(exist_ok=True)
    draw(rows, lengths)
    (RESULTS / "methods.md").write_text(text)


if __name__ == "__main__":
    main()
