"""Means, ranks and orders: what it takes to say whether a table agrees with the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import mean, stdev

from tnn.experiments.perplexity import show
from tnn.experiments.reproduction.harness.experiment import Verdict
from tnn.experiments.reproduction.harness.records import Records
from tnn.experiments.reproduction.harness.trial import Trial

Values = Mapping[str, Sequence[float]]  # of each row, over its seeds


def collect(trials: Iterable[Trial], records: Records, metric: str) -> dict[str, list[float]]:
    """The metric of each row, over the seeds that have been run; rows without a number are left out."""
    found: dict[str, list[float]] = {}
    for trial in {trial.key: trial for trial in trials}.values():  # each once
        record = records.find(trial)
        value = None if record is None else record.metrics.get(metric)
        if value is not None:
            found.setdefault(trial.row, []).append(value)
    return found


def means(values: Values) -> dict[str, float]:
    return {row: mean(found) for row, found in values.items()}


def spread(values: Sequence[float] | None, digits: int = 2) -> str:
    """The mean, and the standard deviation over seeds.

    >>> from tnn.experiments.reproduction.harness.judging import spread
    >>> spread([3.70, 3.72, 3.74]), spread([24.6]), spread(None)
    ('3.72 ± 0.02', '24.60', '')
    """
    if not values:
        return ""
    deviation = f" ± {show(stdev(values), digits)}" if len(values) > 1 else ""
    return show(mean(values), digits) + deviation


def ranks(values: Mapping[str, float], *, high: bool = False) -> dict[str, int]:
    """1 for the best: the lowest, or the highest.

    >>> from tnn.experiments.reproduction.harness.judging import ranks
    >>> ranks({"tnn": 24.67, "transformer": 24.78, "transformer-ls": 24.05})
    {'transformer-ls': 1, 'tnn': 2, 'transformer': 3}
    """
    ordered = sorted(values, key=lambda row: values[row], reverse=high)
    return {row: number for number, row in enumerate(ordered, start=1)}


def order_agreement(theirs: Mapping[str, float], ours: Mapping[str, float], *, opposite: bool = False) -> str:
    """How many pairs of rows stand in the same order; `opposite`: where theirs is best when low, ours is when high.

    >>> from tnn.experiments.reproduction.harness.judging import order_agreement
    >>> order_agreement({"tnn": 24.67, "transformer": 24.78, "s4": 39.66}, {"tnn": 3.7, "transformer": 3.6, "s4": 4.2})
    '2 of 3 pairs of rows are in the order of the paper (67%)'
    """
    pairs = list(combinations([row for row in theirs if row in ours], 2))
    if not pairs:
        return "there are no two rows to compare with the paper's order"
    sign = -1 if opposite else 1
    same = sum((theirs[a] - theirs[b]) * (ours[a] - ours[b]) * sign > 0 for a, b in pairs)
    return f"{same} of {len(pairs)} pairs of rows are in the order of the paper ({same / len(pairs):.0%})"


def verdict_of(conditions: Iterable[bool | None]) -> Verdict:
    """Of a claim that has parts; None is a part that was not measured.

    >>> from tnn.experiments.reproduction.harness.judging import verdict_of
    >>> verdict_of([True, False]), verdict_of([None])
    ('holds in part', 'not measured')
    """
    found = [condition for condition in conditions if condition is not None]
    if not found:
        return "not measured"
    if all(found):
        return "holds"
    return "holds in part" if any(found) else "does not hold"
