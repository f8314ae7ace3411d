"""Linear attention with the features 1 + elu."""

import torch
from torch import Tensor

from tnn.mixers.linear_attention import LinearAttention
from tnn.mixers.presets import (
    CAUSAL_ATTENTION,
    MASKED_ATTENTION,
    MINI_ATTENTION,
    MINI_LRA_ATTENTION,
    causal_lm,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_masked_lm,
)
from tnn.mixers.registry import register_mixer


@register_mixer(
    "elu",
    channel_mixer="ffn",
    presets=[
        causal_lm(CAUSAL_ATTENTION),
        masked_lm(MASKED_ATTENTION),
        mini_causal_lm(MINI_ATTENTION),
        mini_masked_lm(MINI_ATTENTION),
        mini_lra(MINI_LRA_ATTENTION),
    ],
)
class EluAttention(LinearAttention):
    """y_i = o( sum_j w_ij v_j / max(sum_j w_ij, 1e-6) ), w_ij = f(q_i) . f(k_j), f(t) = 1 + elu(t).

    It has no notion of position: the model must add position embeddings. O(n) time; the state for generation has a
    constant size. `as_published` treats padding as tokens.

    Katharopoulos et al., "Transformers are RNNs", 2020.

    >>> import torch
    >>> from tnn.mixers.elu import EluAttention
    >>> EluAttention(16, num_heads=2, causal=True)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    floor = 1e-6

    @property
    def state_owner(self) -> "EluAttention | None":
        return self if self.causal else None

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        return _one_plus_elu(q), _one_plus_elu(k)


def _one_plus_elu(t: Tensor) -> Tensor:
    """exp(t) below 0, directly: 1 + elu(t) would cancel."""
    return torch.where(t > 0, 1 + t, t.clamp_max(0).exp())
