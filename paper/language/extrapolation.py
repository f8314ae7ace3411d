"""Extrapolation: models trained at one length are evaluated on blocks up to 28 times as long."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf, isfinite
from statistics import mean

from paper import published
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std, format_ppl
from paper.harness.judging import (
    Values,
    ahead,
    fully_run,
    order_agreement,
    sentences,
    verdict_of,
)
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.language.counts import about_counts, count_trials
from paper.language.longer import about_longer
from paper.language.trials import (
    ALM_METHODS,
    extrapolation_of,
    lengths_trial,
    method_trials,
    search_of,
)
from tnn.training.extrapolation import Extrapolation, draw_extrapolation
from tnn.training.perplexity import Perplexity

FLAT, BLOWN = 1.02, 1.5  # times the perplexity at the training length: at most, and at least
NEAR = 1.1  # times another average: comparable; 1.06 in the paper
BLOW_UP = (
    "transformer",
    "elu",
    "performer",
    "cosformer",
    "synthesizer-dense",
    "synthesizer-random",
    "gmlp",
    "flash-quad",
)


def _plan(options: Options) -> list[Trial]:
    trials: list[Trial] = []
    for row in options.methods or ALM_METHODS:
        trained = method_trials(row, options)
        trials += [*search_of(row, options), *trained, *(lengths_trial(trial, options) for trial in trained)]
    return [*trials, *count_trials(options)]


def _conclude(options: Options, records: Records) -> Outcome:
    trials = [
        lengths_trial(trial, options) for row in options.methods or ALM_METHODS for trial in method_trials(row, options)
    ]
    runs = _runs(trials, records)
    averages = {row: [run.average for run in several] for row, several in runs.items()}
    ours = {row: mean(values) for row, values in averages.items()}
    trained = {row: mean(run.perplexities[0].per_token for run in several) for row, several in runs.items()}
    theirs = published.EXTRAPOLATION_AVERAGE
    head = ("method", "published average", "relative to 512", "our average", "ours relative to 512", "ours at 14,336")
    rows = [head]
    for row in sorted(runs, key=lambda row: ours[row]):
        known = "" if row not in theirs else format_ppl(theirs[row], 2)
        their_ratio = "" if row not in theirs else format_ppl(theirs[row] / _published(row)[0], 2)
        longest = [run.perplexities[-1].per_token for run in runs[row]]
        rows.append(
            (
                row,
                known,
                their_ratio,
                format_mean_std(averages[row]),
                format_ppl(ours[row] / trained[row], 2),
                format_mean_std(longest),
            )
        )
    notes = (
        f"Order: {order_agreement(theirs, ours)}.",
        "The paper's table has the columns of S4 and GSS swapped; here they are corrected. "
        "Judging by its perplexity, the paper's FLASH is FLASH-QUAD.",
    )
    ends = _judged(trials, records, lambda run: run.ratios[-1])
    small = {row: trained[row] for row in BLOW_UP if row in ends and not _blown(ends[row])}
    checked = [_about_small(small), *about_counts(options, records), about_longer(["elu"], options, records)]
    middle = {row: _in_the_middle(several) for row, several in runs.items()}
    tables = (Table("Perplexity per token, averaged over 19 lengths from 512 to 14,336", tuple(rows)), _all(middle))
    figure = partial(draw_extrapolation, middle) if middle else None
    claims = (
        *_flat_claims(_judged(trials, records, lambda run: max(run.ratios)), ends),
        _blow_up_claim(ends, sentences(*checked) if small else ""),
        _best_claim(_judged(trials, records, lambda run: run.average)),
    )
    return Outcome(tables, figure, claims, notes)


def _published(row: str) -> list[float]:
    return [number for number in published.EXTRAPOLATION[row] if number is not None]


def _runs(trials: list[Trial], records: Records) -> dict[str, list[Extrapolation]]:
    """By row, for the seeds whose training did not fail."""
    runs: dict[str, list[Extrapolation]] = {}
    for trial in trials:
        if (record := records.find(trial)) is not None and "failed" not in record.metrics:
            runs.setdefault(trial.row, []).append(extrapolation_of(record))
    return runs


def _judged(trials: list[Trial], records: Records, measure: Callable[[Extrapolation], float]) -> Values:
    """By row, if all its seeds have been run; a training that failed counts as infinite."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        if (record := records.find(trial)) is not None:
            value = inf if "failed" in record.metrics else measure(extrapolation_of(record))
            values.setdefault(trial.row, []).append(value)
    return fully_run(values, trials)


