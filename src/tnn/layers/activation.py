"""Activations by name."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_choice


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
