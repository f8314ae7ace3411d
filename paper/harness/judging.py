"""Means, ranks and orders: how a table is compared with the paper's."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import mean

from paper.harness.experiment import Verdict
from paper.harness.records import Records
from paper.harness.trial import Trial

Values = Mapping[str, Sequence[float]]  # of each row, over its seeds


def collect(
    trials: Iterable[Trial], records: Records, metric: str, *, diverged: float | None = None
) -> dict[str, list[float]]:
    """The metric of each row, for the seeds that have been run; rows without a number are left out.

    A training that failed has no number, and a number that was not finite is null: `diverged` replaces both.
    """
    values = by_seed(trials, records, metric, diverged=diverged)
    return {row: list(seeds.values()) for row, seeds in values.items()}


def by_seed(
    trials: Iterable[Trial], records: Records, metric: str, *, diverged: float | None = None
) -> dict[str, dict[int, float]]:
    """The same, by seed."""
    values: dict[str, dict[int, float]] = {}
    for trial in trials:
        if (record := records.find(trial)) is None:
            continue
        value = record.metrics.get(metric)
        if value is None and ("failed" in record.metrics or metric in record.metrics):
            value = diverged
        if value is not None:
            values.setdefault(trial.row, {})[trial.seed] = value
    return values


def means(values: Values) -> dict[str, float]:
    return {row: mean(several) for row, several in values.items()}


def fully_run(values: dict[str, list[float]], trials: Iterable[Trial]) -> dict[str, list[float]]:
    """The rows that have a value for each of their seeds: a claim is judged only when all seeds have run."""
    wanted = Counter(trial.row for trial in trials)
    return {row: several for row, several in values.items() if len(several) == wanted[row]}


def at_the_edge(rates: Values, tried: Iterable[float]) -> list[str]:
    """The rows whose best learning rate is the lowest or highest that was tried: one outside may be better.

    >>> from paper.harness.judging import at_the_edge
    >>> at_the_edge({"tnn": [0.003], "s4": [0.009]}, (0.001, 0.003, 0.009))
    ['s4']
    """
    edge = {min(tried), max(tried)}
    return sorted(row for row, taken in rates.items() if edge & set(taken))


def ranks(values: Mapping[str, float], *, high: bool = False) -> dict[str, int]:
    """1 for the best: the lowest, or the highest.

    >>> from paper.harness.judging import ranks
    >>> ranks({"tnn": 24.67, "transformer": 24.78, "transformer-ls": 24.05})
    {'transformer-ls': 1, 'tnn': 2, 'transformer': 3}
    """
    ordered = sorted(values, key=lambda row: values[row], reverse=high)
    return {row: number for number, row in enumerate(ordered, start=1)}


def order_agreement(theirs: Mapping[str, float], ours: Mapping[str, float]) -> str:
    """How many pairs of rows are in the same order; pairs that are equal in one of the two tables do not count.

    >>> from paper.harness.judging import order_agreement
    >>> order_agreement({"tnn": 24.67, "transformer": 24.78, "s4": 39.66}, {"tnn": 3.7, "transformer": 3.6, "s4": 4.2})
    '2 of 3 pairs of rows are in the order of the paper (67%)'
    >>> order_agreement({"tnn": 49.85, "transformer": 38.63}, {"tnn": 0.0, "transformer": 0.0})
    "there are no two rows to compare with the paper's order"
    """
    same = same_order(theirs, ours)
    if not same:
        return "there are no two rows to compare with the paper's order"
    return f"{sum(same)} of {len(same)} pairs of rows are in the order of the paper ({sum(same) / len(same):.0%})"


def same_order(theirs: Mapping[str, float], ours: Mapping[str, float]) -> list[bool]:
    """For each pair of rows, whether its order is the same; rows that are equal have no order."""
    pairs = combinations([row for row in theirs if row in ours], 2)
    return [
        (theirs[a] < theirs[b]) == (ours[a] < ours[b])
        for a, b in pairs
        if theirs[a] != theirs[b] and ours[a] != ours[b]
    ]


def sentences(*several: str) -> str:
    """The texts that are not empty, as one text."""
    return " ".join(filter(None, several))


def ahead(values: Values, best: str, others: Iterable[str]) -> list[bool | None]:
    """Whether `best` is below each of the other rows: in all seeds, and on average. For `verdict_of`.

    >>> from paper.harness.judging import ahead
    >>> ahead({"tnn": [3.6, 3.8], "s4": [4.0], "gss": [3.75]}, "tnn", ["s4", "gss", "dss"])
    [True, True, False, True, None]
    """
    conditions: list[bool | None] = []
    for other in others:
        if best in values and other in values:
            conditions += [max(values[best]) < min(values[other]), mean(values[best]) < mean(values[other])]
        else:
            conditions.append(None)
    return conditions


def ahead_in_every_seed(values: Values, best: str, others: Iterable[str]) -> list[bool | None]:
    """Whether `best` is below each of the other rows with the same seed. For `verdict_of`.

    >>> from paper.harness.judging import ahead_in_every_seed
    >>> ahead_in_every_seed({"tnn": [3.6, 3.8], "s4": [3.7, 4.0], "gss": [3.9, 3.7]}, "tnn", ["s4", "gss", "dss"])
    [True, True, True, False, None]
    """
    conditions: list[bool | None] = []
    for other in others:
        if best in values and other in values:
            conditions += [ours < theirs for ours, theirs in zip(values[best], values[other], strict=True)]
        else:
            conditions.append(None)
    return conditions


def verdict_of(conditions: Iterable[bool | None]) -> Verdict:
    """The verdict on a claim that has parts; None is a part that was not measured and could change the verdict.

    >>> from paper.harness.judging import verdict_of
    >>> verdict_of([True, True]), verdict_of([True, False, None]), verdict_of([True, None])
    ('holds', 'holds in part', 'not measured')
    """
    distinct = set(conditions)
    if {True, False} <= distinct:
        return "holds in part"
    if None in distinct or not distinct:
        return "not measured"
    return "holds" if True in distinct else "does not hold"