def _in_the_middle(several: list[Extrapolation]) -> Extrapolation:
    """The mean of the losses over seeds, at each length."""
    columns = zip(*(run.perplexities for run in several), strict=True)
    perplexities = [
        Perplexity(column[0].length, mean(entry.loss for entry in column), column[0].tokens) for column in columns
    ]
    return Extrapolation(several[0].train_length, tuple(perplexities))


def _all(runs: dict[str, Extrapolation]) -> Table:
    """One row per length, one column per method, as in the paper."""
    columns = [[format_ppl(entry.per_token, 2) for entry in run.perplexities] for run in runs.values()]
    lengths = next((run.lengths for run in runs.values()), [])
    rows = [(f"{length:,}", *cells) for length, *cells in zip(lengths, *columns, strict=True)]
    return Table("Our perplexity at each length, mean over seeds", (("length", *runs), *rows))


def _blown(ratios: Sequence[float]) -> bool:
    """In every seed."""
    return all(ratio >= BLOWN or not isfinite(ratio) for ratio in ratios)


def _about_small(trained: dict[str, float]) -> str:
    """About the rows that do not blow up: their perplexity at the training length."""
    if not trained:
        return ""
    numbers = ", ".join(f"{row} {format_ppl(value, 2)}" for row, value in trained.items())
    return f"methods that do not blow up are poor at 512 already, and have little to lose beyond it ({numbers})."


def _numbers(values: Values, rows: Iterable[str], digits: int) -> str:
    numbers = [
        f"{row} {', '.join(format_ppl(value, digits) for value in values[row])}" for row in rows if row in values
    ]
    return "; ".join(numbers) or "not measured"


def _flat_claims(peaks: Values, ends: Values) -> tuple[Claim, ...]:
    texts = {
        "tnn": f"TNN's perplexity stays flat to 28 times the training length (at most {FLAT} times that at 512).",
        "alibi": "ALiBi's perplexity stays flat as well.",
    }
    return tuple(
        Claim(
            text,
            verdict_of([all(peak <= FLAT for peak in peaks[row]) if row in peaks else None]),
            f"perplexity relative to 512, at 14,336: {_numbers(ends, [row], 3)}; "
            f"maximum over all lengths: {_numbers(peaks, [row], 3)}",
        )
        for row, text in texts.items()
    )


def _blow_up_claim(ends: Values, checked: str) -> Claim:
    return Claim(
        "The Transformer, 1+elu, Performer, cosFormer, both Synthesizers, gMLP and FLASH blow up "
        f"(at least {BLOWN} times that at 512).",
        verdict_of(_blown(ends[row]) if row in ends else None for row in BLOW_UP),
        f"perplexity at 14,336 relative to 512: {_numbers(ends, BLOW_UP, 3)}",
        checked,
    )


def _best_claim(averages: Values) -> Claim:
    theirs = published.EXTRAPOLATION_AVERAGE
    others = [row for row in theirs if row not in ("tnn", "alibi")]
    near = mean(averages["tnn"]) <= NEAR * mean(averages["alibi"]) if {"tnn", "alibi"} <= set(averages) else None
    best = sorted((row for row in others if row in averages), key=lambda row: mean(averages[row]))[:3]
    return Claim(
        "On average over all lengths, TNN is better than all methods except ALiBi, and comparable to ALiBi "
        f"(at most {NEAR} times its perplexity).",
        verdict_of([*ahead(averages, "tnn", others), near]),
        f"averages of the seeds: {_numbers(averages, ['tnn', 'alibi'], 3)}; the best of the others: "
        f"{_numbers(averages, best, 3)}",
        f"{best[0]} is {theirs[best[0]] / theirs['tnn'] - 1:.1%} behind in the paper." if best else "",
    )


EXTRAPOLATION_EXPERIMENT = Experiment(
    "extrapolation",
    "Perplexity at 19 lengths, up to 28 times the training length.",
    ALM_METHODS,
    _plan,
    _conclude,
    takes_mixers=True,
)
