"""Padding masks: true (or 1) at real positions, as in transformers. A padded batch must equal its rows alone."""

from collections.abc import Callable

import torch
from torch import Tensor


def check_mask(mask: Tensor, x: Tensor) -> Tensor:
    """`mask` as booleans of shape x.shape[:-1], checked."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a torch.Tensor; got {type(mask).__name__}")
    if mask.is_complex():
        raise TypeError(f"mask must be boolean, or hold 0 and 1; got {mask.dtype}")
    if mask.shape != x.shape[:-1]:
        raise ValueError(f"mask must have shape {tuple(x.shape[:-1])}, one entry a position; got {tuple(mask.shape)}")
    if mask.device != x.device:
        raise ValueError(f"mask and x must share a device; got {mask.device} and {x.device}")
    readable = not (torch.compiler.is_compiling() or mask.is_meta)
    if mask.dtype != torch.bool and readable and not ((mask == 0) | (mask == 1)).all():
        raise ValueError("mask must hold 1 at real positions and 0 at padding; got other values (an additive mask?)")
    return mask.bool()


def zero_padding(x: Tensor, mask: Tensor) -> Tensor:
    """x with zeros at padded positions; filled, not multiplied, so that a NaN there goes too."""
    return x.masked_fill(~mask.unsqueeze(-1), 0)


def apply_unpadded(mix: Callable[[Tensor], Tensor], x: Tensor, mask: Tensor) -> Tensor:
    """mix(x) as each row would give without its padding; `mix` is shift-invariant along axis -2.

    Padding on the left or right only shifts a row, so zeros there are enough. Where it lies between real positions
    it would stretch the lags: such rows are closed up, mixed, and spread out again.
    """
    if not _may_have_gaps(mask):
        return mix(zero_padding(x, mask))
    order = torch.argsort((~mask).byte(), dim=-1, stable=True)  # real positions first, in their order
    index = order.unsqueeze(-1).expand(x.shape)
    packed = zero_padding(x.gather(-2, index), mask.gather(-1, order))
    mixed = mix(packed)
    return torch.zeros_like(mixed).scatter(-2, index, mixed)


def _may_have_gaps(mask: Tensor) -> bool:
    if torch.compiler.is_compiling() or mask.is_meta:
        return True  # a graph must serve every mask
    run_starts = mask[..., 1:] & ~mask[..., :-1]
    return bool((run_starts.sum(-1) + mask[..., 0] > 1).any())
