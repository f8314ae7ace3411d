"""Bytes of enwik8: variants of TNN and its rivals at equal size, each at its best learning rate."""

import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std
from paper.harness.judging import Values, ahead_in_every_seed, at_the_edge, collect, fully_run, means, verdict_of
from paper.harness.mixers import is_own_mixer
from paper.harness.ngrams import ngram_losses
from paper.harness.records import Records
from paper.harness.trainings import Search, Setup, search_trials, training_trial
from paper.harness.trial import Metrics, Options, Trial, TrialContext
from paper.improved.rows import RECOMMENDED, RIVALS, ROWS, VARIANTS, variant_fields
from paper.improved.state_space import state_space_table, state_space_trial
from tnn.layers import count_parameters, layer_ranks
from tnn.models import load_preset
from tnn.training.evaluation import load_model, load_text
from tnn.training.extrapolation import extrapolate
from tnn.training.figures import COLORS, INK, new_figure, tidy
from tnn.training.recipe import Recipe
from tnn.training.runs import LOG

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "improved-enwik8"
FILE = "enwik8/enwik8.xz"
SEEDS = 3
STEPS = 5000
BATCH = 8
SEARCH_STEPS = 1000
RATES = (3e-3, 6e-3, 1.2e-2)
HIGHER_RATES = (*RATES, 2.4e-2, 4.8e-2)  # of rows whose best rate is not below 1.2e-2: a search goes on past its best
LOWER_RATES = {"gss": 1.2e-2, "s4": 1.2e-2}  # whole trainings of the rivals: short ones may favour high rates
LENGTHS = (512, 28 * 512)
TEST_BYTES = 64 * LENGTHS[-1]
TRAINING = (
    f"data.corpus={FILE}",
    f"data.length={LENGTHS[0]}",
    f"training.batch_size={BATCH}",
    "training.log_every=100",
    "training.evaluate_every=null",
    "training.evaluate_examples=1024",
    "training.save_every=1000",
)
FLOOR = "n-grams"
TRAIN_END, TEST_START = 90_000_000, 95_000_000  # the splits of open_corpus
ORDER = 8
FLAT = 1.0  # bits per byte at the longest length relative to the training length, at most


