"""How many lags a decayed kernel needs. This is known before any coefficient is computed."""

import math
from typing import NamedTuple

from tnn._checks import check_fraction, check_tolerance


class Bandwidth(NamedTuple):
    """`lags` to keep (None: all), and `tail`, a bound on what is dropped per unit of the largest coefficient."""

    lags: int | None
    tail: float


def effective_bandwidth(decay: float, tolerance: float = 1e-6, *, causal: bool = False) -> Bandwidth:
    """The smallest number of lags w of a kernel t_i * decay^|i| whose tail is at most `tolerance`.

    If |t_i| <= M at every lag, keeping lags below w (in each direction) drops coefficients whose absolute sum is
    at most `tail * M`, where tail = decay^w / (1 - decay), or twice that if not causal. Hence
    |y - y_cut| <= tail * M * max|x| for any length. Without decay, or with tolerance 0, every lag is needed.

    >>> from tnn.ops import effective_bandwidth
    >>> effective_bandwidth(0.99, 1e-6, causal=True)
    Bandwidth(lags=1833, tail=9.98...e-07)
    >>> effective_bandwidth(1.0)
    Bandwidth(lags=None, tail=0.0)
    """
    check_fraction("decay", decay)
    check_tolerance("tolerance", tolerance)
    if decay == 0:
        return Bandwidth(1, 0.0)  # 0^0 = 1: only lag 0 remains
    if decay == 1 or tolerance == 0:
        return Bandwidth(None, 0.0)
    sides = 1 if causal else 2

    def tail(lags: int) -> float:
        return sides * decay**lags / (1 - decay)

    log_share = math.log(tolerance) + math.log(1 - decay) - math.log(sides)
    lags = max(1, math.ceil(log_share / math.log(decay)))
    while tail(lags) > tolerance:  # the logarithms rounded the wrong way
        lags += 1
    return Bandwidth(lags, tail(lags))
