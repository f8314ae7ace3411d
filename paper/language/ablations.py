"""Ablations of TNN: the same language model with one thing changed, at the learning rate that was found for TNN."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from statistics import mean, stdev
from typing import TYPE_CHECKING

from paper import published
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.judging import (
    ahead,
    collect,
    fully_run,
    means,
    order_agreement,
    sentences,
    spread,
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
from tnn.training.perplexity import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = dict[str, list[float]]  # of each row, over its seeds


@dataclass(frozen=True)
class Found:
    """What was measured; a training that failed counts as infinite."""

    perplexities: Values  # on validation, in blocks of the length of training
    trained: Values  # the same on the text of extrapolation
    averages: Values  # over all lengths of extrapolation


@dataclass(frozen=True)
class Ablation:
    """A table of the paper's; its rows are those of `VARIANTS`."""

    name: str
    about: str
    published: Mapping[str, float]  # perplexity on validation
    claims: Callable[[Found, str], tuple[Claim, ...]]  # with what else was measured
    notes: tuple[str, ...] = ()
    averages: Mapping[str, float] | None = None  # published, over the lengths of extrapolation
    checks: Callable[[Options], list[Trial]] = lambda options: []  # further trials
    about_checks: Callable[[Options, Records], str] = lambda options, records: ""  # and what came of them

    def to_experiment(self) -> Experiment:
        rows = tuple(VARIANTS[self.name]["mini"])
        return Experiment(self.name, self.about, rows, partial(_plan, self), partial(_conclude, self))


def _trials(ablation: Ablation, options: Options) -> list[Trial]:
    rows = options.methods or tuple(VARIANTS[ablation.name][options.scale])
    return [trial for row in rows for trial in variant_trials(ablation.name, row, options)]


def _lengths(ablation: Ablation, trials: list[Trial], options: Options) -> list[Trial]:
    """TNN's own belong to the experiment of extrapolation."""
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
    found = _find(trials, lengths, own, records)
    parameters = means(_named(collect(trials, records, "parameters"), own))
    head = ["variant", "published", "ours"]
    head += ["published average over lengths", "our average"] if ablation.averages else []
    rows = [(*head, "parameters")]
    for row in options.methods or variants:
        cells = [row, show(ablation.published[row], 2) if row in ablation.published else ""]
        cells.append(spread(found.perplexities.get(row), 3))
        if ablation.averages:
            cells += [show(ablation.averages[row], 2), spread(found.averages.get(row), 3)]
        rows.append((*cells, f"{parameters[row]:,.0f}" if row in parameters else ""))
    notes = [f"Order: {order_agreement(ablation.published, means(found.perplexities))}.", *ablation.notes]
    if options.scale == "mini":
        notes.append("The learning rate of all rows is the one that was found for TNN: variants tried no others.")
    table = Table("Perplexity per token on validation, lower is better", tuple(rows))
    figure = partial(_draw, found.perplexities, found.averages) if found.perplexities else None
    judged = _find(trials, lengths, own, records, fully=True)
    return Outcome((table,), figure, ablation.claims(judged, checked), tuple(notes))


def _find(trials: list[Trial], lengths: list[Trial], own: str, records: Records, *, fully: bool = False) -> Found:
    """For the table; or for claims, of the rows whose seeds have all been run."""
    perplexities = collect(trials, records, "validation_perplexity", diverged=inf)
    trained: Values = {}
    for trial in lengths:
        if (record := records.find(trial)) and "failed" not in record.metrics:
            trained.setdefault(trial.row, []).append(extrapolation_of(record).perplexities[0].per_token)
    averages = collect(lengths, records, "average", diverged=inf)
    if fully:
        perplexities, averages = fully_run(perplexities, trials), fully_run(averages, lengths)
    return Found(_named(perplexities, own), _named(trained, own), _named(averages, own))


def _named(values: Values, own: str) -> Values:
    """TNN itself goes by the name of its row."""
    return {own if row == "tnn" else row: found for row, found in values.items()}


def _draw(perplexities: Values, averages: Values) -> "Figure":
    panels = {"perplexity on validation, blocks of 512": perplexities}
    if averages:
        panels["perplexity averaged over 512 to 14,336"] = averages
    figure = new_figure(height=1.2 + 0.35 * len(perplexities))
    for axes, (title, several) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        values = {row: [value for value in found if isfinite(value)] for row, found in several.items()}
        values = {row: found for row, found in values.items() if found}
        for place, row in enumerate(reversed(list(values))):
            axes.plot(values[row], [place] * len(values[row]), "o", color=COLORS[0], alpha=0.6, markersize=5)
            axes.plot(mean(values[row]), place, "|", color=COLORS[1], markersize=16, markeredgewidth=2)
        axes.set_yticks(range(len(values)), list(reversed(list(values))))
        if values and max(map(max, values.values())) > 3 * min(map(min, values.values())):
            axes.set_xscale("log")
        tidy(axes, title)
    return figure


def _better(text: str, best: str, others: tuple[str, ...], values: Values) -> Claim:
    """That one is better than each of the others: all its seeds than all of theirs, or in part if its mean is."""
    return Claim(text, verdict_of(ahead(values, best, others)), _numbers((best, *others), values))


