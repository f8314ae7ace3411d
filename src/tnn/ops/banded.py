"""A Toeplitz product with fewer lags than positions by overlap-save: linear in n at a fixed FFT length."""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


@lru_cache(maxsize=1024)
def block_fft_length(n: int, lags: int) -> int:
    """The FFT length F with the least work for n outputs: blocks x F log F, where a block gives F - lags + 1 outputs.

    Candidates are powers of two, from one that wastes half of each transform to one that covers everything in a single
    block. For overlapping blocks they are faster than other lengths that fit more closely.
    """
    shortest, longest = (2 * lags - 1).bit_length(), (n + lags - 2).bit_length()
    candidates = [1 << bits for bits in range(shortest, max(shortest, longest) + 1)]
    return min(candidates, key=lambda size: math.ceil(n / (size - lags + 1)) * size * math.log2(size))


def frames_of(x: Tensor, lags: int, future: int, size: int) -> Tensor:
    """The inputs that each block of outputs needs: (..., d, blocks, size), one frame every size - lags + 1 positions.

    Outputs s .. s+block-1 need inputs s-past .. s+block-1+future: the block of inputs that starts at s+future, and the
    last lags - 1 = past+future inputs of the block before it.
    """
    n = x.shape[-2]
    block = size - lags + 1  # at least lags, so two blocks of input are enough
    blocks = math.ceil(n / block)
    rows = F.pad(x.mT, (block - future, blocks * block - n + future)).unflatten(-1, (blocks + 1, block))
    return torch.cat([rows[..., :-1, block - lags + 1 :], rows[..., 1:, :]], dim=-1)


def convolve(x: Tensor, kernel: Tensor, future: int) -> Tensor:
    n, lags = x.shape[-2], kernel.shape[0]
    size = block_fft_length(n, lags)
    spectrum = torch.fft.rfft(frames_of(x, lags, future, size))
    spectrum = spectrum * torch.fft.rfft(kernel.mT, size).unsqueeze(-2)  # (..., d, blocks, size / 2 + 1)
    # The first lags - 1 results of a frame wrap around; the rest are exact.
    return torch.fft.irfft(spectrum, size)[..., lags - 1 :].flatten(-2)[..., :n].mT


def correlate(x: Tensor, g: Tensor, lags: int, future: int) -> Tensor:
    n, d = x.shape[-2:]
    size = block_fft_length(n, lags)
    block = size - lags + 1
    frames = frames_of(x, lags, future, size)
    blocks = frames.shape[-2]
    # g is placed where a frame has its exact results, so no product with x wraps around within `lags`.
    outputs = F.pad(F.pad(g.mT, (0, blocks * block - n)).unflatten(-1, (blocks, block)), (lags - 1, 0))
    spectrum = torch.fft.rfft(frames).conj_physical() * torch.fft.rfft(outputs)
    total = spectrum.reshape(-1, d, blocks, size // 2 + 1).sum((0, 2))  # one inverse for all rows and blocks
    return torch.fft.irfft(total, size)[:, :lags].T
