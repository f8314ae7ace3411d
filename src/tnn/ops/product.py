"""The product and its gradient as two torch operators that call each other, whatever the backend.

    y = convolve(x, k):       y_i = sum_m k_m x_{i - (m - future)}
    c = correlate(x, g):      c_m = sum over rows and i of g_i x_{i - (m - future)}, the gradient of k

Each is linear in both arguments, and the derivatives of either are values of the other or of itself, so derivatives
of any order come from the two formulas below. To torch.compile and torch.export they are opaque: one graph serves every
length, and the choice of FFT length and backend is made when it runs.
"""

from typing import Any

import torch
from torch import Tensor

from tnn._precision import no_autocast
from tnn.ops import banded, dense, direct, fft
from tnn.ops.lags import fit

MODULES = {"dense": dense, "fft": fft, "banded": banded}

# Crossovers measured by benchmarks/crossovers.py (results/crossovers.md).
DIRECT_MAX_LAGS = 64


def kept(lags: int, future: int, n: int) -> tuple[int, int]:
    """Past and future of the lags that a sequence of n positions has."""
    return min(lags - 1 - future, n - 1), min(future, n - 1)


@torch.library.custom_op("tnn::toeplitz_convolve", mutates_args=())
def convolve(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
    if x.numel() == 0:
        return torch.zeros_like(x)
    past, ahead = kept(kernel.shape[0], future, x.shape[-2])
    kernel = fit(kernel, future, to_past=past, to_future=ahead)
    with no_autocast(x.device):
        return _module(backend, x, kernel.shape[0], convolving=True).convolve(x, kernel, ahead).contiguous()


@torch.library.custom_op("tnn::toeplitz_correlate", mutates_args=())
def correlate(x: Tensor, g: Tensor, lags: int, future: int, backend: str) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(lags, x.shape[-1])
    past, ahead = kept(lags, future, x.shape[-2])
    with no_autocast(x.device):
        found = _module(backend, x, past + ahead + 1, convolving=False).correlate(x, g, past + ahead + 1, ahead)
    return fit(found, ahead, to_past=lags - 1 - future, to_future=future).contiguous()


def _module(backend: str, x: Tensor, lags: int, *, convolving: bool) -> Any:
    if backend != "auto":
        return MODULES[backend]
    if convolving and x.device.type == "cpu" and lags <= DIRECT_MAX_LAGS:
        return direct
    return banded if lags < x.shape[-2] else fft


@convolve.register_fake
def _(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
    return x.new_empty(x.shape)


@correlate.register_fake
def _(x: Tensor, g: Tensor, lags: int, future: int, backend: str) -> Tensor:
    return x.new_empty(lags, x.shape[-1])


def _save_convolve(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, kernel, ctx.future, ctx.backend = inputs
    ctx.lags = kernel.shape[0]
    needs_x, needs_kernel = ctx.needs_input_grad[:2]
    ctx.save_for_backward(x if needs_kernel else None, kernel if needs_x else None)


def _convolve_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
    x, kernel = ctx.saved_tensors
    grad_x = grad_kernel = None
    if kernel is not None:
        grad_x = convolve(grad, kernel.flip(0), ctx.lags - 1 - ctx.future, ctx.backend)
    if x is not None:
        grad_kernel = correlate(x, grad, ctx.lags, ctx.future, ctx.backend)
    return grad_x, grad_kernel, None, None


def _save_correlate(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, g, ctx.lags, ctx.future, ctx.backend = inputs
    needs_x, needs_g = ctx.needs_input_grad[:2]
    ctx.save_for_backward(x if needs_g else None, g if needs_x else None)


def _correlate_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
    x, g = ctx.saved_tensors
    grad_x = grad_g = None
    if g is not None:
        grad_x = convolve(g, grad.flip(0), ctx.lags - 1 - ctx.future, ctx.backend)
    if x is not None:
        grad_g = convolve(x, grad, ctx.future, ctx.backend)
    return grad_x, grad_g, None, None, None


convolve.register_autograd(_convolve_gradient, setup_context=_save_convolve)
correlate.register_autograd(_correlate_gradient, setup_context=_save_correlate)
