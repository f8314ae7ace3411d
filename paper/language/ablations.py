"""Ablations of TNN: the same language model with one thing changed, at the best learning rate of TNN."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from statistics import mean, stdev
from typing import TYPE_CHECKING

from paper import published
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std, format_ppl
from paper.harness.judging import (
    ahead,
    collect,
    fully_run,
    means,
    order_agreement,
    sentences,
    verdict_of,
)
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.language.longer import about_longer
from paper.language.rates import about_rates, rate_trials
from paper.language.trials import (
    extrapolation_of,
    lengths_trial,
    search_of,
    variant_trials,
)
from paper.language.variants import VARIANTS
from tnn.training.figures import COLORS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = dict[str, list[float]]  # of each row, over its seeds


@dataclass(frozen=True)
class Measured:
    """What was measured, over seeds; a training that failed counts as infinite."""

    perplexities: Values  # on validation, at the training length
    trained: Values  # the same on the test text
    averages: Values  # over all lengths, on the test text


@dataclass(frozen=True)
class Ablation:
    """One of the paper's tables; its rows are in `VARIANTS`."""

    name: str
    about: str
    published: Mapping[str, float]  # perplexity on validation
    claims: Callable[[Measured, str], tuple[Claim, ...]]  # the second argument is what else was checked
    notes: tuple[str, ...] = ()
    averages: Mapping[str, float] | None = None  # published, over all lengths
    checks: Callable[[Options], list[Trial]] = lambda options: []  # further trials
    about_checks: Callable[[Options, Records], str] = lambda options, records: ""  # and their result in a sentence

    def to_experiment(self) -> Experiment:
        rows = tuple(VARIANTS[self.name]["mini"])
        return Experiment(self.name, self.about, rows, partial(_plan, self), partial(_conclude, self))


def _trials(ablation: Ablation, options: Options) -> list[Trial]:
    rows = options.methods or tuple(VARIANTS[ablation.name][options.scale])
    return [trial for row in rows for trial in variant_trials(ablation.name, row, options)]


def _lengths(ablation: Ablation, trials: list[Trial], options: Options) -> list[Trial]:
    """Those of TNN itself belong to the experiment extrapolation."""
    if ablation.averages is None:
        return []
    homes = [ablation.name if trial.experiment == ablation.name else "extrapolation" for trial in trials]
    return [lengths_trial(trial, options, home) for trial, home in zip(trials, homes, strict=True)]


def _plan(ablation: Ablation, options: Options) -> list[Trial]:
    trials = _trials(ablation, options)
    return [*search_of("tnn", options), *trials, *_lengths(ablation, trials, options), *ablation.checks(options)]


def _conclude(ablation: Ablation, options: Options, records: Records) -> Outcome:
    trials = _trials(ablation, options)
    variants = VARIANTS[ablation.name][options.scale]
    own = next(row for row, changes in variants.items() if not changes)
    checked = ablation.about_checks(options, records)
    lengths = _lengths(ablation, trials, options)
    measured = _find(trials, lengths, own, records)
    parameters = means(_named(collect(trials, records, "parameters"), own))
    head = ["variant", "published", "ours"]
    head += ["published average over lengths", "our average"] if ablation.averages else []
    rows = [(*head, "parameters")]
    for row in options.methods or variants:
        cells = [row, format_ppl(ablation.published[row], 2) if row in ablation.published else ""]
        cells.append(format_mean_std(measured.perplexities.get(row), 3))
        if ablation.averages:
            cells += [format_ppl(ablation.averages[row], 2), format_mean_std(measured.averages.get(row), 3)]
        rows.append((*cells, f"{parameters[row]:,.0f}" if row in parameters else ""))
    notes = [f"Order: {order_agreement(ablation.published, means(measured.perplexities))}.", *ablation.notes]
    if options.scale == "mini":
        notes.append("All rows use the best learning rate of TNN: the variants had no search of their own.")
    table = Table("Perplexity per token on validation, lower is better", tuple(rows))
    figure = partial(_draw, measured.perplexities, measured.averages) if measured.perplexities else None
    judged = _find(trials, lengths, own, records, fully=True)
    return Outcome((table,), figure, ablation.claims(judged, checked), tuple(notes))


