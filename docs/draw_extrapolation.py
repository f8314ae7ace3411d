"""The picture of the README, from committed records: python docs/draw_extrapolation.py

Perplexity at 512 to 14,336 tokens of models that were trained at 512: means over seeds, and the range between them.
"""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
RECORDS = DOCS.parent / "results" / "mini" / "extrapolation.jsonl"
LINES = {"transformer": ("Transformer", "#d1633b"), "tnn": ("TNN", "#2f5d9b")}
INK, FAINT = "#30363d", "#e3e6ea"


def perplexities(row: str) -> tuple[list[int], np.ndarray]:
    """The lengths (m,), and the perplexities (seeds, m) that were measured there."""
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    records = [record for record in records if record["row"] == row and record["part"] == "lengths"]
    return records[0]["settings"]["lengths"], np.exp([record["metrics"]["losses"] for record in records])


def draw() -> Figure:
    figure = Figure(figsize=(7.2, 3.0), dpi=150, layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12)
    axes = figure.subplots()
    for row, (name, color) in LINES.items():
        lengths, values = perplexities(row)
        mean = values.mean(0)
        axes.fill_between(lengths, values.min(0), values.max(0), color=color, alpha=0.15, linewidth=0)
        axes.plot(lengths, mean, color=color, linewidth=2.2)
        place = {"color": color, "va": "center", "textcoords": "offset points"}
        end = (lengths[-1], mean[-1])
        axes.annotate(f"{name}  {mean[-1]:.1f}", end, (8, 0), fontsize=11, fontweight="bold", **place)
        axes.annotate(f"{mean[0]:.1f}", (lengths[0], mean[0]), (-6, 0), fontsize=9, ha="right", **place)
    axes.axvline(lengths[0], color=INK, linewidth=0.8, linestyle=":")
    axes.annotate("trained at 512", (lengths[0], 19), (5, 0), textcoords="offset points", fontsize=9, color=INK)
    ticks = [512, 1024, 2048, 4096, 8192, 14336]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
    axes.set_xlim(400, 14336)
    axes.set_ylim(0, 20)
    axes.set_yticks([0, 5, 10, 15, 20])
    axes.set_xlabel("length at evaluation, in tokens (bytes)", fontsize=10, color=INK)
    axes.set_ylabel("perplexity per token", fontsize=10, color=INK)
    axes.tick_params(labelsize=9, labelcolor=INK, length=0)
    axes.tick_params(which="minor", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    return figure


if __name__ == "__main__":
    draw().savefig(DOCS / "extrapolation.png", metadata={"Software": None})
