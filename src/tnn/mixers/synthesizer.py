"""Synthesizer: attention whose weights are not computed from pairs of tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._precision import compute_dtype
from tnn.mixers.positional import PositionalMixer
from tnn.mixers.presets import causal_lm, masked_lm, mini_causal_lm, mini_lra, mini_masked_lm, sizes
from tnn.mixers.registry import register_mixer


@register_mixer(
    "synthesizer-dense",
    channel_mixer="ffn",
    small_options={"max_length": 32},
    presets=[
        causal_lm(sizes(8, 512)),
        masked_lm(sizes(16, 768)),
        mini_causal_lm(num_hidden_layers=4, glu_expansion=2.25),
        mini_masked_lm(num_hidden_layers=5, glu_expansion=2.875, mixer_options={"max_length": 128}),
        mini_lra(glu_expansion=3.75, mixer_options={"max_length": 2048}),
    ],
)
class DenseSynthesizer(PositionalMixer):
    """y = softmax(E) x, with one row of E per token: E = W2 relu(W1 x), (n, max_length), cut to n columns.

    One head, no scaling, and no projection of values and outputs: the parameter counts of the paper's comparison leave
    no room for one. Outputs from position `max_length` on are 0, and no other position sees these tokens.
    `as_published`: padding is treated as tokens. (Tay, Bahri, Metzler, Juan, Zhao and Zheng, 2021.)

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


@register_mixer(
    "synthesizer-random",
    channel_mixer="ffn",
    small_options={"max_length": 32},
    presets=[
        causal_lm(sizes(8, 512)),
        masked_lm(sizes(18, 768)),
        mini_causal_lm(num_hidden_layers=2, glu_expansion=1.75),
        mini_masked_lm(num_hidden_layers=6, glu_expansion=2.625, mixer_options={"max_length": 128}),
        mini_lra(glu_expansion=4.25, mixer_options={"max_length": 2048}),
    ],
)
class RandomSynthesizer(PositionalMixer):
    """y = softmax(R) x, with a learned R (max_length, max_length), cut to (n, n): the same weights for every input.

    One head, and no projection of values and outputs: the parameter counts of the paper's comparison leave no room for
    one. Outputs from position `max_length` on are 0, and no other position sees these tokens. R starts from N(0, 1).
    `as_published`: padding is treated as tokens. (Tay, Bahri, Metzler, Juan, Zhao and Zheng, 2021.)

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
    """softmax(scores) v over the visible positions; v (..., m, d), scores (..., n, >= m), visible (..., n or 1, m)."""
    scores = scores[..., : v.shape[-2]].to(compute_dtype(v, scores))
    if visible is not None:
        # Not -inf: a row of padding that sees nothing must not become NaN.
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1).to(v.dtype) @ v).to(v.dtype)
