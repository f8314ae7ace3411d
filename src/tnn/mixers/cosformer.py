"""cosFormer: linear attention whose weights fall with the distance like a cosine from 0 to pi / 2."""

import math

import torch
from torch import Tensor

from tnn.mixers.linear_attention import LinearAttention
from tnn.mixers.presets import (
    CAUSAL_ATTENTION,
    LRA_TASKS,
    MASKED_ATTENTION,
    MINI_ATTENTION,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    causal_lm,
    lra,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_lra_image,
    mini_masked_lm,
    sizes,
)
from tnn.mixers.registry import register_mixer

LRA_LAYERS = {"text": 12}  # 2 in the other tasks


@register_mixer(
    "cosformer",
    channel_mixer="ffn",
    presets=[
        causal_lm(CAUSAL_ATTENTION),
        masked_lm(MASKED_ATTENTION),
        *[lra(task, sizes(LRA_LAYERS.get(task, 2), 64, num_attention_heads=8, glu_expansion=2)) for task in LRA_TASKS],
        mini_causal_lm(MINI_ATTENTION),
        mini_masked_lm(MINI_ATTENTION),
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class CosformerAttention(LinearAttention):
    """y_i = o( sum_j w_ij v_j / max(sum_j w_ij, 1e-4) ), w_ij = relu(q_i) . relu(k_j) cos(pi (i - j) / (2 n)).

    n is the length of the sequence: outputs change as tokens are added, so there is no state, and generation computes
    the complete prefix at each step. O(n) time. `as_published` treats padding as tokens, which n then includes.

    Qin et al., "cosFormer: rethinking softmax in attention", 2022.

    >>> import torch
    >>> from tnn.mixers.cosformer import CosformerAttention
    >>> CosformerAttention(16, num_heads=2, causal=True)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    floor = 1e-4
    xavier = ("value", "out")

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """cos(a - b) = cos a cos b + sin a sin b: twice as many features give weights that depend on the distance."""
        if real is None:
            n = q.shape[-2]
            angle = torch.arange(1, n + 1, dtype=q.dtype, device=q.device) * (math.pi / (2 * n))
        else:
            angle = real.cumsum(-1).to(q.dtype) * (math.pi / 2) / real.sum(-1, keepdim=True).clamp_min(1)
            angle = angle.unsqueeze(-2)  # the same for all heads
        turn = torch.stack([angle.cos(), angle.sin()], -1).unsqueeze(-1)  # (..., n, 2, 1)
        return (q.relu().unsqueeze(-2) * turn).flatten(-2), (k.relu().unsqueeze(-2) * turn).flatten(-2)
