"""cosFormer: linear attention whose weights fall with the distance as a quarter of a cosine wave."""

import math

import torch
from torch import Tensor

from tnn.mixers.linear_attention import LinearAttention
from tnn.mixers.registry import register_mixer


@register_mixer("cosformer", channel_mixer="ffn")
class CosformerAttention(LinearAttention):
    """y_i = o( sum_j w_ij v_j / max(sum_j w_ij, 1e-4) ), w_ij = relu(q_i) . relu(k_j) cos(pi (i - j) / (2 n)).

    n is the length of the sequence: outputs change as tokens are added, so there is no state, and generation runs the
    whole prefix at each step. Linear in time. `as_published` takes padding for tokens, which n then counts.

    Qin et al., "cosFormer: rethinking softmax in attention", 2022.

    >>> import torch
    >>> from tnn.mixers.cosformer import CosformerAttention
    >>> CosformerAttention(16, num_heads=2, causal=True)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    floor = 1e-4
    xavier = ("value", "out")

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """cos(a - b) = cos a cos b + sin a sin b, so twice as many features carry the distance."""
        if real is None:
            n = q.shape[-2]
            angle = torch.arange(1, n + 1, dtype=q.dtype, device=q.device) * (math.pi / (2 * n))
        else:
            angle = real.cumsum(-1).to(q.dtype) * (math.pi / 2) / real.sum(-1, keepdim=True).clamp_min(1)
            angle = angle.unsqueeze(-2)  # the same for all heads
        turn = torch.stack([angle.cos(), angle.sin()], -1).unsqueeze(-1)  # (..., n, 2, 1)
        return (q.relu().unsqueeze(-2) * turn).flatten(-2), (k.relu().unsqueeze(-2) * turn).flatten(-2)
