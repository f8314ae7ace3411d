"""What the attention mixers of the Long-Range Arena comparison share: projections, heads, padding."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_fraction
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.sequences import Sequences
from tnn.mixers.attention import Attention


class ProjectedAttention(Attention):
    """o(attend(q(x), k(x), v(x))) with four dense layers; a subclass writes `attend`, for each head separately.

    Bidirectional only. If `attend` can ignore what follows the end of a row (`masks_rows`), rows of different lengths
    are mixed together, otherwise those of equal length. With `as_published`, the mask is applied as published:
    positions are counted from the start of the row, and packed rows are treated as one sequence.
    """

    has_causal_form = False

    xavier = ()
    masks_rows = False  # `attend` ignores positions that are not real, if they come last
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
        ProjectedAttention.check_options(hidden_size, attention_dropout=attention_dropout)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.ignores_mask = False
        self.attention_dropout = attention_dropout

    @classmethod
    def check_options(cls, hidden_size: int, *, attention_dropout: float = 0.0, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_fraction("attention_dropout", attention_dropout)

    def mix(self, x: Tensor) -> Tensor:
        return self.attention(x, None)

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if self.as_published:
            return sequences.zero_padding(self.attention(x, sequences.real))
        if sequences.packed or not self.masks_rows:
            return super().mix_masked(x, sequences)
        return sequences.zero_padding(sequences.apply_aligned(self._masked_attention, x))

    def _masked_attention(self, x: Tensor, real: Tensor) -> Tensor:
        real = real.clone()
        real[..., 0] = True  # a row of padding only: any output, but no softmax over nothing
        return self.attention(x, real)

    def attention(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (..., n, hidden_size); real (..., n), None: all positions are."""
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
        """Exact attention; visible (..., m, n), or a shape that broadcasts to it."""
        bias = None if visible is None else hide(visible, q.dtype)
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """A bias for the scores that hides all other keys; finite, because a row may see none."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, -1e4)


def draws_from(training: bool, device: torch.device) -> tuple[torch.Generator | None, torch.device]:
    """A generator and its device: torch's own in training; otherwise a new one, so that each call draws the same."""
    if training or device.type == "meta":
        return None, device
    return torch.Generator().manual_seed(0), torch.device("cpu")  # on the CPU, so that all devices agree
