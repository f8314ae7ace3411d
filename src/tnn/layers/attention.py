"""Softmax self-attention, for the paper's comparison of a GTU with attention in the same block."""

import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_positive, check_sequence
from tnn.layers.sequences import Mask, enter


class SelfAttention(nn.Module):
    """Scaled dot-product attention without position information; the ablation's variant has one head."""

    def __init__(self, hidden_size: int, num_heads: int = 1, *, causal: bool = False):
        super().__init__()
        check_heads("num_heads", hidden_size, num_heads)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.causal = causal
        self.query_proj = nn.Linear(hidden_size, hidden_size)
        self.key_proj = nn.Linear(hidden_size, hidden_size)
        self.value_proj = nn.Linear(hidden_size, hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., n, hidden_size), mask (..., n) true at real positions -> (..., n, hidden_size)."""
        check_sequence("x", x, self.hidden_size)
        x, sequences = enter(x, mask)
        q, k, v = (split_heads(layer(x), self.num_heads) for layer in (self.query_proj, self.key_proj, self.value_proj))
        if sequences is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            visible = self._visible(sequences.ids).unsqueeze(-3)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.out_proj(join_heads(y))

    def _visible(self, ids: Tensor) -> Tensor:
        """(..., n, n): who may look at whom. Padding sees padding, or its rows would be a softmax of nothing."""
        visible = ids.unsqueeze(-1) == ids.unsqueeze(-2)
        return visible.tril() if self.causal else visible

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, causal={self.causal}"


def check_heads(name: str, hidden_size: int, num_heads: int) -> None:
    check_positive("hidden_size", hidden_size)
    check_positive(name, num_heads)
    if hidden_size % num_heads:
        raise ValueError(f"{name} must divide hidden_size {hidden_size}; got {num_heads}")


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(..., n, d) -> (..., heads, n, d / heads)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    """(..., heads, n, d / heads) -> (..., n, d)."""
    return x.transpose(-3, -2).flatten(-2)
