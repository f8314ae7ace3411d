"""FLASH: gated attention units with one head, whose weights are squared rectified scores."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.gated import inner_size
from tnn.layers.mixer import Mixer
from tnn.layers.sequences import Sequences
from tnn.mixers.aligned import AlignedMixer, RowState
from tnn.mixers.presets import (
    EMBEDDING_DROPOUT,
    LRA_LENGTHS,
    LRA_TASKS,
    Preset,
    causal_lm,
    lra,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_lra_image,
    mini_masked_lm,
    sizes,
)
from tnn.mixers.registry import register_mixer

QUERIES = 512  # rows of the attention matrix that are computed at a time


def _causal_lm() -> Preset:
    """The published parameter count includes the unused parameters of `as_published`."""
    return causal_lm(EMBEDDING_DROPOUT, sizes(10, 512, norm="scale"), mixer_options={"as_published": True})


def _lra(task: str) -> Preset:
    layers = 5 if task == "text" else 2
    return lra(task, sizes(layers, 64), mixer_options={"key_size": 64, "max_length": LRA_LENGTHS[task]})


class GatedAttention(AlignedMixer):
    """y = Wo( u * z ), u = silu(Wu x), v = silu(Wv x): z is v, mixed with queries and keys made from b = silu(Wb x).

    Queries and keys are `roles` affine maps of b, with a gain and an offset per channel, rotated by position (RoPE).
    Scores have a bias T_ij = w_(j - i), for `reach` distances in each direction.
    """

    roles: int

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool,
        as_published: bool,
        expansion: float,
        key_size: int,
        max_length: int,
        reach: int,
    ):
        GatedAttention.check_options(hidden_size, expansion=expansion, key_size=key_size, max_length=max_length)
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        inner = inner_size("expansion", hidden_size, expansion)
        self.max_length = max_length
        self.gate_proj = nn.Linear(hidden_size, inner)
        self.value_proj = nn.Linear(hidden_size, inner)
        self.key_proj = nn.Linear(hidden_size, key_size)
        self.out_proj = nn.Linear(inner, hidden_size)
        self.gain = nn.Parameter(torch.empty(self.roles, key_size))
        self.offset = nn.Parameter(torch.empty(self.roles, key_size))
        self._own_distance = max_length - 1 if as_published else reach - 1  # the index in w of j = i
        both_sides = as_published or not causal  # the published w has entries for later positions even if causal
        self.bias = nn.Parameter(torch.empty(self._own_distance + 1 + (self._own_distance if both_sides else 0)))
        # Of the published implementation: for the biases of sequences longer than max_length.
        self.long_bias = nn.Parameter(torch.empty(2, key_size)) if as_published else None
        self.train()
        self.reset_parameters()

    @classmethod
    def check_options(
        cls, hidden_size: int, *, expansion: float = 2, key_size: int = 128, max_length: int = 512, **options: Any
    ) -> None:
        super().check_options(hidden_size, **options)
        inner_size("expansion", hidden_size, expansion)
        check_positive("key_size", key_size)
        if key_size % 2:
            raise ValueError(f"key_size must be even, because RoPE rotates pairs of channels; got {key_size}")
        check_positive("max_length", max_length)

    def reset_parameters(self) -> None:
        for parameter in (self.gain, self.bias, self.long_bias):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.02)
        nn.init.zeros_(self.offset)

    def unused_parameters(self) -> list[nn.Parameter]:
        return [] if self.long_bias is None else [self.long_bias]

    def mix_rows(self, x: Tensor, real: Tensor | None) -> Tensor:
        position = torch.arange(x.shape[-2], device=x.device)
        roles, v = self._keys_and_values(x, position, real)
        with no_autocast(x.device):
            z = self._attend(*roles, v)
        return self._leave(x, z)

    def _attend(self, *roles_and_v: Tensor) -> Tensor:
        """Queries and keys (..., n, key_size), values (..., n, inner) -> z (..., n, inner)."""
        raise NotImplementedError

    def _keys_and_values(self, x: Tensor, position: Tensor, real: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """Each role (..., n, key_size), rotated; and v (..., n, inner), 0 at padding, which then has no effect."""
        dtype = compute_dtype(x)
        b = F.silu(self.key_proj(x)).to(dtype)
        affine = b.unsqueeze(-2) * self.gain.to(dtype) + self.offset.to(dtype)  # (..., n, roles, key_size)
        v = F.silu(self.value_proj(x)).to(dtype)
        if real is not None:
            v = v.masked_fill(~real.unsqueeze(-1), 0)
        return list(_rotate(affine, position).unbind(-2)), v

    def _leave(self, x: Tensor, z: Tensor) -> Tensor:
        u = F.silu(self.gate_proj(x))
        return self.out_proj((u * z).to(u.dtype))

    def _weights(self, q: Tensor, k: Tensor, distance: Tensor | None, divisor: int) -> Tensor:
        """relu(q k^T / divisor + T)^2, with distance = j - i (..., queries, keys); None: no bias."""
        scores = q @ k.mT / divisor
        if distance is not None:
            index = (distance + self._own_distance).clamp(0, len(self.bias) - 1)
            scores = scores + self.bias.to(scores.dtype)[index]
        return F.relu(scores).square()


@register_mixer(
    "flash",
    channel_mixer=None,
    small_options={"key_size": 8, "chunk": 4, "max_length": 32},
    presets=[
        _causal_lm(),
        masked_lm(EMBEDDING_DROPOUT, sizes(24, 768), norm_position="pre", mixer_options={"as_published": True}),
        *[_lra(task) for task in LRA_TASKS],
        mini_causal_lm(num_hidden_layers=5, mixer_options={"expansion": 2.25}),
        mini_masked_lm(num_hidden_layers=8, norm_position="pre", mixer_options={"expansion": 1.375, "key_size": 64}),
        mini_lra(mixer_options={"expansion": 2.5, "key_size": 32}),
        mini_lra_image(mixer_options={"expansion": 2.75, "key_size": 32}),
    ],
)
class FlashLinear(GatedAttention):
    """y = Wo( u * z ): attention inside chunks of tokens, and linear attention to the other chunks. O(n).

    With queries and keys q, k and q', k' (RoPE, `key_size` channels) and v of `expansion * hidden_size` channels:
    z_i = sum_j relu(q_i.k_j / chunk + w_(j-i))^2 v_j over the chunk of i (up to i if causal), plus
    q'_i . sum_j k'_j v_j^T / chunk over all tokens (over the chunks before that of i if causal).
    Any length; the sums are not divided by the number of chunks, so they grow with the length. The causal state holds
    the sum over complete chunks, and the keys and values of the current one.
    `as_published`: the published parameters, some of them unused (w covers `max_length` distances instead of one chunk,
    the only effect of that option; two vectors), and padding is treated as tokens. (Hua, Dai, Liu and Le, 2022.)

    >>> import torch
    >>> from tnn.mixers.flash import FlashLinear
    >>> FlashLinear(16, causal=True, key_size=8, chunk=4)(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """

    roles = 4

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        expansion: float = 2,
        key_size: int = 128,
        max_length: int = 512,
        chunk: int = 64,
    ):
        FlashLinear.check_options(hidden_size, as_published=as_published, max_length=max_length, chunk=chunk)
        super().__init__(
            hidden_size,
            causal=causal,
            as_published=as_published,
            expansion=expansion,
            key_size=key_size,
            max_length=max_length,
            reach=chunk,
        )
        self.chunk = chunk

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        *,
        as_published: bool = False,
        max_length: int = 512,
        chunk: int = 64,
        **options: Any,
    ) -> None:
        super().check_options(hidden_size, max_length=max_length, **options)
        check_positive("chunk", chunk)
        if as_published and chunk > max_length:
            raise ValueError(f"chunk must be at most max_length {max_length}, which has biases; got {chunk}")

    def _attend(self, *roles_and_v: Tensor) -> Tensor:
        n = roles_and_v[0].shape[-2]
        q, k, far_q, far_k, v = (self._in_chunks(t) for t in roles_and_v)  # (..., chunks, chunk, channels)
        position = torch.arange(self.chunk, device=v.device)  # inside a chunk
        weights = self._weights(q, k, position - position.unsqueeze(-1), self.chunk)  # (..., chunks, chunk, chunk)
        z = (weights.tril() if self.causal else weights) @ v
        if self.causal:
            sums = (far_k.mT @ v / self.chunk).cumsum(-3)  # (..., chunks, key_size, inner)
            sums = F.pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0))  # of the chunks before: exactly zero from its own
        else:
            sums = (far_k.flatten(-3, -2).mT @ v.flatten(-3, -2) / self.chunk).unsqueeze(-3)
        return (z + far_q @ sums).flatten(-3, -2)[..., :n, :]

    def _in_chunks(self, x: Tensor) -> Tensor:
        """(..., n, d) -> (..., chunks, chunk, d), padded with zeros."""
        return F.pad(x, (0, 0, 0, -x.shape[-2] % self.chunk)).unflatten(-2, (-1, self.chunk))

    @property
    def state_owner(self) -> Any:
        return self if self.causal else None

    def new_state(self) -> RowState:
        return RowState(self)

    def empty_memory(self, x: Tensor) -> "FlashMemory":
        batch, keys, inner = len(x), self.key_proj.out_features, self.value_proj.out_features
        dtype = compute_dtype(x)
        return FlashMemory(
            sums=x.new_zeros(batch, keys, inner, dtype=dtype),
            k=x.new_zeros(batch, 0, keys, dtype=dtype),
            far_k=x.new_zeros(batch, 0, keys, dtype=dtype),
            v=x.new_zeros(batch, 0, inner, dtype=dtype),
            position=torch.zeros(batch, 0, dtype=torch.long, device=x.device),
            length=torch.zeros(batch, dtype=torch.long, device=x.device),
        )

    def step(self, x: Tensor, real: Tensor, memory: "FlashMemory") -> tuple[Tensor, "FlashMemory"]:
        outputs = []
        for part, part_real in zip(x.split(self.chunk, 1), real.split(self.chunk, 1), strict=True):
            y, memory = self._step(part, part_real, memory)
            outputs.append(y)
        return torch.cat(outputs, 1), memory

    def _step(self, x: Tensor, real: Tensor, memory: "FlashMemory") -> tuple[Tensor, "FlashMemory"]:
        """x (batch, n, hidden_size), at most one chunk. Rows may be at different positions inside their chunks."""
        position = memory.length.unsqueeze(-1) + real.cumsum(-1) - 1  # (batch, n)
        (q, k, far_q, far_k), v = self._keys_and_values(x, position, real)
        length = memory.length + real.sum(-1)
        with no_autocast(x.device):
            k, far_k, v = (torch.cat(pair, 1) for pair in ((memory.k, k), (memory.far_k, far_k), (memory.v, v)))
            at = torch.cat([memory.position, position], 1)  # (batch, m): the positions of the keys
            distance = at.unsqueeze(1) - position.unsqueeze(2)  # (batch, n, m)
            chunks_back = (position // self.chunk).unsqueeze(2) - (at // self.chunk).unsqueeze(1)
            weights = self._weights(q, k, distance, self.chunk).masked_fill((chunks_back != 0) | (distance > 0), 0)
            far_weights = (far_q @ far_k.mT / self.chunk).masked_fill(chunks_back <= 0, 0)
            z = (weights + far_weights) @ v + far_q @ memory.sums

            complete = at // self.chunk < (length // self.chunk).unsqueeze(-1)  # (batch, m)
            sums = memory.sums + far_k.mT @ v.masked_fill(~complete.unsqueeze(-1), 0) / self.chunk
        held = torch.ones_like(memory.position, dtype=torch.bool)
        current = torch.cat([held, real], 1) & ~complete
        newest = torch.argsort(current.byte(), dim=1, stable=True)[:, max(0, at.shape[1] - self.chunk + 1) :]
        v = v.masked_fill(~current.unsqueeze(-1), 0)
        k, far_k, v = (t.gather(1, newest.unsqueeze(-1).expand(-1, -1, t.shape[-1])) for t in (k, far_k, v))
        return self._leave(x, z), FlashMemory(sums, k, far_k, v, at.gather(1, newest), length)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, chunk={self.chunk}"


class FlashMemory(NamedTuple):
    sums: Tensor  # (batch, key_size, inner): of k' v^T / chunk over the tokens of complete chunks
    k: Tensor  # (batch, < chunk, key_size): of the current chunk, and of older tokens with v = 0
    far_k: Tensor
    v: Tensor  # (batch, < chunk, inner)
    position: Tensor  # (batch, < chunk): of these keys
    length: Tensor  # (batch,): number of tokens so far


torch.serialization.add_safe_globals([FlashMemory])


@register_mixer(
    "flash-quad",
    channel_mixer=None,
    small_options={"key_size": 8, "max_length": 32},
    presets=[
        _causal_lm(),
        *[_lra(task) for task in LRA_TASKS],
        mini_causal_lm(num_hidden_layers=5, mixer_options={"expansion": 2.25}),
        mini_lra(mixer_options={"expansion": 1.25, "key_size": 32, "max_length": 2048}),
    ],
)
class FlashQuad(GatedAttention):
    """y = Wo( u * z ), z_i = sum_j relu(q_i.k_j / max_length + w_(j-i))^2 v_j; over j <= i if causal. O(n^2).

    Queries and keys have `key_size` channels (RoPE), v has `expansion * hidden_size`. For a sequence longer than
    `max_length` there is no bias w, and scores are divided by its length: outputs change as tokens are added, so there
    is no state.
    `as_published`: the published parameters, some of them unused (w for later tokens, even if causal; two vectors), and
    padding is treated as tokens. (Hua, Dai, Liu and Le, 2022.)

    >>> import torch
    >>> from tnn.mixers.flash import FlashQuad
    >>> FlashQuad(16, key_size=8, max_length=32)(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """

    roles = 2

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        expansion: float = 2,
        key_size: int = 128,
        max_length: int = 512,
    ):
        super().__init__(
            hidden_size,
            causal=causal,
            as_published=as_published,
            expansion=expansion,
            key_size=key_size,
            max_length=max_length,
            reach=max_length,
        )

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if x.shape[-2] > self.max_length:
            return Mixer.mix_masked(self, x, sequences)  # by length, on which outputs depend
        return super().mix_masked(x, sequences)

    def _attend(self, *roles_and_v: Tensor) -> Tensor:
        q, k, v = roles_and_v
        n = q.shape[-2]
        position = torch.arange(n, device=q.device)
        parts = []
        for first in range(0, n, QUERIES):
            end = min(first + QUERIES, n)
            keys = end if self.causal else n
            distance = position[:keys] - position[first:end, None]  # (queries, keys)
            bias, divisor = (distance, self.max_length) if n <= self.max_length else (None, n)
            weights = self._weights(q[..., first:end, :], k[..., :keys, :], bias, divisor)
            if self.causal:
                weights = weights.masked_fill(distance > 0, 0)
            parts.append(weights @ v[..., :keys, :])
        return torch.cat(parts, -2)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}"


def _rotate(x: Tensor, position: Tensor) -> Tensor:
    """x (..., n, roles, d), channels k and k + d/2 rotated by position * 10000^(-2k/d). position (n) or (..., n)."""
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angle = (position.to(x.dtype).unsqueeze(-1) * frequency).unsqueeze(-2)  # (..., n, 1, d / 2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