def _find(trials: list[Trial], lengths: list[Trial], own: str, records: Records, *, fully: bool = False) -> Measured:
    """For the table; with `fully` for the claims: only rows whose seeds have all been run."""
    perplexities = collect(trials, records, "validation_perplexity", diverged=inf)
    trained: Values = {}
    for trial in lengths:
        if (record := records.find(trial)) and "failed" not in record.metrics:
            trained.setdefault(trial.row, []).append(extrapolation_of(record).perplexities[0].per_token)
    averages = collect(lengths, records, "average", diverged=inf)
    if fully:
        perplexities, averages = fully_run(perplexities, trials), fully_run(averages, lengths)
    return Measured(_named(perplexities, own), _named(trained, own), _named(averages, own))


def _named(values: Values, own: str) -> Values:
    """TNN itself has the name of its row in this table."""
    return {own if row == "tnn" else row: several for row, several in values.items()}


def _draw(perplexities: Values, averages: Values) -> "Figure":
    panels = {"perplexity on validation, blocks of 512": perplexities}
    if averages:
        panels["perplexity averaged over 512 to 14,336"] = averages
    figure = new_figure(height=1.2 + 0.35 * len(perplexities))
    for axes, (title, several) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        values = {row: [value for value in seeds if isfinite(value)] for row, seeds in several.items()}
        values = {row: seeds for row, seeds in values.items() if seeds}
        for y, row in enumerate(reversed(list(values))):
            axes.plot(values[row], [y] * len(values[row]), "o", color=COLORS[0], alpha=0.6, markersize=5)
            axes.plot(mean(values[row]), y, "|", color=COLORS[1], markersize=16, markeredgewidth=2)
        axes.set_yticks(range(len(values)), list(reversed(list(values))))
        if values and max(map(max, values.values())) > 3 * min(map(min, values.values())):
            axes.set_xscale("log")
        tidy(axes, title)
    return figure


def _better(text: str, best: str, others: tuple[str, ...], values: Values) -> Claim:
    """One row is better than each of the others: in all seeds, or in part if on average."""
    return Claim(text, verdict_of(ahead(values, best, others)), _numbers((best, *others), values))


def _best(text: str, best: str, others: tuple[str, ...], values: Values, checked: str = "") -> Claim:
    """One row is the best of all: in all seeds, or in part if on average."""
    is_ahead = ahead(values, best, others)  # in all seeds, on average, of each other row in turn
    conditions = [None] if None in is_ahead else [all(is_ahead[::2]), all(is_ahead[1::2])]
    return Claim(text, verdict_of(conditions), _numbers((best, *others), values), checked)


def _about_margin(best: str, other: str, theirs: Mapping[str, float], values: Values) -> str:
    """Whether our seeds vary too much to show a margin as small as the paper's."""
    several = [values[row] for row in (best, other) if len(values.get(row, ())) > 1]
    if not several:
        return ""
    noise = max(stdev(seeds) / mean(seeds) for seeds in several)
    return f"in the paper {other} is {theirs[other] / theirs[best] - 1:.1%} behind; our seeds vary by {noise:.1%}."


def _numbers(rows: tuple[str, ...], values: Values) -> str:
    numbers = [f"{row} {format_mean_std(values[row], 3)}" if row in values else f"{row} not measured" for row in rows]
    return "; ".join(numbers)


