"""Four times the updates: how much of the tables at mini scale is due to short trainings."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from paper import published
from paper.harness.experiment import Experiment, Outcome, Table
from paper.harness.formatting import format_ppl
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.language.trials import (
    lengths_trial,
    longer_trial,
    method_trials,
    search_of,
    variant_trials,
)
from tnn.training.figures import COLORS, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABLATED = {"0.9": "ablation-decay"}  # rows of ablations, by experiment
NAMES = {"0.9": "tnn, decay 0.9"}
ROWS = ("tnn", "elu", *ABLATED)
TIMES = 4  # as many updates as in the other tables

Pair = tuple[Trial, Trial]  # with the usual number of updates, and with more
Numbers = dict[str, tuple[float | None, float | None]]  # the same, for each row


def _trainings(row: str, options: Options) -> Pair:
    """With seed 0. The shorter training belongs to another experiment."""
    trials = variant_trials(ABLATED[row], row, options) if row in ABLATED else method_trials(row, options)
    return trials[0], longer_trial(trials[0], TIMES, options)


def _lengths(pair: Pair, options: Options) -> Pair:
    """Extrapolation of both; that of the shorter training belongs to another experiment too."""
    homes = {"alm": "extrapolation"}
    short, longer = (lengths_trial(of, options, homes.get(of.experiment, of.experiment)) for of in pair)
    return short, longer


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # its trainings are not short
        return []
    trials: list[Trial] = []
    for row in options.methods or ROWS:
        pair = _trainings(row, options)
        searches = search_of("tnn" if row in ABLATED else row, options)
        trials += [*searches, *pair, *_lengths(pair, options)]
    return trials


def _conclude(options: Options, records: Records) -> Outcome:
    rows = options.methods or ROWS
    perplexities, growth = _numbers(rows, options, records)
    short, longer = (f"{count:,}" for count in _updates(options))
    lines = [
        (
            *("method", "published, test", f"{short} updates", f"{longer} updates"),
            *(f"relative to TNN, {count}" for count in (short, longer)),
            *(f"at 14,336 relative to 512, {count}" for count in (short, longer)),
        )
    ]
    for row in rows:
        known = published.ALM[row][1] if row in published.ALM else None
        ratios = [_ratio(*both) for both in zip(perplexities[row], perplexities.get("tnn", (None, None)), strict=True)]
        numbers = [_cell(value, 3) for value in perplexities[row]]
        lines.append(
            (
                *(NAMES.get(row, row), _cell(known, 2), *numbers),
                *(_cell(value, 2) for value in ratios),
                *(_cell(value, 3) for value in growth[row]),
            )
        )
    behind = _ratio(published.ALM["elu"][1], published.ALM["tnn"][1]) or 1.0
    notes = (
        f"Not in the paper, where 1+elu is {behind - 1:.1%} behind TNN after 50,000 updates of 65,536 tokens. "
        "Seed 0, at the best learning rates of the shorter trainings.",
    )
    table = Table("Perplexity per token on the test text", tuple(lines))
    measured = any(value is not None for pair in perplexities.values() for value in pair)
    return Outcome((table,), partial(_draw, perplexities, options) if measured else None, (), notes)


def _updates(options: Options) -> tuple[int, int]:
    short, longer = (trial.settings["recipe"]["training"]["steps"] for trial in _trainings("tnn", options))
    return short, longer


def _numbers(rows: Iterable[str], options: Options, records: Records) -> tuple[Numbers, Numbers]:
    """Perplexities, and the ratio of the perplexity at 14,336 to that at 512."""
    perplexities, growth = {}, {}
    for row in rows:
        pair = _trainings(row, options)
        perplexities[row] = _metric(pair, "test_perplexity", records)
        growth[row] = _metric(_lengths(pair, options), "longest_to_trained", records)
    return perplexities, growth


def _metric(pair: Pair, name: str, records: Records) -> tuple[float | None, float | None]:
    short, longer = (None if (record := records.find(trial)) is None else record.metrics.get(name) for trial in pair)
    return short, longer


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value / other


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else format_ppl(value, digits)


def about_longer(rows: Iterable[str], options: Options, records: Records) -> str:
    """The effect of more updates on rows and their extrapolation; empty unless all rows have been measured."""
    if options.scale == "paper":
        return ""
    perplexities, growth = _numbers(rows, options, records)
    texts = []
    for row, (short, longer) in perplexities.items():
        (before, after), name = growth[row], NAMES.get(row, row)
        if short is not None and longer is not None and before is not None and after is not None:
            ratios = f"{format_ppl(after, 3)} times that ({format_ppl(before, 3)})"
            texts.append(f"{name} {longer:.3f} ({short:.3f}), at 14,336 {ratios}")
    few, many = _updates(options)
    return f"With {many:,} updates (and with {few:,}): {'; '.join(texts)}." if len(texts) == len(perplexities) else ""


def _draw(perplexities: Numbers, options: Options) -> "Figure":
    figure = new_figure(height=3)
    axes = figure.subplots()
    updates = _updates(options)
    for color, row in zip(COLORS, ROWS, strict=False):
        known = [(x, y) for x, y in zip(updates, perplexities.get(row, ()), strict=False) if y is not None]
        axes.plot([x for x, _ in known], [y for _, y in known], "o-", color=color, label=NAMES.get(row, row))
    axes.set_xscale("log")
    axes.set_xticks(list(updates), [f"{count:,}" for count in updates])
    axes.minorticks_off()
    tidy(axes, x="updates", y="perplexity per token")
    return figure


ALM_LONGER_EXPERIMENT = Experiment("alm-longer", "Language models with four times the updates.", ROWS, _plan, _conclude)
