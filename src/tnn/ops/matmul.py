"""The public Toeplitz product."""

from collections.abc import Callable

import torch
from torch import Tensor

from tnn._checks import check_choice, check_sequence
from tnn._precision import compute_dtype
from tnn.ops import transforms
from tnn.ops.lags import check_coefficients, future_of
from tnn.ops.product import BACKENDS, convolve, export_convolve


def toeplitz_matmul(x: Tensor, coefficients: Tensor, *, causal: bool = False, backend: str = "auto") -> Tensor:
    """y[..., i, c] = sum_j t[i - j, c] * x[..., j, c]: one Toeplitz matrix per channel, applied along the sequence.

    `x` is (..., n, d). `coefficients` is (w, d) with lags 0 .. w-1 when causal, else (2w-1, d) with lags
    -(w-1) .. w-1. Missing lags are zero, lags past n - 1 are ignored. Differentiable in both arguments, any number of
    times, in reverse and forward mode and by torch.func. float16 and bfloat16 are computed in float32, float64 in
    float64; the result has the dtype of `x`.

    `backend`: "dense" (the matrix itself, O(n^2)), "fft" (O(n log n)), "banded" (overlap-save, linear in n), "native"
    (overlap-save in C++ for float32 on CPU; other inputs use a torch backend), or "auto", the one that was measured to
    be fastest. `tnn.ops.backends()` shows which are available.

    >>> import torch
    >>> from tnn.ops import toeplitz_matmul
    >>> x = torch.tensor([[1.0], [2.0], [3.0]])                                # n = 3, d = 1
    >>> moving_sum = torch.tensor([[1.0], [1.0]])                              # lags 0 and 1
    >>> toeplitz_matmul(x, moving_sum, causal=True, backend="dense").T
    tensor([[1., 3., 5.]])
    """
    check_coefficients(coefficients, causal)
    check_sequence("x", x, channels=coefficients.shape[1])
    check_choice("backend", backend, BACKENDS)
    if x.device != coefficients.device:
        raise ValueError(f"x and coefficients must share a device; got {x.device} and {coefficients.device}")
    product: Callable[..., Tensor] = export_convolve if torch.compiler.is_exporting() else convolve
    if transforms.active(x, coefficients):
        product = transforms.convolve
    dtype = compute_dtype(x, coefficients)
    return product(x.to(dtype), coefficients.to(dtype), future_of(coefficients, causal), backend).to(x.dtype)