STRUCTURE_EXPERIMENT = Ablation(
    "ablation-structure",
    "GTU and GLU, compared with GTU alone and with attention and GLU.",
    published.STRUCTURE,
    lambda measured, checked: (
        _best(
            "GTU and GLU together are better than GTU alone.",
            "gtu+glu",
            ("gtu",),
            measured.perplexities,
            _about_margin("gtu+glu", "gtu", published.STRUCTURE, measured.perplexities),
        ),
        _best("They are better than attention and GLU.", "gtu+glu", ("attention+glu",), measured.perplexities),
    ),
    ("The attention of this table has one head and no position encoding, as in the paper.",),
).to_experiment()

RPE_INPUT_EXPERIMENT = Ablation(
    "ablation-rpe-input",
    "The input of the position encoder: the integer lag, the lag divided by the length, or sines and cosines.",
    published.RPE_INPUT,
    lambda measured, checked: (
        _best(
            "The integer lag is the best input.",
            "integer",
            ("normalized", "sincos"),
            measured.perplexities,
            _about_margin("integer", "sincos", published.RPE_INPUT, measured.perplexities),
        ),
    ),
    (
        "In the paper's code the two variants have no decay, and its own model has 0.99. "
        "At mini scale all three have 0.99, so that only the input differs.",
    ),
).to_experiment()

RPE_EXPERIMENT = Ablation(
    "ablation-rpe",
    "Coefficients from the position encoder, or free coefficients.",
    published.RPE,
    lambda measured, checked: (
        _better(
            "Coefficients from the encoder are better than free coefficients.",
            "rpe",
            ("free", "free, as deep"),
            measured.perplexities,
        ),
    ),
    (
        "Free coefficients take many parameters, so the matched model is shallower. "
        "The row with the same depth has more parameters.",
    ),
).to_experiment()

DECAY_EXPERIMENT = Ablation(
    "ablation-decay",
    "Decay rates: perplexity at the training length, and on average over longer ones.",
    {row: numbers[0] for row, numbers in published.DECAY.items()},
    lambda measured, checked: _decay_claims(measured, checked),
    averages={row: numbers[1] for row, numbers in published.DECAY.items()},
    checks=rate_trials,
    about_checks=lambda options, records: _about_memory(options, records),
).to_experiment()


def _about_memory(options: Options, records: Records) -> str:
    """Whether this text and so few updates favour a shorter memory than the paper's."""
    return sentences(about_rates(options, records), about_longer(("tnn", "0.9"), options, records))


def _decay_claims(measured: Measured, checked: str) -> tuple[Claim, ...]:
    def ratio(row: str) -> float | None:
        """On the same text: the table shows the perplexity at 512 on the validation text, as in the paper."""
        if row not in measured.averages or row not in measured.trained:
            return None
        return mean(measured.averages[row]) / mean(measured.trained[row])

    def text(row: str) -> str:
        if row not in measured.averages or row not in measured.trained:
            return f"{row} has not been measured"
        trained, average = (format_mean_std(values[row], 3) for values in (measured.trained, measured.averages))
        return f"on the test text: {trained} at 512, {average} on average"

    none, ours, at_512 = ratio("1"), ratio("0.99"), measured.perplexities
    return (
        Claim(
            "Without decay TNN does not extrapolate (the average is at least 1.5 times the perplexity at 512).",
            verdict_of([None if none is None else none >= 1.5]),
            text("1"),
        ),
        Claim(
            "With a decay of 0.99 it does (at most 1.02 times).",
            verdict_of([None if ours is None else ours <= 1.02]),
            text("0.99"),
        ),
        Claim(
            "At 512, 0.99 is better than 0.95, and 0.95 is better than 0.9.",
            verdict_of(
                [*ahead(measured.perplexities, "0.99", ["0.95"]), *ahead(measured.perplexities, "0.95", ["0.9"])]
            ),
            _numbers(("0.99", "0.95", "0.9"), at_512),
            checked,
        ),
        _best(
            "On average over all lengths, 0.99 is the best.",
            "0.99",
            ("0.9", "0.95", "0.999", "1", "learned"),
            measured.averages,
            checked,
        ),
        _best("At 512, a learned decay is not better than 0.99.", "0.99", ("learned",), at_512, checked),
    )
