"""The two operators of product.py for forward-mode derivatives and the transforms of torch.func.

These work only with a torch.autograd.Function. Each operator is linear in both arguments, so its forward derivative is
a sum of two products.
"""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch._functorch import eager_transforms

from tnn.ops import fft, product


def active(*tensors: Tensor) -> bool:
    """Whether a transform of torch.func is active, or a tensor is a batch of gradients or has a forward derivative."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._are_functorch_transforms_active() or any(map(is_legacy_batchedtensor, tensors)):
        return True
    return any(torch.autograd.forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def convolve(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
    if _forward_over_forward():
        return fft.convolve(x, kernel, future)
    return Convolve.apply(x, kernel, future, backend)


def correlate(x: Tensor, g: Tensor, lags: int, future: int, backend: str) -> Tensor:
    if _forward_over_forward():
        return fft.correlate(x, g, lags, future)
    return Correlate.apply(x, g, lags, future, backend)


def _forward_over_forward() -> bool:
    """Here torch silently loses the second derivative of a Function, but not that of its built-in operations."""
    return eager_transforms.JVP_NESTING > 1


class Convolve(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, future: int, backend: str) -> Tensor:
        return product.convolve(x, kernel, future, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, kernel, ctx.future, ctx.backend = inputs
        ctx.lags = kernel.shape[0]
        ctx.save_for_backward(x, kernel)
        ctx.save_for_forward(x, kernel)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, kernel = ctx.saved_tensors
        grad_x = grad_kernel = None
        if ctx.needs_input_grad[0]:
            grad_x = convolve(grad, kernel.flip(0), ctx.lags - 1 - ctx.future, ctx.backend)
        if ctx.needs_input_grad[1]:
            grad_kernel = correlate(x, grad, ctx.lags, ctx.future, ctx.backend)
        return grad_x, grad_kernel, None, None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor | None, kernel_tangent: Tensor | None, *_: None) -> Tensor:
        x, kernel = ctx.saved_tensors
        from_x = None if x_tangent is None else convolve(x_tangent, kernel, ctx.future, ctx.backend)
        from_kernel = None if kernel_tangent is None else convolve(x, kernel_tangent, ctx.future, ctx.backend)
        return _sum(from_x, from_kernel)


class Correlate(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, g: Tensor, lags: int, future: int, backend: str) -> Tensor:
        return product.correlate(x, g, lags, future, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, g, ctx.lags, ctx.future, ctx.backend = inputs
        ctx.save_for_backward(x, g)
        ctx.save_for_forward(x, g)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        x, g = ctx.saved_tensors
        grad_x = grad_g = None
        if ctx.needs_input_grad[0]:
            grad_x = convolve(g, grad.flip(0), ctx.lags - 1 - ctx.future, ctx.backend)
        if ctx.needs_input_grad[1]:
            grad_g = convolve(x, grad, ctx.future, ctx.backend)
        return grad_x, grad_g, None, None, None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor | None, g_tangent: Tensor | None, *_: None) -> Tensor:
        x, g = ctx.saved_tensors
        from_x = None if x_tangent is None else correlate(x_tangent, g, ctx.lags, ctx.future, ctx.backend)
        from_g = None if g_tangent is None else correlate(x, g_tangent, ctx.lags, ctx.future, ctx.backend)
        return _sum(from_x, from_g)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor:
    """The sum of those that are not None: at least one argument has a forward derivative."""
    if a is None or b is None:
        only = b if a is None else a
        assert only is not None
        return only
    return a + b
