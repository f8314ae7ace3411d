"""Autoregressive language modelling: every method on the same text, with the same search and number of updates."""

from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from paper import published
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std
from paper.harness.judging import (
    Values,
    ahead,
    at_the_edge,
    collect,
    fully_run,
    means,
    order_agreement,
    ranks,
    sentences,
    verdict_of,
)
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.language.counts import about_counts, count_trials
from paper.language.longer import about_longer
from paper.language.trials import ALM_METHODS, method_trials, search_of
from tnn.training.figures import COLORS, INK, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = {
    "the Transformer": ("transformer",),
    "efficient attention (FLASH, 1+elu, Performer, cosFormer)": ("flash", "elu", "performer", "cosformer"),
    "MLPs (both Synthesizers, gMLP)": ("synthesizer-dense", "synthesizer-random", "gmlp"),
    "state spaces (S4, DSS, GSS)": ("s4", "dss", "gss"),
}


def _rows(options: Options) -> tuple[str, ...]:
    return options.methods or ALM_METHODS


def _plan(options: Options) -> list[Trial]:
    trials = [trial for row in _rows(options) for trial in (*search_of(row, options), *method_trials(row, options))]
    return [*trials, *count_trials(options)]


def _conclude(options: Options, records: Records) -> Outcome:
    trials = [trial for row in _rows(options) for trial in method_trials(row, options)]
    test = collect(trials, records, "test_perplexity", diverged=inf)
    validation = collect(trials, records, "validation_perplexity", diverged=inf)
    theirs = {row: numbers[1] for row, numbers in published.ALM.items() if numbers[1] is not None}
    ours = means(test)
    their_ranks, our_ranks = ranks(theirs), ranks({row: value for row, value in ours.items() if row in theirs})
    parameters, rates = means(collect(trials, records, "parameters")), collect(trials, records, "learning_rate")
    head = ("method", "published, validation", "published, test", "ours, validation", "ours, test")
    rows: list[tuple[str, ...]] = [(*head, "published rank", "our rank", "parameters", "learning rate")]
    for row in sorted(_rows(options), key=lambda row: ours.get(row, float("inf"))):
        known = published.ALM.get(row, (None, None))
        rows.append(
            (
                row,
                *("" if number is None else f"{number:.2f}" for number in known[:2]),
                format_mean_std(validation.get(row), 3),
                format_mean_std(test.get(row), 3),
                *(str(ranking.get(row, "")) for ranking in (their_ranks, our_ranks)),
                f"{parameters[row]:,.0f}" if row in parameters else "",
                f"{rates[row][0]:g}" if row in rates else "",
            )
        )
    order = f"Order: {order_agreement(theirs, ours)}."
    tried = [trial.settings["recipe"]["training"]["learning_rate"] for trial in search_of("tnn", options)]
    edge = at_the_edge(rates, tried) if tried else []
    notes = (order, _about_search(options, tried, edge), *about_counts(options, records))
    table = Table("Perplexity per token, lower is better", tuple(rows))
    figure = partial(_draw, theirs, test) if ours else None
    longer = about_longer(("tnn", "elu"), options, records)
    return Outcome((table,), figure, _claims(theirs, fully_run(test, trials), edge, longer), notes)


def _about_search(options: Options, tried: list[float], edge: list[str]) -> str:
    if not tried:
        return "The learning rate is the recipe's."
    steps = search_of("tnn", options)[0].settings["recipe"]["training"]["steps"]
    names = ", ".join(f"{rate:g}" for rate in tried)
    note = (
        f"Each method tried the rates {names} for {steps:,} updates each, with seed 0; the best on validation was used."
    )
    return note + (f" At the edge of the search: {', '.join(edge)}." if edge else "")


def _claims(theirs: dict[str, float], test: Values, edge: list[str], longer: str) -> tuple[Claim, ...]:
    ahead_of = (
        _ahead_of(name, rows, theirs, test, edge, longer if "elu" in rows else "") for name, rows in GROUPS.items()
    )
    return (_among_the_best(theirs, means(test)), *ahead_of)


def _among_the_best(theirs: dict[str, float], ours: dict[str, float]) -> Claim:
    text = "TNN is among the best at equal parameter counts: second of 13 in the paper (in part: fourth or better)."
    among = ranks({row: value for row, value in ours.items() if row in theirs})
    if set(among) != set(theirs):
        return Claim(text, "not measured", f"{len(among)} of {len(theirs)} methods have been measured with all seeds")
    rank, best = among["tnn"], min(among, key=lambda row: among[row])
    lead = f", {ours['tnn'] / ours[best] - 1:.1%} behind {best}" if rank > 1 else ""
    return Claim(text, verdict_of([rank <= 2, rank <= 4]), f"number {rank} of {len(among)}{lead}")


def _ahead_of(
    name: str, others: tuple[str, ...], theirs: dict[str, float], test: Values, edge: list[str], longer: str
) -> Claim:
    rows = ("tnn", *others)
    numbers = [f"{row} {format_mean_std(test[row], 3)}" if row in test else f"{row} not measured" for row in rows]
    checked = sentences(_about_gap(others, theirs, test), _about_ranges(rows, test), _about_edge(others, edge), longer)
    verdict = verdict_of(ahead(test, "tnn", others))
    return Claim(f"TNN is ahead of {name}.", verdict, "; ".join(numbers), checked)


def _about_gap(others: tuple[str, ...], theirs: dict[str, float], test: Values) -> str:
    """A lead much larger than the published one says more about the trainings than about the methods."""
    if not {"tnn", *others} <= set(test):
        return ""
    ours = means(test)
    gaps = [min(values[row] for row in others) / values["tnn"] - 1 for values in (theirs, ours)]
    published, measured = (f"{abs(gap):.1%} {'behind' if gap > 0 else 'ahead'}" for gap in gaps)
    name = others[0] if len(others) == 1 else "the best of them"
    return f"{name} is {published} in the paper, {measured} here."


def _about_ranges(rows: tuple[str, ...], test: Values) -> str:
    ranges = [f"{row} from {min(test[row]):.3f} to {max(test[row]):.3f}" for row in rows if len(test.get(row, ())) > 1]
    return f"Range over seeds: {', '.join(ranges)}." if ranges else ""


def _about_edge(rows: tuple[str, ...], edge: list[str]) -> str:
    names = ", ".join(row for row in rows if row in edge)
    return f"At the edge of the search, where another rate might be better: {names}." if names else ""


def _draw(theirs: dict[str, float], test: dict[str, list[float]]) -> "Figure":
    """Our perplexity against the published one: in the same order, points rise from left to right."""
    figure = new_figure(height=4)
    axes = figure.subplots()
    style: dict[str, Any] = {"fontsize": 8, "color": INK, "xytext": (5, 3), "textcoords": "offset points"}
    ours = means(test)
    for row in [row for row in theirs if isfinite(ours.get(row, inf))]:
        color = COLORS[1] if row == "tnn" else COLORS[0]
        axes.plot([theirs[row]] * len(test[row]), test[row], "o", color=color, markersize=5, alpha=0.8)
        axes.annotate(row, (theirs[row], ours[row]), **style)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}")
    tidy(axes, x="published: perplexity per token of WikiText-103", y="ours: perplexity per token")
    return figure


ALM_EXPERIMENT = Experiment(
    "alm",
    "Autoregressive language modelling: perplexity of every method.",
    ALM_METHODS,
    _plan,
    _conclude,
    takes_mixers=True,
)