def _best(text: str, best: str, others: tuple[str, ...], values: Values, checked: str = "") -> Claim:
    """That one is better than all of the others: in all seeds, or in part if on average."""
    found = ahead(values, best, others)
    conditions = [None] if None in found else [all(found[::2]), all(found[1::2])]
    return Claim(text, verdict_of(conditions), _numbers((best, *others), values), checked)


def _about_margin(best: str, other: str, theirs: Mapping[str, float], values: Values) -> str:
    """Whether a margin as small as the paper's could be seen in ours."""
    several = [values[row] for row in (best, other) if len(values.get(row, ())) > 1]
    if not several:
        return ""
    noise = max(stdev(found) / mean(found) for found in several)
    return f"in the paper {other} is {theirs[other] / theirs[best] - 1:.1%} behind; our seeds vary by {noise:.1%}."


def _numbers(rows: tuple[str, ...], values: Values) -> str:
    found = [f"{row} {spread(values[row], 3)}" if row in values else f"{row} not measured" for row in rows]
    return "; ".join(found)


STRUCTURE = Ablation(
    "ablation-structure",
    "GTU and GLU against GTU alone, and against attention and GLU.",
    published.STRUCTURE,
    lambda found, checked: (
        _best(
            "GTU and GLU together are better than GTU alone.",
            "gtu+glu",
            ("gtu",),
            found.perplexities,
            _about_margin("gtu+glu", "gtu", published.STRUCTURE, found.perplexities),
        ),
        _best("And better than attention and GLU.", "gtu+glu", ("attention+glu",), found.perplexities),
    ),
    ("The attention of this table has one head and no encoding of positions, as the paper's has.",),
).to_experiment()

RPE_INPUT = Ablation(
    "ablation-rpe-input",
    "What the position encoder reads: the integer lag, the lag over the length, or sines and cosines.",
    published.RPE_INPUT,
    lambda found, checked: (
        _best(
            "The integer lag is the best input.",
            "integer",
            ("normalized", "sincos"),
            found.perplexities,
            _about_margin("integer", "sincos", published.RPE_INPUT, found.perplexities),
        ),
    ),
    (
        "The paper's code has no decay in the two variants, and 0.99 in its own model. "
        "At mini scale all three have 0.99, so that one thing alone differs.",
    ),
).to_experiment()

RPE = Ablation(
    "ablation-rpe",
    "Coefficients from the position encoder, or free ones.",
    published.RPE,
    lambda found, checked: (
        _better(
            "Coefficients from the encoder are better than free ones.",
            "rpe",
            ("free", "free, as deep"),
            found.perplexities,
        ),
    ),
    (
        "Free coefficients take many parameters: the matched model is shallower. "
        "The row that is as deep has more of them.",
    ),
).to_experiment()

DECAY = Ablation(
    "ablation-decay",
    "Rates of decay: perplexity at the length of training, and over the lengths of extrapolation.",
    {row: numbers[0] for row, numbers in published.DECAY.items()},
    lambda found, checked: _decay_claims(found, checked),
    averages={row: numbers[1] for row, numbers in published.DECAY.items()},
    checks=rate_trials,
    about_checks=lambda options, records: _about_memory(options, records),
).to_experiment()


def _about_memory(options: Options, records: Records) -> str:
    """Whether this text and these updates ask for a shorter memory than the paper's."""
    return sentences(about_rates(options, records), about_longer(("tnn", "0.9"), options, records))


def _decay_claims(found: Found, checked: str) -> tuple[Claim, ...]:
    def ratio(row: str) -> float | None:
        """On the same text: the table has the perplexity at 512 on that of validation, as the paper's has."""
        if row not in found.averages or row not in found.trained:
            return None
        return mean(found.averages[row]) / mean(found.trained[row])

    def text(row: str) -> str:
        if row not in found.averages or row not in found.trained:
            return f"{row} has not been measured"
        return f"on the test text: {spread(found.trained[row], 3)} at 512, {spread(found.averages[row], 3)} on average"

    none, ours = ratio("1"), ratio("0.99")
    return (
        Claim(
            "Without decay TNN does not extrapolate (the average is at least 1.5 times the perplexity at 512).",
            verdict_of([None if none is None else none >= 1.5]),
            text("1"),
        ),
        Claim(
            "With 0.99 it does (at most 1.02 times).",
            verdict_of([None if ours is None else ours <= 1.02]),
            text("0.99"),
        ),
        Claim(
            "0.99 is better than 0.95, and that than 0.9, at 512.",
            verdict_of([*ahead(found.perplexities, "0.99", ["0.95"]), *ahead(found.perplexities, "0.95", ["0.9"])]),
            _numbers(("0.99", "0.95", "0.9"), found.perplexities),
            checked,
        ),
        _best(
            "On average over the lengths 0.99 is the best.",
            "0.99",
            ("0.9", "0.95", "0.999", "1", "learned"),
            found.averages,
            checked,
        ),
        _best("A learned decay is no better than 0.99 at 512.", "0.99", ("learned",), found.perplexities, checked),
    )
