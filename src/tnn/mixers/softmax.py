"""Softmax attention, the mixer of the Transformer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_fraction
from tnn.layers.sequences import Sequences
from tnn.mixers.attention import Attention
from tnn.mixers.key_value_state import KeyValueState
from tnn.mixers.registry import register_mixer


@register_mixer("transformer", channel_mixer="ffn")
class SoftmaxAttention(Attention):
    """y_i = o( sum_j softmax_j(q_i . k_j / sqrt(head_size)) v_j ) in each head; over j <= i if causal.

    It knows no positions: the model has to add them. `attention_dropout` acts on the softmax. The published port masks
    padding too, so `as_published` changes nothing. Quadratic in time; the state for generation is all keys and values.

    Vaswani et al., "Attention is all you need", 2017.

    >>> import torch
    >>> from tnn.mixers.softmax import SoftmaxAttention
    >>> SoftmaxAttention(16, num_heads=2, causal=True)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        attention_dropout: float = 0.0,
    ):
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        check_fraction("attention_dropout", attention_dropout)
        self.attention_dropout = attention_dropout
        self.ignores_mask = False

    @property
    def state_owner(self) -> "SoftmaxAttention | None":
        return self if self.causal else None

    def new_state(self) -> KeyValueState:
        return KeyValueState(self)

    def mix(self, x: Tensor) -> Tensor:
        return self.output(self.attend(*self.project(x)))

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        """Each sees its own sequence only. Padding sees padding, or its rows would be a softmax of nothing."""
        same = sequences.ids.unsqueeze(-1) == sequences.ids.unsqueeze(-2)  # (..., n, n)
        earlier = same.tril()
        visible = earlier if self.causal else same
        return self.output(self.attend(*self.project(x), visible, earlier.sum(-1)))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None = None, position: Tensor | None = None
    ) -> Tensor:
        """q (..., heads, n, head_size), k and v (..., heads, m, head_size): the queries are the last n of m positions.

        `visible` (..., n, m) is who may look at whom; None: all, or all before if causal. `position` (..., m) is where
        each key stands in its sequence; None: 0, 1, ...
        """
        n, m = q.shape[-2], k.shape[-2]
        if visible is not None:
            return self._weigh(q, k, v, visible.unsqueeze(-3))
        if self.causal and n == m:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=self._dropout, is_causal=True)
        if self.causal and n > 1:
            return self._weigh(q, k, v, torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n))
        return self._weigh(q, k, v)

    def _weigh(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """The mask is boolean, or added to the scores."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self._dropout)

    @property
    def _dropout(self) -> float:
        return self.attention_dropout if self.training else 0.0


@register_mixer("attention")
class PlainAttention(SoftmaxAttention):
    """Softmax attention in TNN's block, with a GLU after it: the paper's ablation, and the choice for hybrid models.

    It differs from SoftmaxAttention in its initial weights only, which are torch's default.
    """

    xavier = ()
