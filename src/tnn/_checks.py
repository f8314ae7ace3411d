"""Argument checks shared by the whole package. Each error is one line: what is allowed, and what was given."""

import math
from collections.abc import Iterable
from numbers import Integral, Real

import torch
from torch import Tensor

LARGEST = 2**31 - 1  # of a size: larger ones overflow somewhere in torch, and no machine has room for them
FLOAT_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in (options := list(allowed)):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")


def check_positive(name: str, value: int, at_least: int = 1, at_most: int = LARGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral | torch.SymInt):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}; got {value}")
    # A length that a graph leaves open is not compared: the graph would be for lengths up to that only.
    if not (torch.compiler.is_compiling() or isinstance(value, torch.SymInt)) and value > at_most:
        raise ValueError(f"{name} must be at most {at_most:,}; got {value:,}")


def check_fraction(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number in [0, 1]; got {value!r}")
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise ValueError(f"{name} must be in [0, 1]; got {value}")


def check_tolerance(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, 0 or more; got {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and 0 or more; got {value}")


def check_float(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}")
    if value.dtype not in FLOAT_TYPES:
        raise TypeError(f"{name} must be float64, float32, bfloat16 or float16; got {value.dtype}")


def check_sequence(name: str, value: Tensor, channels: int, axes: str = "length") -> None:
    """`value` must be a float tensor of shape (..., *axes, channels), and none of `axes` may be empty."""
    check_float(name, value)
    inner = len(axes.split(", "))
    if value.ndim < inner + 1:
        raise ValueError(f"{name} must have shape (..., {axes}, channels); got {tuple(value.shape)}")
    if value.shape[-1] != channels:
        raise ValueError(f"{name} must have {channels} channels in its last axis; got shape {tuple(value.shape)}")
    if 0 in value.shape[-1 - inner : -1]:
        raise ValueError(f"{name} must hold at least one position; got shape {tuple(value.shape)}")
