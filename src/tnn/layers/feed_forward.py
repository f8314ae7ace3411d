"""The feed-forward layer of a Transformer, for the mixers that were published with one."""

from torch import Tensor, nn

from tnn.layers.activation import activation
from tnn.layers.gated import inner_size
from tnn.layers.sequences import Mask


class FeedForward(nn.Module):
    """Two dense layers with an activation, and dropout, between them; each position alone.

    >>> import torch
    >>> from tnn.layers.feed_forward import FeedForward
    >>> FeedForward(16, expansion=4)(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """

    def __init__(self, hidden_size: int, expansion: float = 4, *, hidden_act: str = "gelu", dropout: float = 0.0):
        super().__init__()
        inner = inner_size("expansion", hidden_size, expansion)
        self.hidden_act = hidden_act
        self._activation = activation("hidden_act", hidden_act)
        self.in_proj = nn.Linear(hidden_size, inner)
        self.out_proj = nn.Linear(inner, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., hidden_size)."""
        return self.out_proj(self.dropout(self._activation(self.in_proj(x))))

    def extra_repr(self) -> str:
        return f"hidden_act={self.hidden_act}"
