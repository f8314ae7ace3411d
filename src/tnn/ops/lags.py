"""The convention for coefficients.

Callers pass causal coefficients (w, d) with lags 0 .. w-1, or bidirectional ones (2w-1, d) with lags -(w-1) .. w-1.
Internally, a kernel is (lags, d) together with `future`, the number of negative lags: kernel[m] belongs to lag
m - future. A positive lag i - j looks into the past: output i takes t_{i-j} times input j. The transposed matrix has
the flipped kernel, with past and future exchanged.
"""

import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_float


def check_coefficients(coefficients: Tensor, causal: bool) -> None:
    check_float("coefficients", coefficients)
    wanted = "(lags, channels)" if causal else "(2 * lags - 1, channels)"
    if coefficients.ndim != 2:
        raise ValueError(f"coefficients must have shape {wanted}; got {tuple(coefficients.shape)}")
    count = coefficients.shape[0]
    if count == 0:
        raise ValueError(f"coefficients must hold at least lag 0; got shape {tuple(coefficients.shape)}")
    if not causal and count % 2 == 0:
        raise ValueError(
            f"bidirectional coefficients must have an odd number of rows, lags -(w-1) .. w-1; got {count} "
            "(pass causal=True for lags 0 .. w-1)"
        )


def future_of(coefficients: Tensor, causal: bool) -> int:
    return 0 if causal else coefficients.shape[0] // 2


def fit(kernel: Tensor, future: int, to_past: int, to_future: int) -> Tensor:
    """The kernel with exactly the lags -to_future .. to_past: missing lags are zero, others are dropped."""
    past = kernel.shape[0] - 1 - future
    return F.pad(kernel, (0, 0, to_future - future, to_past - past))  # a negative pad crops
