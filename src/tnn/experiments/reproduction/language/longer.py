"""Four times the updates: whether the order of the methods at mini scale comes of its short trainings."""

from typing import TYPE_CHECKING

from tnn.experiments.figures import COLORS, new_figure, tidy
from tnn.experiments.reproduction import published
from tnn.experiments.reproduction.harness.experiment import Experiment, Outcome, Table
from tnn.experiments.reproduction.harness.judging import collect, means
from tnn.experiments.reproduction.harness.records import Records
from tnn.experiments.reproduction.harness.trial import Options, Trial
from tnn.experiments.reproduction.language.trials import longer_trial, method_trials, search_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = ("tnn", "transformer")
TIMES = (1, 4)  # the updates of the other tables


def _trials(options: Options) -> dict[int, list[Trial]]:
    """Seed 0 of each row, by how many times the updates it has."""
    rows = options.methods or ROWS
    return {times: [_trial(row, times, options) for row in rows] for times in TIMES}


def _trial(row: str, times: int, options: Options) -> Trial:
    return method_trials(row, options)[0] if times == 1 else longer_trial("alm-longer", row, times, options)


def _plan(options: Options) -> list[Trial]:
    if options.scale == "paper":  # whose trainings are not short
        return []
    searches = [trial for row in options.methods or ROWS for trial in search_of(row, options)]
    return [*searches, *(trial for trials in _trials(options).values() for trial in trials)]


def _conclude(options: Options, records: Records) -> Outcome:
    trials = _trials(options)
    theirs = {row: numbers[1] for row, numbers in published.ALM.items() if numbers[1] is not None}
    updates = {times: found[0].settings["recipe"]["training"]["steps"] for times, found in trials.items()}
    ours = {times: means(collect(found, records, "test_perplexity")) for times, found in trials.items()}
    head = ("method", "published, test", *(f"{count:,} updates" for count in updates.values()))
    rows = [(*head, *(f"relative to TNN, {count:,}" for count in updates.values()))]
    for row in options.methods or ROWS:
        numbers = [f"{found[row]:.3f}" if row in found else "" for found in ours.values()]
        ratios = [f"{found[row] / found['tnn']:.2f}" if {row, "tnn"} <= set(found) else "" for found in ours.values()]
        rows.append((row, f"{theirs[row]:.2f}", *numbers, *ratios))
    behind = theirs["transformer"] / theirs["tnn"] - 1
    notes = (
        f"It is not in the paper, whose Transformer is {behind:.1%} behind TNN after 50,000 updates of 65,536 tokens. "
        "Seed 0; the learning rate is the one that the search of alm found.",
    )
    figure = _draw({updates[times]: found for times, found in ours.items()}) if any(ours.values()) else None
    return Outcome((Table("Perplexity per token on the test text", tuple(rows)),), figure, (), notes)


def _draw(ours: dict[int, dict[str, float]]) -> "Figure":
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
