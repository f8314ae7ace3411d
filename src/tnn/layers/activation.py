"""Activations by name, alone or times a second factor."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_choice
from tnn.layers.one_pass import one_pass, one_pass_backward
from tnn.ops import native


def _identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "identity": _identity,
}


def activation(name: str, value: str) -> Callable[[Tensor], Tensor]:
    check_choice(name, value, ACTIVATIONS)
    return ACTIVATIONS[value]


def gated(name: str, gate: Tensor, x: Tensor) -> Tensor:
    """act(gate) * x, for the activation of that name.

    >>> import torch
    >>> from tnn.layers.activation import gated
    >>> gated("relu", torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]))
    tensor([3., 6.])
    """
    if name == "silu" and one_pass(gate, x):
        return _SiluProduct.apply(gate, x)
    return ACTIVATIONS[name](gate) * x


class _SiluProduct(torch.autograd.Function):
    """silu(a) * b in one pass over memory, and one for the gradients: the single steps take five."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return native.silu_product(a, b)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        if one_pass_backward(grad, a, b):
            return native.silu_product_gradient(grad, a, b)
        return grad * b * silu_slope(a), grad * F.silu(a)


def silu_slope(x: Tensor) -> Tensor:
    """The derivative of SiLU."""
    s = torch.sigmoid(x)
    return s * (1 + x * (1 - s))
