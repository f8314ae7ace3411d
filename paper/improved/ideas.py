"""Which further changes help the sine encoder with spread decays: one short training each, on bytes of enwik8."""

import json
from collections.abc import Sequence
from functools import partial
from math import inf, log
from typing import TYPE_CHECKING, Any

from paper.harness.experiment import Experiment, Outcome, Table
from paper.harness.records import Records
from paper.harness.trainings import Search, Setup, search_trials
from paper.harness.trial import Options, Trial
from paper.improved.enwik8 import SEARCH, TRAINING
from paper.improved.rows import SINE, SPREAD, VARIANTS
from tnn.training.figures import COLORS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "improved-ideas"
BASE = "sine-spread"
RATE = 6e-3
NOISE = 0.005  # bits per byte: seeds differ by about as much

# By row: what is changed in the base. Sizes keep the parameters within 5%, except where the encoder's size is the idea.
IDEAS: dict[str, dict[str, Any]] = {
    BASE: {},
    "one decay": {"decay": 0.9, "decay_mode": "fixed"},
    "fixed spread": {"decay_mode": "fixed"},
    "faster decays": {"decay": [0.3, 0.93]},
    "slower decays": {"decay": [0.6, 0.99]},
    "short convolution": {"short_convolution": 4},
    "input gate": {"input_gate": True, "gtu_expansion": 1.5},
    "wider encoder": {"rpe_size": 64, "rpe_num_layers": 1},
    "shallow encoder": {"rpe_num_layers": 1},
    "deeper": {"num_hidden_layers": 6, "gtu_expansion": 1.25, "glu_expansion": 0.75},
    "shallower": {"num_hidden_layers": 3, "gtu_expansion": 2.75, "glu_expansion": 1.25},
    "more GTU": {"gtu_expansion": 2.5, "glu_expansion": 0.5},
    "more GLU": {"gtu_expansion": 1.5, "glu_expansion": 1.5},
    "RMS norm with gains": {"norm": "rms"},
}


def idea_trial(row: str, options: Options) -> Trial:
    """A training of the search's length, at one learning rate."""
    steps = options.steps or SEARCH.steps
    model = {"preset": "mini-alm", "initializer": "torch", **VARIANTS[BASE], **IDEAS[row]}
    setup = Setup("mini-alm", (*TRAINING, f"model={json.dumps(model)}"))
    return search_trials(NAME, row, setup, Search((RATE,), steps))[0]


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # the paper has no such table
        return []
    return [idea_trial(row, options) for row in options.methods or IDEAS]


def _conclude(options: Options, records: Records) -> Outcome:
    bits = _bits(options.methods or tuple(IDEAS), options, records)
    lines = [("row", "validation bits per byte", "difference")]
    for row in sorted(bits, key=bits.__getitem__):
        difference = f"{bits[row] - bits[BASE]:+.4f}" if BASE in bits else ""
        lines.append((row, f"{bits[row]:.4f}", difference))
    notes = (
        f"Not in the paper. One seed, {options.steps or SEARCH.steps:,} updates at the learning rate {RATE:g}; the row "
        f"{BASE} is {json.dumps(SINE | SPREAD)}. Differences below about {NOISE} say nothing.",
    )
    table = Table("Validation bits per byte, lower is better", tuple(lines))
    return Outcome((table,), partial(_draw, bits) if bits else None, (), notes)


def _bits(rows: Sequence[str], options: Options, records: Records) -> dict[str, float]:
    """Of the rows that have been measured; a training that failed counts as infinite."""
    found = {row: records.find(idea_trial(row, options)) for row in rows}
    return {row: record.metrics.get("eval_loss", inf) / log(2) for row, record in found.items() if record is not None}


def _draw(bits: dict[str, float]) -> "Figure":
    figure = new_figure(height=0.25 * len(bits) + 0.8)
    axes = figure.subplots()
    rows = sorted(bits, key=lambda row: -bits[row])
    colors = [COLORS[1] if row == BASE else COLORS[0] for row in rows]
    axes.scatter([bits[row] for row in rows], range(len(rows)), color=colors)
    if BASE in bits:
        axes.axvspan(bits[BASE] - NOISE, bits[BASE] + NOISE, color=COLORS[1], alpha=0.1, linewidth=0)
    axes.set_yticks(range(len(rows)), rows)
    tidy(axes, x="validation bits per byte; shaded: no difference from the base")
    return figure


IDEAS_STUDY = Experiment(
    NAME,
    "Further changes of a better TNN, one short training each.",
    tuple(IDEAS),
    _plan,
    _conclude,
)
