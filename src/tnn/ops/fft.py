"""A Toeplitz product by the circulant embedding of the paper's theorem, in O(n log n)."""

from functools import lru_cache

import torch
from torch import Tensor

from tnn.ops.lags import fit


@lru_cache(maxsize=1024)
def fast_length(minimum: int) -> int:
    """The smallest even length of at least `minimum` with no prime factors but 2, 3 and 5, where FFTs are fast.

    >>> fast_length(2 * 4099)
    8640
    """
    best = 1 << max(1, (minimum - 1).bit_length())
    power_of_5 = 1
    while 2 * power_of_5 < best:
        odd = power_of_5
        while 2 * odd < best:
            twos = 2
            while odd * twos < minimum:
                twos *= 2
            best = min(best, odd * twos)
            odd *= 3
        power_of_5 *= 5
    return best


def circulant_column(kernel: Tensor, future: int, n: int, size: int) -> Tensor:
    """First column of a circulant matrix of `size` >= 2n whose leading n x n block is the Toeplitz matrix, (size, d).

    Lags 0 .. n-1, then the free entry c_n = t_0 of the theorem, zeros up to `size`, then lags -(n-1) .. -1.
    """
    lags = fit(kernel, future, to_past=n - 1, to_future=n - 1)  # (2n-1, d)
    ahead, back = lags[: n - 1], lags[n - 1 :]
    return torch.cat([back, back[:1], lags.new_zeros(size - 2 * n, lags.shape[1]), ahead])


# Channels first throughout: a transform along contiguous memory is about twice as fast as one along the sequence axis.


def convolve(x: Tensor, kernel: Tensor, future: int) -> Tensor:
    n = x.shape[-2]
    size = fast_length(2 * n)
    column = circulant_column(kernel, future, n, size)
    spectrum = torch.fft.rfft(x.mT, size) * torch.fft.rfft(column.mT)  # (..., d, size / 2 + 1)
    return torch.fft.irfft(spectrum, size)[..., :n].mT


def correlate(x: Tensor, g: Tensor, lags: int, future: int) -> Tensor:
    n, d = x.shape[-2:]
    size = fast_length(2 * n)
    # conj() only sets a flag, which is ignored when an operator runs below torch's dispatcher.
    spectrum = torch.fft.rfft(x.mT, size).conj_physical() * torch.fft.rfft(g.mT, size)
    by_lag = torch.fft.irfft(spectrum.reshape(-1, d, size // 2 + 1).sum(0), size)  # (d, size): lag l at l mod size
    return torch.cat([by_lag[:, size - future :], by_lag[:, : lags - future]], dim=1).T
