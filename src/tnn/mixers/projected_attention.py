"""What the attentions of the Long-Range Arena comparison share: dense projections, heads, and how they meet padding."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_fraction
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.sequences import Sequences
from tnn.mixers.attention import Attention


class ProjectedAttention(Attention):
    """o(attend(q(x), k(x), v(x))) with four dense layers; a subclass writes `attend`, for each head alone.

    Bidirectional only. Where `attend` can leave out what follows the end of a row (`masks_rows`), rows of different
    lengths are mixed together, otherwise all of a length. Subclasses with `as_published` apply the mask as it was published,
    with positions counted from the beginning of the row; they do not know of packed rows.
    """

    has_causal_form = False

    xavier = ()
    masks_rows = False  # `attend` leaves out what is not real, if that comes last
    full_precision = False  # `attend` needs more than half precision

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        attention_dropout: float = 0.0,
    ):
        if causal:
            raise ValueError(f"{type(self).__name__} is bidirectional only; got causal=True")
        check_fraction("attention_dropout", attention_dropout)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.ignores_mask = False
        self.attention_dropout = attention_dropout

    def mix(self, x: Tensor) -> Tensor:
        return self.attention(x, None)

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if self.as_published:
            return sequences.zero_padding(self.attention(x, sequences.real))
        if sequences.packed or not self.masks_rows:
            return super().mix_masked(x, sequences)
        return sequences.zero_padding(sequences.apply_aligned(self._attention_to_some, x))

    def _attention_to_some(self, x: Tensor, real: Tensor) -> Tensor:
        real = real.clone()
        real[..., 0] = True  # a row of nothing but padding: whatever, but no softmax of nothing
        return self.attention(x, real)

    def attention(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (..., n, hidden_size); real (..., n), None if all of it is."""
        q, k, v = self.project(x)
        if self.full_precision:
            dtype = compute_dtype(v)
            with no_autocast(x.device):
                y = self.attend(q.to(dtype), k.to(dtype), v.to(dtype), real).to(v.dtype)
        else:
            y = self.attend(q, k, v, real)
        return self.output(y)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        """q, k, v (..., heads, n, p); real (..., n) -> (..., heads, n, p)."""
        raise NotImplementedError

    def softmax_attention(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None = None) -> Tensor:
        """Exact attention; visible (..., m, n), or broadcast to it."""
        bias = None if visible is None else hide(visible, q.dtype)
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """What to add to scores so that only visible keys count; finite, as a row may see none."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -1e4)


def draws_from(training: bool, device: torch.device) -> tuple[torch.Generator | None, torch.device]:
    """Where random numbers come from: in training torch's generator of the device; else the same ones each time."""
    if training or device.type == "meta":
        return None, device
    return torch.Generator().manual_seed(0), torch.device("cpu")  # one for all devices, that they may agree
