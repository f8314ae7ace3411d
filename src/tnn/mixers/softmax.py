"""Softmax attention, the mixer of the Transformer."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_fraction
from tnn.layers.sequences import Sequences
from tnn.mixers.attention import Attention
from tnn.mixers.key_value_state import KeyValueState
from tnn.mixers.presets import (
    CAUSAL_ATTENTION,
    LRA_TASKS,
    MASKED_ATTENTION,
    MINI_ATTENTION,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    Fields,
    Preset,
    causal_lm,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_lra_image,
    mini_masked_lm,
    sizes,
    skyformer_lra,
)
from tnn.mixers.registry import register_mixer

# Image models. DeiT classifies a class token; these classify the mean over all patches.
DEIT: Fields = {
    "dims": 1,
    "norm": "layer",
    "final_norm": "layer",
    "pool_norm": None,
    "hidden_act": "gelu",
    "glu_expansion": 4,
    "position_embedding": "learned",
    "initializer": "normal",
}
IMAGENET: Fields = DEIT | {"max_position_embeddings": 196, "num_labels": 1000}
MINI_IMAGE: Fields = {"image_size": 28, "patch_size": 4, "num_channels": 1, "num_labels": 10}
MINI_DEIT: Fields = DEIT | MINI_IMAGE | sizes(4, 64, num_attention_heads=4, glu_expansion=4.5)


@register_mixer(
    "transformer",
    channel_mixer="ffn",
    presets=[
        causal_lm(CAUSAL_ATTENTION),
        masked_lm(MASKED_ATTENTION, mixer_options={"attention_dropout": 0.1}),
        *[skyformer_lra(task, attention_dropout=0.1) for task in LRA_TASKS],
        mini_causal_lm(MINI_ATTENTION),
        mini_masked_lm(MINI_ATTENTION, mixer_options={}),
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
        Preset("imagenet-tiny-{mixer}", IMAGENET | sizes(12, 192, num_attention_heads=3), image=True),
        Preset("imagenet-small-{mixer}", IMAGENET | sizes(12, 384, num_attention_heads=6), image=True),
        Preset("mini-image-{mixer}", MINI_DEIT | {"max_position_embeddings": 64}, image=True),
    ],
)
class SoftmaxAttention(Attention):
    """y_i = o( sum_j softmax_j(q_i . k_j / sqrt(head_size)) v_j ) in each head; over j <= i if causal.

    It has no notion of position: the model must add position embeddings. `attention_dropout` is applied to the softmax.
    The published implementation masks padding too, so `as_published` changes nothing. Time grows with n^2; the state
    for generation holds the keys and values of all tokens.

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
        SoftmaxAttention.check_options(hidden_size, attention_dropout=attention_dropout)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.attention_dropout = attention_dropout
        self.ignores_mask = False

    @classmethod
    def check_options(cls, hidden_size: int, *, attention_dropout: float = 0.0, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_fraction("attention_dropout", attention_dropout)

    @property
    def state_owner(self) -> "SoftmaxAttention | None":
        return self if self.causal else None

    def new_state(self) -> KeyValueState:
        return KeyValueState(self)

    def mix(self, x: Tensor) -> Tensor:
        return self.output(self.attend(*self.project(x)))

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        """A token sees its own sequence only. Padding sees padding: a softmax over nothing would be NaN."""
        same = sequences.ids.unsqueeze(-1) == sequences.ids.unsqueeze(-2)  # (..., n, n)
        earlier = same.tril()
        visible = earlier if self.causal else same
        return self.output(self.attend(*self.project(x), visible, earlier.sum(-1)))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None = None, position: Tensor | None = None
    ) -> Tensor:
        """q (..., heads, n, head_size), k and v (..., heads, m, head_size): the queries are the last n of m positions.

        `visible` (..., n, m) says which keys a query sees; None: all, or if causal all up to its own position.
        `position` (..., m) is the position of each key in its sequence; None: 0, 1, ...
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
        """A boolean mask hides keys, a float mask is added to the scores."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self._dropout)

    @property
    def _dropout(self) -> float:
        return self.attention_dropout if self.training else 0.0


@register_mixer("attention")
class PlainAttention(SoftmaxAttention):
    """Softmax attention in TNN's block, with a GLU after it: the paper's ablation, and the choice for hybrid models.

    It differs from SoftmaxAttention only in its initial weights, which are torch's default.
    """

    xavier = ()
