"""Reformer: softmax attention among tokens with similar hashes."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn.mixers.heads import split_heads
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

_OWN_POSITION = -1e5  # far below any score: a token attends to itself only if it sees no other
_MASKED = -1e9


@register_mixer(
    "reformer",
    channel_mixer="ffn",
    small_options={"chunk": 4},
    presets=[
        *[skyformer_lra(task) for task in LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION, glu_expansion=2.75),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION, glu_expansion=3.5),
    ],
)
class ReformerAttention(ProjectedAttention):
    """softmax(q_i . k_j) v over the tokens j that are near i after sorting all tokens by a hash; k_j = q_j / |q_j|.

    The hash of q is the index of the largest entry of [R q, -R q], where R is Gaussian and has at most n / `chunk` rows
    (a power of two). Tokens are sorted by their hashes (a stable sort) and cut into chunks. A chunk attends to itself
    and to the previous chunk, the first chunk to the last. A token's own score is replaced by -1e5. `hashes` such
    rounds are combined as if they were one softmax. A sequence of one or two chunks has full attention. Time and memory
    grow with n * chunk * hashes, and n log n for the sort. In training, each call draws R from torch's generator; in
    evaluation R depends on the length only.

    Queries are the keys too; queries and values are projected without a bias. `as_published`: the unused projection of
    keys and the unused biases exist; padding has its own bucket and fills chunks; and the first chunk of a round
    attends to the last chunk of the previous round.
    From Kitaev, Kaiser and Levskaya, "Reformer", 2020; this variant from Chen et al., "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.reformer import ReformerAttention
    >>> ReformerAttention(16, num_heads=2, chunk=4)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    full_precision = True

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        hashes: int = 2,
        chunk: int = 64,
    ):
        ReformerAttention.check_options(hidden_size, hashes=hashes, chunk=chunk)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.hashes = hashes
        self.chunk = chunk
        if not as_published:
            del self.key_proj
            self.query_proj.register_parameter("bias", None)
            self.value_proj.register_parameter("bias", None)
        self.train()  # freezes the unused parameters

    @classmethod
    def check_options(cls, hidden_size: int, *, hashes: int = 2, chunk: int = 64, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("hashes", hashes)
        check_positive("chunk", chunk)

    def unused_parameters(self) -> list[nn.Parameter]:
        if not self.as_published:
            return []
        return [self.query_proj.bias, *self.key_proj.parameters(), self.value_proj.bias]

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, v = (split_heads(F.linear(x, proj.weight), self.num_heads) for proj in (self.query_proj, self.value_proj))
        return q, q, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        n, p = q.shape[-2:]
        k = k * torch.rsqrt(k.square().mean(-1, keepdim=True) + 1e-6) * p**-0.5
        if n <= self.chunk:
            return self._attend_to_all(q, k, v, real)

        order = torch.argsort(self._buckets(q, real), dim=-1, stable=True).unsqueeze(-1)  # (..., heads, rounds, n, 1)
        position = _cut(order, self.chunk, -1)  # (..., heads, rounds, chunks, chunk, 1); -1 pads the last one
        q, k, v = (_cut(torch.take_along_dim(t.unsqueeze(-3), order, dim=-2), self.chunk, 0) for t in (q, k, v))
        k, v = self._with_previous(k), self._with_previous(v)  # (..., heads, rounds, chunks, 2 chunk, p)
        seen = self._with_previous(position).mT  # (..., heads, rounds, chunks, 1, 2 chunk)

        scores = (q @ k.mT).masked_fill(position == seen, _OWN_POSITION)
        if real is not None:
            visible = torch.take_along_dim(real[..., None, None, None, None, :], seen.clamp(min=0), dim=-1)
            scores = scores.masked_fill(~visible, _MASKED)
        scores = scores.masked_fill(seen < 0, -torch.inf)
        total = scores.logsumexp(-1, keepdim=True)
        y = torch.exp(scores - total) @ v

        back = torch.argsort(order, dim=-2)
        y, total = (torch.take_along_dim(t.flatten(-3, -2), back, dim=-2) for t in (y, total))
        return (torch.softmax(total, dim=-3) * y).sum(-3)

    def _attend_to_all(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        own = torch.eye(q.shape[-2], dtype=torch.bool, device=q.device)
        scores = (q @ k.mT).masked_fill(own, _OWN_POSITION)
        if real is not None:
            scores = scores.masked_fill(~real[..., None, None, :], _MASKED)
        return torch.softmax(scores, dim=-1) @ v

    @torch.no_grad()
    def _buckets(self, q: Tensor, real: Tensor | None) -> Tensor:
        """The hash of each token in each round: (..., heads, n, p) -> (..., heads, rounds, n)."""
        n, p = q.shape[-2:]
        count = 2 ** ((2 * (n // self.chunk)).bit_length() - 1)
        generator, device = draws_from(self.training, q.device)
        shape = (self.num_heads, self.hashes, p, count // 2)
        rotation = torch.randn(shape, generator=generator, dtype=torch.float32, device=device).to(q)
        rotated = q.unsqueeze(-3) @ rotation  # (..., heads, rounds, n, count / 2)
        buckets = torch.cat([rotated, -rotated], dim=-1).argmax(-1)
        return buckets if real is None else buckets.masked_fill(~real[..., None, None, :], count)

    def _with_previous(self, x: Tensor) -> Tensor:
        """(..., rounds, chunks, chunk, s) -> (..., rounds, chunks, 2 chunk, s): the previous chunk, then its own."""
        row = x.flatten(-4, -3).unsqueeze(-4) if self.as_published else x  # all rounds in one row, or one row per round
        return torch.cat([row.roll(1, -3).reshape(x.shape), x], dim=-2)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, hashes={self.hashes}, chunk={self.chunk}"


def _cut(x: Tensor, chunk: int, fill: int) -> Tensor:
    """(..., n, s) -> (..., chunks, chunk, s)."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % chunk), value=fill).unflatten(-2, (-1, chunk))
