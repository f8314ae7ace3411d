"""The product and its gradient as two torch operators that call each other, whatever the backend.

    y = convolve(x, k):       y_i = sum_m k_m x_{i - (m - future)}
    c = correlate(x, g):      c_m = sum over rows and i of g_i x_{i - (m - future)}, the gradient of k

Each is linear in both arguments, and its derivatives are again values of these two operators, so derivatives of any
order come from the two formulas below. They are opaque to torch.compile and torch.export: one graph works for every
length, and the FFT length and the backend are chosen when it runs. Only the ONNX exporter replaces the first, by
operations that ONNX has. For that, an exported graph holds `export_convolve`, which is `convolve` under a second name.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import register_decomposition

from tnn._precision import no_autocast
from tnn.ops import banded, dense, direct, fft, native, strided
from tnn.ops.lags import fit
from tnn.ops.tiles import tiles

MODULES = {"dense": dense, "fft": fft, "banded": banded, "native": native}
BACKENDS = ("auto", *MODULES)
DIRECT_MAX_LAGS = 64


@torch.library.custom_op("tnn::toeplitz_convolve", mutates_args=())
def convolve(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
    if x.numel() == 0:
        return torch.zeros_like(x)
    n, d = x.shape[-2:]
    past, ahead = _reach(n, kernel.shape[0], future)
    kernel = kernel[future - ahead : future + past + 1]
    rows = x.reshape(-1, n, d)
    module = _choose(backend, rows, past + 1 + ahead, _fastest)
    if module is native:
        return native.convolve(rows, kernel, ahead).reshape(x.shape)
    y = x.new_empty(rows.shape)
    with no_autocast(x.device):
        for row, channel in tiles(rows):
            y[row, :, channel] = module.convolve(rows[row, :, channel], kernel[:, channel], ahead)
    return y.reshape(x.shape)


@torch.library.custom_op("tnn::toeplitz_correlate", mutates_args=())
def correlate(x: Tensor, g: Tensor, lags: int, future: int, backend: str) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(lags, x.shape[-1])
    n, d = x.shape[-2:]
    past, ahead = _reach(n, lags, future)
    rows, g = x.reshape(-1, n, d), g.reshape(-1, n, d)
    module = _choose(backend, rows, past + 1 + ahead, _fastest_gradient)
    if module is native:
        c = native.correlate(rows, g, past + 1 + ahead, ahead)
    else:
        c = x.new_zeros(past + 1 + ahead, d)
        with no_autocast(x.device):
            for row, channel in tiles(rows):
                at = (row, slice(None), channel)
                c[:, channel] += module.correlate(rows[at], g[at], past + 1 + ahead, ahead)
    return c if c.shape[0] == lags else fit(c, ahead, to_past=lags - 1 - future, to_future=future)


def _reach(n: int, lags: int, future: int) -> tuple[int, int]:
    """The largest past and future lags that occur among n positions and that the kernel has."""
    return min(lags - 1 - future, n - 1), min(future, n - 1)


def _choose(backend: str, x: Tensor, lags: int, fastest: Callable[[Tensor, int], Any]) -> Any:
    if backend == "auto" or (backend == "native" and not native.serves(x, lags)):
        return fastest(x, lags)
    return MODULES[backend]


# The choices of "auto", from the crossovers that benchmarks/crossovers.py measures (results/crossovers.md).


def _fastest(x: Tensor, lags: int) -> Any:
    if native.serves(x, lags):
        return native
    if x.device.type == "cpu" and lags <= DIRECT_MAX_LAGS:
        return direct
    return banded if lags < x.shape[-2] else fft


def _fastest_gradient(x: Tensor, lags: int) -> Any:
    if native.serves(x, lags):
        return native
    return banded if 16 * lags <= x.shape[-2] else fft


def backends() -> dict[str, str]:
    """Every backend of `toeplitz_matmul`, and whether it is available or why not.

    >>> from tnn.ops import backends
    >>> backends()["fft"]
    'available'
    """
    return {name: native.load()[1] if name == "native" else "available" for name in MODULES}


@convolve.register_fake
def _convolve_shape(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
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


@torch.library.custom_op("tnn::toeplitz_export_convolve", mutates_args=())
def export_convolve(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
    return convolve(x, kernel, future, backend)


export_convolve.register_fake(_convolve_shape)
convolve.register_autograd(_convolve_gradient, setup_context=_save_convolve)
export_convolve.register_autograd(_convolve_gradient, setup_context=_save_convolve)
correlate.register_autograd(_correlate_gradient, setup_context=_save_correlate)

# The ONNX exporter looks here for operators that it does not know. A trace would too, for the shape of the result, were
# there not a function for that alone. `convolve` itself may have no decomposition: where the environment has CI=true,
# torch.compile refuses an operator with one that it does not use.
register_decomposition(torch.ops.tnn.toeplitz_export_convolve.default)(strided.convolve)
register_decomposition(torch.ops.tnn.toeplitz_export_convolve.default, type="meta")(_convolve_shape)


# The axis of vmap becomes more channels, which the operators keep apart; or more rows, if all share one kernel.


@convolve.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], x: Tensor, kernel: Tensor, future: int, backend: str
) -> tuple[Tensor, int]:
    if in_dims[1] is None:
        assert in_dims[0] is not None
        return convolve(x.movedim(in_dims[0], 0), kernel, future, backend), 0
    x, kernel = (_as_channels(t, dim, info.batch_size) for t, dim in zip((x, kernel), in_dims, strict=False))
    y = convolve(x, kernel, future, backend)  # (..., n, mapped * d)
    return y.unflatten(-1, (info.batch_size, -1)), y.ndim - 1


@correlate.register_vmap
def _(
    info: Any, in_dims: tuple[int | None, ...], x: Tensor, g: Tensor, lags: int, future: int, backend: str
) -> tuple[Tensor, int]:
    x, g = (_as_channels(t, dim, info.batch_size) for t, dim in zip((x, g), in_dims, strict=False))
    c = correlate(x, g, lags, future, backend)  # (lags, mapped * d)
    return c.unflatten(-1, (info.batch_size, -1)), 1


def _as_channels(t: Tensor, mapped: int | None, size: int) -> Tensor:
    """(..., n, d) with a mapped axis -> (..., n, size * d); without a mapped axis the values are repeated."""
    t = t.unsqueeze(-2).expand(*t.shape[:-1], size, -1) if mapped is None else t.movedim(mapped, -2)
    return t.flatten(-2)
