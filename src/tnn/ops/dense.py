"""The Toeplitz matrix itself: the reference that every other backend is tested against; also used for plots."""

import torch
from torch import Tensor

from tnn._checks import check_positive
from tnn.ops.lags import check_coefficients, fit, future_of


def toeplitz_matrix(coefficients: Tensor, n: int, *, causal: bool = False) -> Tensor:
    """The matrices T with T[c, i, j] = t_{i-j} of channel c, shape (d, n, n).

    `coefficients` is (w, d) with lags 0 .. w-1 when causal, else (2w-1, d) with lags -(w-1) .. w-1.
    Missing lags are zero, lags past n - 1 are ignored.

    >>> import torch
    >>> from tnn.ops import toeplitz_matrix
    >>> toeplitz_matrix(torch.tensor([[5.0], [6.0], [7.0]]), 3)[0]    # lags -1, 0, 1
    tensor([[6., 5., 0.],
            [7., 6., 5.],
            [0., 7., 6.]])
    """
    check_coefficients(coefficients, causal)
    check_positive("n", n)
    return matrix(coefficients, future_of(coefficients, causal), n)


def matrix(kernel: Tensor, future: int, n: int) -> Tensor:
    all_lags = fit(kernel, future, to_past=n - 1, to_future=n - 1)  # (2n-1, d)
    return all_lags.T[:, lag_of_pairs(n, kernel.device) + n - 1]


def lag_of_pairs(n: int, device: torch.device) -> Tensor:
    position = torch.arange(n, device=device)
    return position[:, None] - position  # (n, n): i - j


def convolve(x: Tensor, kernel: Tensor, future: int) -> Tensor:
    return torch.einsum("dij,...jd->...id", matrix(kernel, future, x.shape[-2]), x)


def correlate(x: Tensor, g: Tensor, lags: int, future: int) -> Tensor:
    n, d = x.shape[-2:]
    pairs = torch.einsum("bid,bjd->ijd", g.reshape(-1, n, d), x.reshape(-1, n, d))  # g_i x_j, summed over rows
    every_lag = x.new_zeros(2 * n - 1, d)
    every_lag.index_add_(0, (lag_of_pairs(n, x.device) + n - 1).flatten(), pairs.flatten(0, 1))
    return fit(every_lag, future=n - 1, to_past=lags - 1 - future, to_future=future)
