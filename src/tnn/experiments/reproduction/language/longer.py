"""Four times the updates: what of the tables at mini scale comes of short trainings."""

from itertools import chain
from typing import TYPE_CHECKING

from tnn.experiments.figures import COLORS, new_figure, tidy
from tnn.experiments.perplexity import show
from tnn.experiments.reproduction import published
from tnn.experiments.reproduction.harness.experiment import Experiment, Outcome, Table
from tnn.experiments.reproduction.harness.judging import collect, means
from tnn.experiments.reproduction.harness.records import Records
from tnn.experiments.reproduction.harness.trial import Options, Trial
from tnn.experiments.reproduction.language.trials import lengths_trial, longer_trial, method_trials, search_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = ("tnn", "transformer", "elu")
TIMES = (1, 4)  # the updates of the other tables

ByUpdates = dict[int, dict[str, float]]  # a number of each row


def _trials(options: Options) -> dict[int, list[Trial]]:
    """Seed 0 of each row, by how many times the updates it has."""
    rows = options.methods or ROWS
    return {times: [_trial(row, times, options) for row in rows] for times in TIMES}


def _trial(row: str, times: int, options: Options) -> Trial:
    return method_trials(row, options)[0] if times == 1 else longer_trial("alm-longer", row, times, options)


def _lengths(trials: dict[int, list[Trial]], options: Options) -> dict[int, list[Trial]]:
    """Those of the shorter trainings belong to the experiment of extrapolation."""
    homes = {times: "extrapolation" if times == 1 else "alm-longer" for times in trials}
    return {times: [lengths_trial(trial, options, homes[times]) for trial in found] for times, found in trials.items()}


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # whose trainings are not short
        return []
    searches = [trial for row in options.methods or ROWS for trial in search_of(row, options)]
    trials = _trials(options)
    return [*searches, *chain(*trials.values()), *chain(*_lengths(trials, options).values())]


def _conclude(options: Options, records: Records) -> Outcome:
    trials = _trials(options)
    lengths = _lengths(trials, options)
    updates = {times: _updates(found[0]) for times, found in trials.items()}
    ours = {updates[times]: means(collect(found, records, "test_perplexity")) for times, found in trials.items()}
    growth = {updates[times]: means(collect(found, records, "longest_to_trained")) for times, found in lengths.items()}
    theirs = {row: published.ALM[row][1] or 0.0 for row in ROWS}
    notes = (
        f"It is not in the paper, whose Transformer is {theirs['transformer'] / theirs['tnn'] - 1:.1%} behind TNN "
        "after 50,000 updates of 65,536 tokens. Seed 0; the learning rate is the one that the search of alm found.",
    )
    table = _table(options.methods or ROWS, theirs, ours, growth)
    return Outcome((table,), _draw(ours) if any(ours.values()) else None, (), notes)


def _table(rows: tuple[str, ...], theirs: dict[str, float], ours: ByUpdates, growth: ByUpdates) -> Table:
    head = ["method", "published, test", *(f"{updates:,} updates" for updates in ours)]
    head += [f"relative to TNN, {updates:,}" for updates in ours]
    head += [f"at 14,336 relative to 512, {updates:,}" for updates in growth]
    table = [tuple(head)]
    for row in rows:
        cells = [row, f"{theirs[row]:.2f}", *(f"{found[row]:.3f}" if row in found else "" for found in ours.values())]
        cells += [f"{found[row] / found['tnn']:.2f}" if {row, "tnn"} <= set(found) else "" for found in ours.values()]
        cells += [show(found[row], 3) if row in found else "" for found in growth.values()]
        table.append(tuple(cells))
    return Table("Perplexity per token on the test text", tuple(table))


def _updates(trial: Trial) -> int:
    steps: int = trial.settings["recipe"]["training"]["steps"]
    return steps


def about_longer(row: str, options: Options, records: Records) -> str:
    """What four times the updates do to a method and to its extrapolation; nothing if that is not known."""
    if options.scale == "paper":
        return ""
    trial = _trial(row, TIMES[-1], options)
    (lengths,) = _lengths({TIMES[-1]: [trial]}, options)[TIMES[-1]]
    found, grown = records.find(trial), records.find(lengths)
    perplexity = None if found is None else found.metrics.get("test_perplexity")
    ratio = None if grown is None else grown.metrics.get("longest_to_trained")
    if perplexity is None or ratio is None:
        return ""
    return f"After {_updates(trial):,} updates {row} has {perplexity:.2f}, and {show(ratio, 2)} times that at 14,336."


def _draw(ours: ByUpdates) -> "Figure":
    figure = new_figure(height=3)
    axes = figure.subplots()
    for color, row in zip(COLORS, ROWS, strict=False):
        known = [updates for updates, found in ours.items() if row in found]
        axes.plot(known, [ours[updates][row] for updates in known], "o-", color=color, label=row)
    axes.set_xscale("log")
    axes.set_xticks(list(ours), [f"{updates:,}" for updates in ours])
    axes.minorticks_off()
    tidy(axes, x="updates", y="perplexity per token")
    return figure


LONGER = Experiment("alm-longer", "Language models with four times the updates.", ROWS, _plan, _conclude)
