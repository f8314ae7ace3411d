"""BigBird: softmax attention to the neighbouring blocks, the first, the last and some random blocks."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_positive
from tnn.mixers.presets import (
    LRA_TASKS,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    mini_lra,
    mini_lra_image,
    skyformer_lra,
)
from tnn.mixers.projected_attention import ProjectedAttention
from tnn.mixers.registry import register_mixer


@register_mixer(
    "bigbird",
    channel_mixer="ffn",
    small_options={"block": 2, "random_blocks": 1},
    presets=[
        *[skyformer_lra(task, attention_dropout=0.1) for task in LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class BigBirdAttention(ProjectedAttention):
    """softmax(q k^T / sqrt(p)) v, sparse by blocks of `block` tokens; the last block may be shorter.

    The first and the last block see all keys. Any other block i sees the first, the last, i - 1, i, i + 1 and
    `random_blocks` more, drawn for each head. A sequence of at most random_blocks + 4 blocks has full attention. Time
    and memory grow with n * block * (5 + random_blocks). `attention_dropout` is applied to the probabilities. The
    random blocks depend on `seed` and the number of blocks only: they are the same in each call and each layer.

    `as_published`: the last block is that of the padded row; and random blocks come only from the beginning. With 1,024
    or 4,096 tokens they come from the first 1,024 (the last rows may draw blocks that they see anyway, which then count
    twice); otherwise from blocks 1 to 2 random_blocks + 3, if there are more than two after these.
    From Zaheer et al., "Big Bird", 2020; this variant from Chen et al., "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.bigbird import BigBirdAttention
    >>> BigBirdAttention(16, num_heads=2, block=2)(torch.randn(1, 25, 16)).shape
    torch.Size([1, 25, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        block: int = 64,
        random_blocks: int = 3,
        seed: int = 0,
        attention_dropout: float = 0.0,
    ):
        BigBirdAttention.check_options(hidden_size, block=block, random_blocks=random_blocks, seed=seed)
        super().__init__(
            hidden_size,
            causal=causal,
            num_heads=num_heads,
            as_published=as_published,
            attention_dropout=attention_dropout,
        )
        self.block = block
        self.random_blocks = random_blocks
        self.seed = seed

    @classmethod
    def check_options(
        cls, hidden_size: int, *, block: int = 64, random_blocks: int = 3, seed: int = 0, **options: Any
    ) -> None:
        super().check_options(hidden_size, **options)
        check_positive("block", block)
        check_positive("random_blocks", random_blocks)
        check_positive("seed", seed, at_least=0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        n = q.shape[-2]
        blocks = -(-n // self.block)
        if blocks <= self.random_blocks + 4:
            return self.softmax_attention(q, k, v, None if real is None else real[..., None, None, :])
        if real is None:
            real = torch.ones(n, dtype=torch.bool, device=q.device)
        missing = blocks * self.block - n
        q, k, v = (F.pad(t, (0, 0, 0, missing)) for t in (q, k, v))
        real = F.pad(real, (0, missing))[..., None, :].expand(*q.shape[:-1])  # (..., heads, n)

        ends = torch.cat([q[..., : self.block, :], q[..., -self.block :, :]], dim=-2)
        first, last = self.softmax_attention(ends, k, v, real.unsqueeze(-2)).split(self.block, dim=-2)
        q, k, v = (t.unflatten(-2, (blocks, self.block)) for t in (q, k, v))
        between = self._attend_between(q, k, v, real)
        return torch.cat([first, between, last], dim=-2)[..., :n, :]

    def _attend_between(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        """Blocks q, k, v (..., heads, blocks, block, p); real (..., heads, n) -> (..., heads, n - 2 block, p)."""
        seen, counts = self._pattern(q.shape[-3], q.device)  # (heads, blocks - 2, 5 + random_blocks)
        head = torch.arange(self.num_heads, device=q.device)[:, None, None]
        visible = real.unflatten(-1, q.shape[-3:-1])[..., head, seen, :] & counts.unsqueeze(-1)
        k, v = (t[..., head, seen, :, :].flatten(-3, -2).flatten(-4, -3) for t in (k, v))
        visible = visible.flatten(-2).flatten(-3, -2).unsqueeze(-2)  # (..., heads * (blocks - 2), 1, seen keys)
        y = self.softmax_attention(q[..., 1:-1, :, :].flatten(-4, -3), k, v, visible)
        return y.unflatten(-3, (self.num_heads, -1)).flatten(-3, -2)

    def _pattern(self, blocks: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The blocks that each inner block sees, (heads, blocks - 2, 5 + random_blocks), and which of them count.

        A neighbour of the second and of the last but one block is an end block, which must not count twice.
        """
        row = torch.arange(1, blocks - 1, device=device)
        fixed = torch.stack([torch.zeros_like(row), torch.full_like(row, blocks - 1), row - 1, row, row + 1], dim=-1)
        counts = torch.ones_like(fixed, dtype=torch.bool)
        counts[0, 2] = counts[-1, 4] = False
        random, drawn = (t.to(device) for t in self._random_blocks(blocks))
        fixed, counts = (t.expand(self.num_heads, -1, -1) for t in (fixed, counts))
        return torch.cat([fixed, random], dim=-1), torch.cat([counts, drawn], dim=-1)

    def _random_blocks(self, blocks: int) -> tuple[Tensor, Tensor]:
        """Drawn per head and inner block, (heads, blocks - 2, random_blocks), and whether there was one to draw."""
        candidates = torch.zeros(blocks - 2, blocks, dtype=torch.bool, device="cpu")
        for row in range(1, blocks - 1):
            candidates[row - 1, self._candidates(row, blocks)] = True
        generator = torch.Generator().manual_seed(self.seed)
        chance = torch.rand(self.num_heads, *candidates.shape, generator=generator, dtype=torch.float32, device="cpu")
        drawn = chance.masked_fill(~candidates, -1).topk(self.random_blocks, dim=-1)
        return drawn.indices, drawn.values >= 0

    def _candidates(self, row: int, blocks: int) -> list[int]:
        """The blocks that block `row` may draw."""
        between = list(range(1, blocks - 1))
        few = 2 * self.random_blocks + 3
        if self.as_published and blocks * self.block in (1024, 4096):
            return _of_first_1024(between, row, 1024 // self.block - 1)
        if self.as_published and blocks > few + 2:
            apart = {1: few, few: 1}.get(row)
            return [b for b in range(1, few + 1) if abs(b - row) > 1 and b != apart]
        return [b for b in between if abs(b - row) > 1]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block={self.block}, random_blocks={self.random_blocks}"


def _of_first_1024(between: list[int], row: int, end: int) -> list[int]:
    """The published choice. `between`: all inner blocks; `end`: the number of blocks in 1,024 tokens, less 1."""
    if row == 1:
        return between[2:end]
    if row == 2:
        return between[3:end]
    if row >= len(between) - 1 or row - 2 > end:
        return between[:end]
    return between[: row - 2] + between[row + 1 : end]
