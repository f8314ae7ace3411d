"""Informer: softmax attention for the most selective queries, and the mean of the values for all others."""

import math
from typing import Any

import torch
from torch import Tensor

from tnn._checks import check_positive
from tnn._precision import compute_dtype
from tnn.mixers.presets import (
    LRA_TASKS,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    mini_lra,
    mini_lra_image,
    skyformer_lra,
)
from tnn.mixers.projected_attention import ProjectedAttention, draws_from
from tnn.mixers.registry import register_mixer

_AT_ONCE = 8  # sampled keys of every query in memory at a time


@register_mixer(
    "informer",
    channel_mixer="ffn",
    small_options={"factor": 4},
    presets=[
        *[skyformer_lra(task, attention_dropout=0.1) for task in LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class InformerAttention(ProjectedAttention):
    """softmax(q_i k^T / sqrt(p)) v for the u queries with the largest M_i, the mean of v for all others.

    M_i = max(q_i . k) - mean(q_i . k) over u keys that are drawn for query i, the same for the batch and all heads;
    u = ceil(factor / ln n) ceil(ln n), and at most n: for a short sequence this is softmax attention. Time grows with
    n * u, memory with n * p. `attention_dropout` is applied to the probabilities. In training, draws come from torch's
    generator; in evaluation they depend on the length only.

    `as_published`: the mean in M_i is divided by n instead of u, and padding is treated as tokens. From Zhou et al.,
    "Informer", 2021; this variant from Chen et al., "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.informer import InformerAttention
    >>> InformerAttention(16, num_heads=2, factor=8)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        factor: int = 128,
        attention_dropout: float = 0.0,
    ):
        InformerAttention.check_options(hidden_size, factor=factor)
        super().__init__(
            hidden_size,
            causal=causal,
            num_heads=num_heads,
            as_published=as_published,
            attention_dropout=attention_dropout,
        )
        self.factor = factor
        self.ignores_mask = as_published

    @classmethod
    def check_options(cls, hidden_size: int, *, factor: int = 128, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("factor", factor)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        count = self._count(q.shape[-2])
        if count == q.shape[-2]:
            return self.softmax_attention(q, k, v)
        chosen = self._sparsity(q, k, count).topk(count, dim=-1).indices.unsqueeze(-1)  # (..., heads, u, 1)
        exact = self.softmax_attention(torch.take_along_dim(q, chosen, dim=-2), k, v)
        mean = v.mean(dim=-2, keepdim=True).expand(v.shape)
        return mean.scatter(-2, chosen.expand(exact.shape), exact)

    def _count(self, length: int) -> int:
        """u: 133 of 1,024 tokens, 144 of 4,096."""
        if length == 1:
            return 1
        log = math.log(length)
        return min(length, math.ceil(self.factor / log) * math.ceil(log))

    @torch.no_grad()
    def _sparsity(self, q: Tensor, k: Tensor, count: int) -> Tensor:
        """M (..., heads, n), in parts: all sampled keys at once would need u times the memory of k."""
        q, k = (t.to(compute_dtype(t)) for t in (q, k))
        largest, total = q.new_full(q.shape[:-1], -math.inf), torch.zeros_like(q[..., 0])
        for keys in self._samples(q.shape[-2], count, q.device).split(_AT_ONCE, dim=-1):
            scores = (q.unsqueeze(-2) * k[..., keys, :]).sum(-1)  # (..., heads, n, some of u)
            largest = torch.maximum(largest, scores.amax(-1))
            total = total + scores.sum(-1)
        return largest - total / (q.shape[-2] if self.as_published else count)

    def _samples(self, length: int, count: int, device: torch.device) -> Tensor:
        """The keys that are sampled for each query, (n, u)."""
        generator, drawn_on = draws_from(self.training, device)
        return torch.randint(length, (length, count), generator=generator, device=drawn_on).to(device)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, factor={self.factor}"
