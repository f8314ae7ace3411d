"""The product in operations that ONNX has: one convolution, which the ONNX exporter puts in place of our operator.

A depthwise convolution with one output channel per input channel is a product of a vector and a matrix, which runtimes
compute slowly. With a stride, and one output channel for each of the positions it skips, it is a product of matrices.
"""

import torch.nn.functional as F
from torch import Tensor

STRIDE = 16  # more is faster for long kernels, but takes as many copies of the kernel


def convolve(x: Tensor, kernel: Tensor, future: int, backend: str = "auto") -> Tensor:
    """The value of `tnn::toeplitz_convolve`, for any length and any number of lags in one graph."""
    n, d = x.shape[-2:]
    lags = kernel.shape[0]
    steps = (n + STRIDE - 1) // STRIDE
    rows = F.pad(x.reshape(-1, n, d).mT, (lags - 1 - future, future + steps * STRIDE - n))
    y = F.conv1d(rows, _shifted(kernel.flip(0).T), stride=STRIDE, groups=d)  # (rows, d * STRIDE, steps)
    return y.unflatten(1, (d, STRIDE)).mT.flatten(2)[..., :n].mT.reshape(x.shape)


def _shifted(kernel: Tensor) -> Tensor:
    """(d, lags) -> (d * STRIDE, 1, lags + STRIDE - 1): each row STRIDE times, every time one position further right.

    Copies of a row with STRIDE zeros behind it, read in rows that are one shorter, start one position later each.
    """
    d, lags = kernel.shape
    copies = F.pad(kernel, (0, STRIDE)).unsqueeze(1).expand(d, STRIDE, lags + STRIDE).flatten(1)
    width = lags + STRIDE - 1
    return copies[:, : STRIDE * width].reshape(d * STRIDE, 1, width)
