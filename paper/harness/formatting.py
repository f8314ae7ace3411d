"""Numbers as tables show them."""

from collections.abc import Sequence
from math import isfinite
from statistics import mean, stdev

from tnn.training.perplexity import format_ppl
from tnn.training.report import format_time

__all__ = ["format_mean_std", "format_ppl", "format_time"]


def format_mean_std(values: Sequence[float] | None, digits: int = 2) -> str:
    """The mean and the standard deviation over seeds; diverged trainings are counted.

    >>> from paper.harness.formatting import format_mean_std
    >>> format_mean_std([3.70, 3.72, 3.74]), format_mean_std([24.6]), format_mean_std(None)
    ('3.72 ± 0.02', '24.60', '')
    >>> format_mean_std([3.70, 3.72, float("inf")]), format_mean_std([float("nan")])
    ('3.71 ± 0.01 (1 of 3 diverged)', 'diverged')
    """
    if not values:
        return ""
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return "diverged"
    text = format_ppl(mean(finite), digits)
    if len(finite) > 1:
        text += f" ± {format_ppl(stdev(finite), digits)}"
    return text if len(finite) == len(values) else f"{text} ({len(values) - len(finite)} of {len(values)} diverged)"
