"""ALiBi: softmax attention without position embeddings; scores fall linearly with the distance of the tokens."""

import torch
from torch import Tensor

from tnn.mixers.presets import (
    CAUSAL_ATTENTION,
    MINI_ATTENTION,
    MINI_LRA_ATTENTION,
    NO_POSITIONS,
    causal_lm,
    mini_causal_lm,
    mini_lra,
)
from tnn.mixers.registry import register_mixer
from tnn.mixers.softmax import SoftmaxAttention

QUERIES = 1024  # how many queries have their biases in memory at a time


@register_mixer(
    "alibi",
    channel_mixer="ffn",
    presets=[
        causal_lm(CAUSAL_ATTENTION, NO_POSITIONS),
        mini_causal_lm(MINI_ATTENTION, NO_POSITIONS),
        mini_lra(MINI_LRA_ATTENTION, NO_POSITIONS),
    ],
)
class AlibiAttention(SoftmaxAttention):
    """Softmax attention with scores q_i . k_j / sqrt(head_size) - m |i - j|, with a slope m for each head.

    The slopes fall from head to head by a constant factor, down to 1/256; see `alibi_slopes`. Options, state and cost
    are those of SoftmaxAttention. Sequences may be longer than those in training.

    Press et al., "Train short, test long", 2022.

    >>> import torch
    >>> from tnn.mixers.alibi import AlibiAttention
    >>> AlibiAttention(16, num_heads=2, causal=True)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None = None, position: Tensor | None = None
    ) -> Tensor:
        """In groups of queries, so that not all biases are in memory at once; causal groups leave out later keys."""
        n, m = q.shape[-2], k.shape[-2]
        parts = []
        for first in range(m - n, m, QUERIES):
            end = min(first + QUERIES, m)
            keys = end if self.causal else m
            part = q[..., first - (m - n) : end - (m - n), :], k[..., :keys, :], v[..., :keys, :]
            if visible is None or position is None:
                parts.append(self._attend_unpadded(*part, first))
                continue
            distance = position[..., first:end, None] - position[..., None, :keys]
            bias = self._slopes(q) * distance.to(q.dtype).abs().unsqueeze(-3)  # (..., heads, queries, keys)
            seen = visible[..., first - (m - n) : end - (m - n), :keys].unsqueeze(-3)
            parts.append(self._weigh(*part, bias.masked_fill(~seen, -torch.inf)))
        return torch.cat(parts, -2)

    def _attend_unpadded(self, q: Tensor, k: Tensor, v: Tensor, first: int) -> Tensor:
        """Without padding the biases are a Toeplitz matrix: with reversed queries, a view of one vector per head."""
        keys, end = k.shape[-2], first + q.shape[-2]
        offset = torch.arange(1 - end, keys - first, device=q.device)  # of a key relative to a query
        line = self._slopes(q)[:, 0] * offset.to(q.dtype).abs()
        if self.causal:
            line = line.masked_fill(offset > 0, -torch.inf)
        return self._weigh(q.flip(-2), k, v, line.unfold(-1, keys, 1)).flip(-2)

    def _slopes(self, q: Tensor) -> Tensor:
        """(heads, 1, 1), negative."""
        return -torch.tensor(alibi_slopes(self.num_heads), dtype=q.dtype, device=q.device)[:, None, None]


def alibi_slopes(num_heads: int) -> list[float]:
    """2^(-8 a / h) for a = 1 .. h if h is a power of two. Otherwise the slopes of the next smaller power of two, and
    every second slope of the next larger one.

    >>> from tnn.mixers.alibi import alibi_slopes
    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * a / below) for a in range(1, below + 1)]
    return slopes + [2 ** (-4 * a / below) for a in range(1, 2 * (num_heads - below), 2)]