def row_trials(row: str, options: Options) -> tuple[list[Trial], list[Trial]]:
    """The trials of the search, and one training per seed."""
    setup = _setup(row, options)
    steps = SEARCH_STEPS if options.steps is None else max(1, options.steps // 5)
    searches = search_trials(NAME, row, setup, Search(rates_of(row), steps))
    seeds = range(options.seeds or SEEDS)
    return searches, [training_trial(NAME, row, setup, s, searches=searches, measure=_measure) for s in seeds]


def lower_rate_trials(options: Options) -> list[Trial]:
    """One training of each rival at a lower rate than that of its search."""
    trials = []
    for row, rate in LOWER_RATES.items():
        if row in (options.methods or ROWS):
            setup = _setup(row, options)
            setup = replace(setup, changes=(*setup.changes, f"training.learning_rate={rate}"))
            trials.append(training_trial(NAME, row, setup, 0, measure=_measure, part=f"whole at {rate:g}"))
    return trials


def rates_of(row: str) -> tuple[float, ...]:
    """The learning rates that a row tries."""
    return HIGHER_RATES if row in RIVALS else RATES


def _setup(row: str, options: Options) -> Setup:
    steps = options.steps or STEPS
    length = (f"training.steps={steps}", f"training.warmup_steps={max(1, steps // 10)}")
    return Setup("mini-alm", (*TRAINING, f"model={json.dumps(_model(row))}", *length))


def _model(row: str) -> dict[str, Any]:
    """The model section of a recipe."""
    if row in VARIANTS:
        expansion = load_preset("mini-alm").gtu_expansion
        return {"preset": "mini-alm", "initializer": "torch", **variant_fields(row, expansion)}
    if is_own_mixer(row):
        return {"preset": "mini-alm", "initializer": "torch", "mixer": row}
    preset = f"mini-alm-{row}"
    has_positions = load_preset(preset).position_embedding != "none"  # the published S4 has them, and needs none
    return {"preset": preset, **({"position_embedding": "none"} if has_positions else {})}


def _measure(folder: Path, recipe: Recipe) -> Metrics:
    """Nats per byte of the test text at each length, over the same bytes; losses on the way; ranks of the kernels."""
    model = load_model(folder)
    text = load_text(folder, model, None, "test")
    run = extrapolate(model, text.tokens, LENGTHS, text.tokenizer.eos_token_id, text.length, max_tokens=TEST_BYTES)
    return {
        "test_losses": [perplexity.loss for perplexity in run.perplexities],
        "test_tokens": run.perplexities[0].tokens,
        "parameters": count_parameters(model).trained,
        "learning_curve": _learning_curve(folder),
        "kernel_ranks": [[layer.all_lags, layer.from_lag_16] for layer in layer_ranks(model, LENGTHS[0])],
    }


def _learning_curve(folder: Path) -> list[tuple[int, float]]:
    """Updates, and the mean training loss since the point before."""
    entries = (json.loads(line) for line in (folder / LOG).read_text().splitlines())
    return [(entry["step"], round(entry["loss"], 5)) for entry in entries if "loss" in entry and entry["step"] > 1]


def floor_trial(options: Options) -> Trial:
    """Counts of as many bytes as a model is trained on."""
    count = (options.steps or STEPS) * BATCH * LENGTHS[0]
    settings = {"bytes": count, "order": ORDER, "test_bytes": TEST_BYTES}
    return Trial(NAME, FLOOR, settings, partial(_count, count=count), cost=200.0)


def _count(context: TrialContext, count: int) -> Metrics:
    with lzma.open(context.data / FILE) as file:
        text = np.frombuffer(file.read(), np.uint8)
    if len(text) != 100_000_000:
        raise ValueError(f"enwik8 must have 100,000,000 bytes; got {len(text):,}")
    test = text[TEST_START : TEST_START + TEST_BYTES]
    return {"test_losses": ngram_losses(text[: min(count, TRAIN_END)], test, ORDER)}


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # the paper has no such table
        return []
    trials = [trial for row in options.methods or ROWS for part in row_trials(row, options) for trial in part]
    return [floor_trial(options), *trials, *_state_space_trials(options), *lower_rate_trials(options)]


def _state_space_trials(options: Options) -> list[Trial]:
    if RECOMMENDED not in (options.methods or ROWS):
        return []
    return [state_space_trial(trial) for trial in row_trials(RECOMMENDED, options)[1]]


def _conclude(options: Options, records: Records) -> Outcome:
    rows = options.methods or ROWS
    trials = [trial for row in rows for trial in row_trials(row, options)[1]]
    bits = [_bits(trials, records, place) for place in range(len(LENGTHS))]
    floor = _floor(options, records)
    rates = collect(trials, records, "learning_rate")
    tables = (
        _table(rows, trials, records, bits, rates, floor),
        _rank_table(rows, trials, records),
        state_space_table(_state_space_trials(options), records),
        _search_table(rows, options, records),
        _lower_rate_table(options, records),
    )
    claims = _claims([fully_run(values, trials) for values in bits])
    edge = [row for row in rates if at_the_edge({row: rates[row]}, rates_of(row))]
    notes = _notes(options) + ((f"At the edge of the search: {', '.join(edge)}.",) if edge else ())
    figure = partial(_draw, bits, floor, _curves(trials, records)) if any(bits) else None
    return Outcome(tuple(table for table in tables if len(table.rows) > 1), figure, claims, notes)


def _bits(trials: Sequence[Trial], records: Records, place: int) -> dict[str, list[float]]:
    """Bits per byte of the test text at one of the lengths, by row; a training that failed counts as infinite."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        if (record := records.find(trial)) is not None:
            losses = record.metrics.get("test_losses", [None] * len(LENGTHS))
            values.setdefault(trial.row, []).append(inf if losses[place] is None else losses[place] / log(2))
    return values


def _floor(options: Options, records: Records) -> list[float]:
    """Bits per byte by n-grams of each order; empty if they have not been counted."""
    record = records.find(floor_trial(options))
    return [] if record is None else [loss / log(2) for loss in record.metrics["test_losses"]]


def _table(
    rows: Sequence[str],
    trials: Sequence[Trial],
    records: Records,
    bits: list[dict[str, list[float]]],
    rates: Values,
    floor: list[float],
) -> Table:
    validation = collect(trials, records, "eval_loss", diverged=inf)
    parameters, near = means(collect(trials, records, "parameters")), means(bits[0])
    at = [f"test at {length:,}" for length in LENGTHS]
    lines: list[tuple[str, ...]] = [("row", "parameters", "learning rate", "validation", *at, "seeds")]
    for row in sorted(rows, key=lambda row: near.get(row, inf)):
        lines.append(
            (
                row,
                f"{parameters[row]:,.0f}" if row in parameters else "",
                f"{rates[row][0]:g}" if row in rates else "",
                format_mean_std([loss / log(2) for loss in validation.get(row, [])], 4),
                *(format_mean_std(values.get(row), 4) for values in bits),
                str(len(bits[0].get(row, ()))),
            )
        )
    if floor:
        best = min(range(len(floor)), key=floor.__getitem__)
        lines.append((f"{best + 1}-gram counts", "", "", "", f"{floor[best]:.4f}", f"{floor[best]:.4f}", ""))
    return Table("Bits per byte, lower is better; mean ± standard deviation over seeds", tuple(lines))


def _rank_table(rows: Sequence[str], trials: Sequence[Trial], records: Records) -> Table:
    """What the kernels of each layer span after training, with the first seed."""
    lines: list[tuple[str, ...]] = [("row", "all lags, by layer", "from lag 16, by layer")]
    for row in rows:
        record = next((found for trial in trials if trial.row == row and (found := records.find(trial))), None)
        layers = record.metrics.get("kernel_ranks", []) if record is not None else []
        if layers and None not in layers[0]:
            cells = (", ".join("/".join(map(str, layer[part])) for layer in layers) for part in (0, 1))
            lines.append((row, *cells))
    return Table("Dimensions that hold the kernels but for 10%, 1% and 0.1% of their norm, seed 0", tuple(lines))


def _search_table(rows: Sequence[str], options: Options, records: Records) -> Table:
    """What each learning rate achieved on the validation text, with the search's few updates."""
    head = ("row", *(f"{rate:g}" for rate in HIGHER_RATES))
    lines = [head]
    for row in rows:
        found = [records.find(trial) for trial in row_trials(row, options)[0]]
        losses = [None if record is None else record.metrics.get("eval_loss", inf) for record in found]
        cells = ["" if loss is None else f"{loss / log(2):.4f}" for loss in losses]
        lines.append((row, *cells, *[""] * (len(HIGHER_RATES) - len(cells))))
    return Table("The search: validation bits per byte at each learning rate", tuple(lines))


def _lower_rate_table(options: Options, records: Records) -> Table:
    """Whether the search, with its few updates, has chosen too high a rate for the rivals."""
    at = [f"test at {length:,}" for length in LENGTHS]
    lines: list[tuple[str, ...]] = [("row", "learning rate", *at, "the same at the rate of the search")]
    for trial in lower_rate_trials(options):
        first = row_trials(trial.row, options)[1][0]
        here, there = ([_bits([each], records, place) for place in range(len(LENGTHS))] for each in (trial, first))
        if here[0]:
            cells, others = ([f"{values[trial.row][0]:.4f}" for values in part if values] for part in (here, there))
            lines.append((trial.row, f"{LOWER_RATES[trial.row]:g}", *cells, ", ".join(others)))
    return Table("The rivals at a lower learning rate, all updates, seed 0: bits per byte", tuple(lines))


def _claims(bits: list[dict[str, list[float]]]) -> tuple[Claim, ...]:
    near, far = bits
    texts = [
        f"{row} {', '.join(f'{value:.4f}' for value in near[row])}" for row in (RECOMMENDED, *RIVALS) if row in near
    ]
    ratios = [b / a for a, b in zip(near.get(RECOMMENDED, []), far.get(RECOMMENDED, []), strict=True)]
    return (
        Claim(
            f"The recommended TNN is ahead of {' and '.join(RIVALS)} in every seed: each is compared with the "
            "same seed of the other row.",
            verdict_of(
                [*ahead_in_every_seed(near, RECOMMENDED, RIVALS), *ahead_in_every_seed(far, RECOMMENDED, RIVALS)]
            ),
            f"at {LENGTHS[0]}: {'; '.join(texts) or 'not measured'}",
        ),
        Claim(
            f"Its bits per byte at {LENGTHS[1]:,} are no more than at {LENGTHS[0]}, in every seed.",
            verdict_of([all(ratio <= FLAT for ratio in ratios) if ratios else None]),
            f"relative to {LENGTHS[0]}: {', '.join(f'{ratio:.4f}' for ratio in ratios) or 'not measured'}",
        ),
    )


def _notes(options: Options) -> tuple[str, ...]:
    steps = options.steps or STEPS
    count = steps * BATCH * LENGTHS[0] / 1e6
    return (
        f"Not in the paper. All rows have the same data ({count:.1f} MB of the first 90 MB), updates ({steps:,} of "
        f"{BATCH} x {LENGTHS[0]} bytes), optimizer and schedule. The learning rate of each row is the best of its "
        "search on the validation text, with seed 0; the test text was read once, by the final models: its first "
        f"{TEST_BYTES:,} bytes, in blocks of {LENGTHS[0]} and of {LENGTHS[1]:,}.",
        "State spaces have the parameter groups of their authors: their own parameters have no weight decay, and in S4 "
        "their own rate of 0.001.",
        f"The floor counts n-grams of 1 to {ORDER} bytes, with Witten-Bell smoothing, in as many bytes as a model is "
        "trained on; the order with the lowest test loss is shown, which favours it.",
    )


Curves = dict[str, list[list[tuple[int, float]]]]  # by row: updates and training loss, per seed


def _curves(trials: Sequence[Trial], records: Records) -> Curves:
    curves: Curves = {}
    for trial in trials:
        record = records.find(trial)
        if record is not None and (curve := record.metrics.get("learning_curve")):
            curves.setdefault(trial.row, []).append(curve)
    return curves


def _draw(bits: list[dict[str, list[float]]], floor: list[float], curves: Curves) -> "Figure":
    near = means(bits[0])
    heights = [0.35 * len(near) + 1.2, *([3.0] if curves else [])]
    figure = new_figure(height=sum(heights))
    axes, *below = figure.subplots(len(heights), squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    rows = sorted(near, key=lambda row: -near[row])
    for values, color, length in zip(bits, COLORS, LENGTHS, strict=False):
        places = [place for place, row in enumerate(rows) for _ in values[row]]
        points = [value for row in rows for value in values[row]]
        axes.plot(points, places, "o", color=color, alpha=0.8, markersize=5, label=f"blocks of {length:,} bytes")
    if floor:
        axes.axvline(min(floor), color=INK, linestyle=":", linewidth=1, label="n-gram counts")
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    tidy(axes, x="bits per byte of the test text, one point per seed", y="")
    for panel in below:
        _draw_curves(panel, curves)
    return figure


def _draw_curves(axes: "Axes", curves: Curves) -> None:
    """The mean over seeds."""
    for row, seeds in curves.items():
        steps = [step for step, _ in seeds[0]]
        losses = np.mean([[loss for _, loss in curve] for curve in seeds], axis=0) / log(2)
        width = 2.0 if row == RECOMMENDED else 1.0
        axes.plot(np.array(steps) * BATCH * LENGTHS[0] / 1e6, losses, label=row, linewidth=width)
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_ylim(top=3)
    tidy(axes, x="megabytes of text read (log scale)", y="training loss, bits per byte")


ENWIK8_STUDY = Experiment(
    NAME,
    "A better TNN on bytes of enwik8: variants and rivals at equal size.",
    ROWS,
    _plan,
    _conclude,
    takes_mixers=True,
)
