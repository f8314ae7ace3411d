"""Linear attention with the features 1 + elu."""

import torch
from torch import Tensor

from tnn.mixers.linear_attention import LinearAttention
from tnn.mixers.registry import register_mixer


@register_mixer("elu", channel_mixer="ffn")
class EluAttention(LinearAttention):
    """y_i = o( sum_j w_ij v_j / max(sum_j w_ij, 1e-6) ), w_ij = f(q_i) . f(k_j), f(t) = 1 + elu(t).

    It knows no positions: the model has to add them. Linear in time; the state for generation is of constant size.
    `as_published` takes padding for tokens.

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
    """exp(t) below 0, without adding 1 to a number near -1."""
    return torch.where(t > 0, 1 + t, t.clamp_max(0).exp())
