"""Attention with a Gaussian kernel in place of the softmax."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn.layers.sequences import Sequences
from tnn.mixers.presets import (
    LRA_TASKS,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    mini_lra,
    mini_lra_image,
    skyformer_lra,
)
from tnn.mixers.projected_attention import ProjectedAttention
from tnn.mixers.registry import register_mixer


@register_mixer(
    "kernelized",
    channel_mixer="ffn",
    presets=[
        *[skyformer_lra(task, attention_dropout=0.1) for task in LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class KernelizedAttention(ProjectedAttention):
    """y_i = sum_j exp(-|q_i - k_j|^2 / (2 sqrt(p))) v_j in each head of p channels, not normalised.

    `attention_dropout` is applied to the weights. Time and memory grow with n^2. `as_published` changes nothing.
    From Chen, Zeng, Ji and Yang, "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.kernelized import KernelizedAttention
    >>> KernelizedAttention(16, num_heads=2)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    full_precision = True

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        ids = sequences.ids
        visible = ids.unsqueeze(-1) == ids.unsqueeze(-2) if sequences.packed else ids.unsqueeze(-2)
        return sequences.zero_padding(self.attention(x, visible.unsqueeze(-3)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        scale = q.shape[-1] ** -0.25
        weights = gaussian(q * scale, k * scale)  # (..., heads, n, n)
        if real is not None:
            weights = weights.masked_fill(~real, 0)
        return F.dropout(weights, self.attention_dropout, self.training) @ v


def gaussian(x: Tensor, y: Tensor) -> Tensor:
    """exp(-|x_i - y_j|^2 / 2) of rows x (..., m, p) and y (..., n, p) -> (..., m, n)."""
    return torch.exp(x @ y.mT - _half_square(x).unsqueeze(-1) - _half_square(y).unsqueeze(-2))


def _half_square(x: Tensor) -> Tensor:
    return x.square().sum(-1) / 2
