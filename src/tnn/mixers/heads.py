"""Split channels into attention heads, and join them again."""

from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(..., n, d) -> (..., heads, n, d / heads)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """(..., heads, n, d / heads) -> (..., n, d)."""
    return x.transpose(-3, -2).flatten(-2)
