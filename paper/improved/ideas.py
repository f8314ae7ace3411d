"""Which further changes help the sine encoder with spread decays: short trainings of each, on bytes of enwik8."""

import json
from functools import partial
from math import inf, log
from typing import TYPE_CHECKING, Any

from paper.harness.experiment import Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std
from paper.harness.judging import collect, means
from paper.harness.mixers import load_own_mixer
from paper.harness.records import Records
from paper.harness.trainings import Setup, training_trial
from paper.harness.trial import Options, Trial
from paper.improved.enwik8 import SEARCH_STEPS, TRAINING
from paper.improved.rows import VARIANTS
from tnn.training.figures import COLORS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "improved-ideas"
BASE = "sine-spread"
RATE = 6e-3
SEEDS = 3

ENCODERS = {
    "log-lags": "LogLags",
    "even-frequencies": "EvenFrequencies",
    "slow-encoder": "SlowEncoder",
    "encoder-weight-decay": "DecayedEncoder",
    "unit-gain": "UnitGain",
}
# By row: what is changed in the base. Sizes keep the parameters within 5%, except where the encoder's size is the idea.
IDEAS: dict[str, dict[str, Any]] = {
    BASE: {},
    "one-decay": {"decay": 0.9, "decay_mode": "fixed"},
    "fixed-spread": {"decay_mode": "fixed"},
    "faster-decays": {"decay": [0.3, 0.93]},
    "slower-decays": {"decay": [0.6, 0.99]},
    "short-convolution": {"short_convolution": 4},
    "input-gate": {"input_gate": True, "gtu_expansion": 1.5},
    "operator-norm": {"operator_norm": True},
    "wider-encoder": {"rpe_size": 64, "rpe_num_layers": 1},
    "shallow-encoder": {"rpe_num_layers": 1},
    "encoder-of-two": {"rpe_num_layers": 2},
    "deeper": {"num_hidden_layers": 6, "gtu_expansion": 1.25, "glu_expansion": 0.75},
    "shallower": {"num_hidden_layers": 3, "gtu_expansion": 2.75, "glu_expansion": 1.25},
    "more-gtu": {"gtu_expansion": 2.5, "glu_expansion": 0.5},
    "more-glu": {"gtu_expansion": 1.5, "glu_expansion": 1.5},
    "norms-with-gains": {"norm": "rms"},
    "norm-and-convolution": {"operator_norm": True, "short_convolution": 4},  # the recommended TNN
    "gtu-start": {"initializer": "gtu"},  # N(0, 0.02)
    **{row: {"mixer": f"paper.improved.encoders:{name}"} for row, name in ENCODERS.items()},
}


def idea_trials(row: str, options: Options) -> list[Trial]:
    """Trainings of the search's length, at one learning rate, one per seed."""
    steps = options.steps or SEARCH_STEPS
    if row in ENCODERS:
        load_own_mixer(IDEAS[row]["mixer"])
    model = {"preset": "mini-alm", "initializer": "torch", **VARIANTS[BASE], **IDEAS[row]}
    training = (f"training.steps={steps}", f"training.warmup_steps={max(1, steps // 10)}")
    setup = Setup("mini-alm", (*TRAINING, f"model={json.dumps(model)}", *training, f"training.learning_rate={RATE}"))
    return [training_trial(NAME, row, setup, seed) for seed in range(options.seeds or SEEDS)]


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # the paper has no such table
        return []
    return [trial for row in options.methods or IDEAS for trial in idea_trials(row, options)]


def _conclude(options: Options, records: Records) -> Outcome:
    trials = [trial for row in options.methods or IDEAS for trial in idea_trials(row, options)]
    losses = collect(trials, records, "eval_loss", diverged=inf)
    bits = {row: [loss / log(2) for loss in values] for row, values in losses.items()}
    average = means(bits)
    lines: list[tuple[str, ...]] = [("row", "validation bits per byte", "difference of the means", "seeds")]
    for row in sorted(bits, key=average.__getitem__):
        difference = f"{average[row] - average[BASE]:+.4f}" if BASE in average else ""
        lines.append((row, format_mean_std(bits[row], 4), difference, str(len(bits[row]))))
    notes = (
        f"Not in the paper. {options.steps or SEARCH_STEPS:,} updates at the learning rate {RATE:g}; the row {BASE} is "
        f"{json.dumps(VARIANTS[BASE])}. A difference that is not a multiple of the standard deviations says nothing.",
    )
    table = Table("Validation bits per byte, lower is better; mean ± standard deviation over seeds", tuple(lines))
    return Outcome((table,), partial(_draw, bits) if bits else None, (), notes)


def _draw(bits: dict[str, list[float]]) -> "Figure":
    figure = new_figure(height=0.25 * len(bits) + 0.8)
    axes = figure.subplots()
    rows = sorted(bits, key=lambda row: -means(bits)[row])
    for place, row in enumerate(rows):
        axes.plot(bits[row], [place] * len(bits[row]), "o", color=COLORS[row == BASE], alpha=0.8, markersize=5)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    tidy(axes, x="validation bits per byte, one point per seed")
    return figure


IDEAS_STUDY = Experiment(
    NAME,
    "Further changes of a better TNN, short trainings of each.",
    tuple(IDEAS),
    _plan,
    _conclude,
)
