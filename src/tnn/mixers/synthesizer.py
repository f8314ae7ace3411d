"""Synthesizer: attention whose weights do not come from pairs of tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._precision import compute_dtype
from tnn.mixers.positional import PositionalMixer
from tnn.mixers.registry import register_mixer


@register_mixer("synthesizer-dense", channel_mixer="ffn", small_options={"max_length": 32})
class DenseSynthesizer(PositionalMixer):
    """y = softmax(E) x, with a row of E made from each token: E = W2 relu(W1 x), (n, max_length) cut to n columns.

    One head and no scaling; neither values nor outputs are projected, as in the published comparison, whose parameter
    counts leave no room for it. Positions from `max_length` on come out as 0, and are not seen.
    `as_published`: padding counts as tokens. (Tay, Bahri, Metzler, Juan, Zhao and Zheng, 2021.)

    >>> import torch
    >>> from tnn.mixers.synthesizer import DenseSynthesizer
    >>> DenseSynthesizer(16, causal=True, max_length=32)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, max_length: int = 512):
        super().__init__(hidden_size, causal=causal, as_published=as_published, max_length=max_length)
        self.in_proj = nn.Linear(hidden_size, hidden_size)
        self.score_proj = nn.Linear(hidden_size, max_length)

    def mix_positions(self, x: Tensor, v: Tensor, position: Tensor, visible: Tensor | None) -> Tensor:
        scores = self.score_proj(F.relu(self.in_proj(x)))  # (..., n, max_length)
        return _average(v, scores, visible)


@register_mixer("synthesizer-random", channel_mixer="ffn", small_options={"max_length": 32})
class RandomSynthesizer(PositionalMixer):
    """y = softmax(R) x, with R (max_length, max_length) cut to (n, n): the same weights for every input, learned.

    One head; neither values nor outputs are projected, as in the published comparison, whose parameter counts leave no
    room for it. Positions from `max_length` on come out as 0, and are not seen. R starts from N(0, 1).
    `as_published`: padding counts as tokens. (Tay, Bahri, Metzler, Juan, Zhao and Zheng, 2021.)

    >>> import torch
    >>> from tnn.mixers.synthesizer import RandomSynthesizer
    >>> RandomSynthesizer(16, max_length=32)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, max_length: int = 512):
        super().__init__(hidden_size, causal=causal, as_published=as_published, max_length=max_length)
        self.scores = nn.Parameter(torch.empty(max_length, max_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.scores)

    def mix_positions(self, x: Tensor, v: Tensor, position: Tensor, visible: Tensor | None) -> Tensor:
        return _average(v, self.scores[position], visible)


def _average(v: Tensor, scores: Tensor, visible: Tensor | None) -> Tensor:
    """softmax(scores) v over the visible ones; v (..., m, d), scores (..., n, >= m), visible (..., n or 1, m)."""
    scores = scores[..., : v.shape[-2]].to(compute_dtype(v, scores))
    if visible is not None:
        # Not -inf: a row of padding that sees nothing must not become NaN.
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1).to(v.dtype) @ v).to(v.dtype)
