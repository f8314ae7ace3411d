"""Linformer: softmax attention to a fixed number of learned combinations of the keys."""

from typing import Any

import torch
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn.mixers.presets import (
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    SKYFORMER_LRA_TASKS,
    Preset,
    mini_lra,
    mini_lra_image,
    skyformer_lra,
)
from tnn.mixers.projected_attention import ProjectedAttention
from tnn.mixers.registry import register_mixer


def _lra(task: str) -> Preset:
    length = SKYFORMER_LRA_TASKS[task]["max_position_embeddings"]
    return skyformer_lra(task, attention_dropout=0.1, max_length=length)


@register_mixer(
    "linformer",
    channel_mixer="ffn",
    small_options={"projected": 4, "max_length": 32},
    presets=[
        *[_lra(task) for task in SKYFORMER_LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION, mixer_options={"max_length": 2048}),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION, mixer_options={"max_length": 1024}),
    ],
)
class LinformerAttention(ProjectedAttention):
    """softmax(q (E k)^T / sqrt(p)) (E v), with E (heads, projected, max_length) learned, the same for keys and values.

    A sequence of n tokens uses the first n columns of E; a sequence longer than `max_length` is an error. E starts from
    N(0, 0.02). Time and memory grow with n * `projected`. `attention_dropout` is applied to the probabilities.

    `as_published`: E is a buffer, which is not trained, and padding has columns too.
    From Wang, Li, Khabsa, Fang and Ma, "Linformer", 2020; this variant from Chen et al., "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.linformer import LinformerAttention
    >>> LinformerAttention(16, num_heads=2, max_length=64)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    masks_rows = True

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        projected: int = 128,
        max_length: int = 512,
        attention_dropout: float = 0.0,
    ):
        LinformerAttention.check_options(hidden_size, projected=projected, max_length=max_length)
        super().__init__(
            hidden_size,
            causal=causal,
            num_heads=num_heads,
            as_published=as_published,
            attention_dropout=attention_dropout,
        )
        self.projected = projected
        self.max_length = max_length
        projection = torch.empty(num_heads, projected, max_length)
        if as_published:
            self.register_buffer("projection", projection)
        else:
            self.projection = nn.Parameter(projection)
        self.reset_parameters()

    @classmethod
    def check_options(cls, hidden_size: int, *, projected: int = 128, max_length: int = 512, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("projected", projected)
        check_positive("max_length", max_length)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.projection, std=0.02)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        if real is not None:
            k, v = (t.masked_fill(~real[..., None, :, None], 0) for t in (k, v))
        length = k.shape[-2]
        if length > self.max_length and real is not None:
            length = (
                int(real.any(dim=tuple(range(real.ndim - 1))).nonzero().max()) + 1
            )  # without the padding at the end
        if length > self.max_length:
            raise ValueError(f"a sequence may have max_length = {self.max_length} positions; got {length}")
        mix = self.projection[..., :length]  # (heads, projected, n)
        return self.softmax_attention(q, mix @ k[..., :length, :], mix @ v[..., :length, :])

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, projected={self.projected}, max_length={self.max_length}"
