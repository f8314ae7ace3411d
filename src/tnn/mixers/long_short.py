"""Transformer-LS: attention to near tokens, and to summaries of distant ones."""

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_fraction, check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.sequences import Sequences
from tnn.mixers.attention import Attention
from tnn.mixers.heads import join_heads, split_heads
from tnn.mixers.presets import (
    CAUSAL_ATTENTION,
    LRA_TASKS,
    MASKED_ATTENTION,
    MINI_ATTENTION,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    NO_POSITIONS,
    Fields,
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

CAUSAL_LM: Fields = {
    "norm_position": "post",
    "final_norm": None,
    "embedding_dropout": 0.0,
    "initializer": "normal",
    "lm_head_bias": True,
}
LRA_LAYERS = {"text": 4}  # 2 in the other tasks


@register_mixer(
    "transformer-ls",
    channel_mixer="ffn",
    small_options={"window": 4, "chunk": 4, "memory": 8, "landmarks": 4},
    presets=[
        causal_lm(CAUSAL_ATTENTION, NO_POSITIONS, CAUSAL_LM),
        masked_lm(MASKED_ATTENTION, mixer_options={"attention_dropout": 0.1}),
        *[lra(task, sizes(LRA_LAYERS.get(task, 2), 64, num_attention_heads=2, glu_expansion=1)) for task in LRA_TASKS],
        mini_causal_lm(MINI_ATTENTION, NO_POSITIONS, glu_expansion=1.75),
        mini_masked_lm(MINI_ATTENTION, glu_expansion=2.25, mixer_options={}),
        mini_lra(MINI_LRA_ATTENTION, glu_expansion=1.25),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION, glu_expansion=1.75),
    ],
)
class LongShortAttention(Attention):
    """y_i = o( one softmax over near keys and summaries, times their values ), in each head.

    Keys and values of near tokens pass through one LayerNorm, summaries through another.

    - Causal: near tokens are the last `window` (64), with scores (q_i + b) . k_j + (q_i + c) . r_{i-j}. Summaries are
      weighted means of earlier chunks of `chunk` tokens, with scores q_i . k_u + q_i . r'_{chunks between}. r and r'
      are projections of sinusoids. Time grows as n window + n^2 / chunk.
    - Bidirectional: groups of `window` (8) queries see the 2 window tokens around them; summaries are `landmarks`
      weighted means of all tokens. O(n) time. There is no notion of position: the model must add position embeddings.

    `attention_dropout` is applied to the softmax. There is no state: generation computes the complete prefix at each
    step.

    `as_published`: padding is treated as tokens. If causal, the last `memory` inputs are kept and precede the inputs of
    the next call, even if that is about another text (`reset_memory` drops them); in the first call they are zeros that
    take part in the softmax. If bidirectional, the zeros that pad the last group take part in the softmax.

    Zhu et al., "Long-short Transformer", 2021.

    >>> import torch
    >>> from tnn.mixers.long_short import LongShortAttention
    >>> LongShortAttention(16, num_heads=2, causal=True)(torch.randn(1, 100, 16)).shape
    torch.Size([1, 100, 16])
    """

    xavier = ()

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        window: int | None = None,
        chunk: int = 32,
        memory: int = 512,
        landmarks: int = 32,
        attention_dropout: float = 0.0,
    ):
        LongShortAttention.check_options(
            hidden_size,
            causal=causal,
            as_published=as_published,
            window=window,
            chunk=chunk,
            memory=memory,
            landmarks=landmarks,
            attention_dropout=attention_dropout,
        )
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.window = _window(window, causal)
        self.chunk, self.memory, self.landmarks = chunk, memory, landmarks
        self.attention_dropout = attention_dropout
        norm = NoisyLayerNorm if causal else nn.LayerNorm
        self.near_norm = norm(hidden_size)
        self.far_norm = norm(hidden_size)
        self.keeps_memory = as_published and causal
        self._remembered: Tensor | None = None  # (batch, memory, hidden_size)
        if not causal:
            self.summary_proj = nn.Linear(hidden_size, num_heads * landmarks)
            return
        self.summary_proj = NormalLinear(hidden_size, num_heads)
        self.near_position_proj = NormalLinear(hidden_size, hidden_size)
        self.far_position_proj = NormalLinear(hidden_size, hidden_size)
        self.content_bias = nn.Parameter(torch.empty(num_heads, 1, self.head_size))
        self.position_bias = nn.Parameter(torch.empty(num_heads, 1, self.head_size))
        self.reset_parameters()

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        window: int | None = None,
        chunk: int = 32,
        memory: int = 512,
        landmarks: int = 32,
        attention_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().check_options(hidden_size, causal=causal, **options)
        window = _window(window, causal)
        for name, value in (("window", window), ("chunk", chunk), ("memory", memory), ("landmarks", landmarks)):
            check_positive(name, value)
        if causal and as_published and (memory % chunk or memory < window):
            raise ValueError(f"memory must be a multiple of chunk {chunk}, and not below window {window}; got {memory}")
        check_fraction("attention_dropout", attention_dropout)

    def _dense(self, name: str) -> nn.Linear:
        return (NormalLinear if self.causal else nn.Linear)(self.hidden_size, self.hidden_size)

    def reset_parameters(self) -> None:
        if self.causal:
            nn.init.normal_(self.content_bias, std=0.02)
            nn.init.normal_(self.position_bias, std=0.02)

    def reset_memory(self) -> None:
        """Of the published implementation: the next call starts with a memory of zeros."""
        self._remembered = None

    def train(self, mode: bool = True) -> Self:
        """Drops the memory between training and evaluation: neither must see the texts of the other."""
        if mode != self.training:
            self.reset_memory()
        return super().train(mode)

    def mix(self, x: Tensor) -> Tensor:
        if not self.causal:
            return self._mix_bidirectional(x)
        if not self.as_published:
            return self._mix_causal(x)
        rows = x.reshape(-1, *x.shape[-2:])
        memory = self._memory_for(rows)
        self._remembered = torch.cat([memory, rows.detach()], 1)[:, -self.memory :]
        return self._mix_causal(rows, memory).reshape(x.shape)

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        """Moves the real tokens of each row to the front, in their order, and hides the rest."""
        if sequences.packed:
            return super().mix_masked(x, sequences)
        if self.causal:
            return sequences.apply_aligned(lambda rows, real: self._mix_causal(rows), x)
        return sequences.apply_aligned(self._mix_bidirectional, x)

    def _mix_causal(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """x (..., n, d), memory (..., memory, d): the inputs before x."""
        n, w = x.shape[-2], self.window
        q, key, value = self._scaled_query(x), self.key_proj(x), self.value_proj(x)
        far_key, far_value = self._chunk_summaries(x, key, value, memory)
        if memory is None:
            before_key = before_value = key.new_zeros(*key.shape[:-2], w, key.shape[-1])
        else:
            recent = memory[..., -w:, :]
            before_key, before_value = self.near_norm(self.key_proj(recent)), self.near_norm(self.value_proj(recent))
        near_key = self._heads(torch.cat([before_key, self.near_norm(key)], -2))
        near_value = self._heads(torch.cat([before_value, self.near_norm(value)], -2))
        near_position = self._positions(self.near_position_proj, w)  # (heads, w, head_size)
        far_position = self._positions(self.far_position_proj, far_key.shape[-2])
        with no_autocast(x.device):
            q = _pad_to_multiple(q, w)  # (..., heads, groups * w, head_size)
            near = self._near_scores(q, _windows(near_key, w), near_position, has_memory=memory is not None)
            first_chunk = 0 if memory is None else self.memory // self.chunk
            far = self._far_scores(q, far_key, far_position, first_chunk)
            y = self._weigh(far, far_value, near, _windows(near_value, w))
        return self.output(y[..., :n, :].to(value.dtype))

    def _chunk_summaries(self, x: Tensor, key: Tensor, value: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Keys and values of all chunks before that of the last token, (..., heads, chunks, head_size)."""
        chunks = (x.shape[-2] - 1) // self.chunk
        end = chunks * self.chunk
        weights = self._chunk_weights(x[..., :end, :], chunks)
        keys, values = ((weights * self._chunks(t[..., :end, :], chunks)).sum(-3) for t in (key, value))
        keys, values = (t.flatten(-2).to(key.dtype) for t in (keys, values))  # (..., chunks, d)
        if memory is not None:
            remembered = self.memory // self.chunk
            mean = (self._chunk_weights(memory, remembered) * self._chunks(memory, remembered)).sum(-3)
            mean = mean.flatten(-2).to(memory.dtype)
            keys = torch.cat([self.key_proj(mean), keys], -2)
            values = torch.cat([self.value_proj(mean), values], -2)
        return self._heads(self.far_norm(keys)), self._heads(self.far_norm(values))

    def _chunk_weights(self, x: Tensor, chunks: int) -> Tensor:
        """(..., chunks, chunk, heads, 1), with sum 1 over each chunk."""
        logits = self.summary_proj(x).unflatten(-2, (chunks, self.chunk))
        return logits.to(compute_dtype(logits)).softmax(-2).unsqueeze(-1)

    def _chunks(self, x: Tensor, chunks: int) -> Tensor:
        """(..., n, d) -> (..., chunks, chunk, heads, head_size)."""
        return x.unflatten(-1, (self.num_heads, -1)).unflatten(-3, (chunks, self.chunk))

    def _positions(self, projection: nn.Linear, count: int) -> Tensor:
        """A projection of the sinusoids of positions 0 .. count - 1: (heads, count, head_size)."""
        dtype = compute_dtype(projection.weight)
        lag = torch.arange(count, dtype=dtype, device=projection.weight.device)[:, None]
        rate = torch.arange(0, self.hidden_size, 2, dtype=dtype, device=lag.device) / self.hidden_size
        angle = lag * 10_000.0**-rate
        waves = torch.cat([angle.sin(), angle.cos()], -1)[:, : self.hidden_size]
        return self._heads(projection(waves.to(projection.weight.dtype)))

    def _near_scores(self, q: Tensor, keys: Tensor, position: Tensor, *, has_memory: bool) -> Tensor:
        """(..., heads, groups, w, 2 w): the keys of a group of w queries are those of the group before and its own."""
        w = self.window
        step = torch.arange(w, device=q.device)[:, None]
        index = torch.arange(2 * w, device=q.device)
        lag = step + w - index  # (w, 2 w)
        visible = (lag >= 0) & (lag < w)
        content = (q + self.content_bias.to(q.dtype)).unflatten(-2, (-1, w)) @ keys.mT
        by_lag = ((q + self.position_bias.to(q.dtype)) @ position.mT).unflatten(-2, (-1, w))  # (..., groups, w, lags)
        lag = lag.clamp(0, w - 1).expand(*by_lag.shape[:-1], 2 * w)
        scores = (content + by_lag.gather(-1, lag)).masked_fill(~visible, -torch.inf)
        if not has_memory:  # nothing precedes the first token
            groups = torch.arange(keys.shape[-3], device=q.device)[:, None, None]
            scores = scores.masked_fill((groups == 0) & (index < w), -torch.inf)
        return scores

    def _far_scores(self, q: Tensor, keys: Tensor, position: Tensor, first_chunk: int) -> Tensor:
        """(..., heads, n, chunks): a query sees the chunks that end before its own chunk."""
        own = torch.arange(q.shape[-2], device=q.device)[:, None] // self.chunk + first_chunk
        between = own - torch.arange(keys.shape[-2], device=q.device) - 1  # (n, chunks)
        by_distance = q @ position.mT
        index = between.clamp(0, max(0, keys.shape[-2] - 1)).expand(by_distance.shape)
        return (q @ keys.mT + by_distance.gather(-1, index)).masked_fill(between < 0, -torch.inf)

    def _mix_bidirectional(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (..., n, d), real (..., n): true up to the end of each sequence."""
        n, w = x.shape[-2], self.window
        if self.as_published:
            x = F.pad(x, (0, 0, 0, -n % w))
        if real is None:
            real = torch.ones(x.shape[-2], dtype=torch.bool, device=x.device)
        q, key, value = self._scaled_query(x), self.near_norm(self.key_proj(x)), self.near_norm(self.value_proj(x))
        logits = self.summary_proj(x).unflatten(-1, (self.num_heads, -1))  # (..., n, heads, landmarks)
        logits = logits.to(compute_dtype(logits)).masked_fill(~real[..., None, None], _lowest(q))
        weights = logits.softmax(-3).movedim(-3, -1)  # (..., heads, landmarks, n)
        with no_autocast(x.device):
            near_key, near_value = self._heads(key), self._heads(value)
            far_key, far_value = (join_heads(weights @ t).to(key.dtype) for t in (near_key, near_value))
        far_key, far_value = self._heads(self.far_norm(far_key)), self._heads(self.far_norm(far_value))
        with no_autocast(x.device):
            q = _pad_to_multiple(q, w)
            around = (w // 2, w - w // 2)
            visible = _windows(F.pad(real.unsqueeze(-1), (0, 0, *around)), w).squeeze(-1)  # (..., groups, 2 w)
            near = q.unflatten(-2, (-1, w)) @ _windows(F.pad(near_key, (0, 0, *around)), w).mT
            near = near.masked_fill(~visible[..., None, :, None, :], -torch.inf)
            values = _windows(F.pad(near_value, (0, 0, *around)), w)
            y = self._weigh(q @ far_key.mT, far_value, near, values)
        return self.output(y[..., :n, :].to(value.dtype))

    def _weigh(self, far: Tensor, far_value: Tensor, near: Tensor, near_value: Tensor) -> Tensor:
        """One softmax: far (..., n, summaries), near (..., groups, w, 2 w) -> (..., n, head_size)."""
        count = far.shape[-1]
        weights = torch.cat([far, near.flatten(-3, -2)], -1).softmax(-1)
        weights = F.dropout(weights, self.attention_dropout, self.training)
        mixed = weights[..., count:].unflatten(-2, (-1, self.window)) @ near_value
        return mixed.flatten(-3, -2) + weights[..., :count] @ far_value

    def _scaled_query(self, x: Tensor) -> Tensor:
        return self._heads(self.query_proj(x)) * self.head_size**-0.5

    def _heads(self, x: Tensor) -> Tensor:
        """(..., n, d) -> (..., heads, n, head_size), in float32 at least."""
        return split_heads(x, self.num_heads).to(compute_dtype(x))

    def _memory_for(self, x: Tensor) -> Tensor:
        """The memory of the last call, for the batch of x: extra rows are dropped, new rows start with zeros."""
        memory = x.new_zeros(x.shape[0], self.memory, x.shape[2])
        if (old := self._remembered) is not None:
            rows = min(len(old), len(memory))
            memory[:rows] = old[:rows].to(memory)
        return memory

    def extra_repr(self) -> str:
        far = f"chunk={self.chunk}" if self.causal else f"landmarks={self.landmarks}"
        return f"window={self.window}, {far}, {super().extra_repr()}"


class NormalLinear(nn.Linear):
    """A dense layer whose weights start from N(0, 0.02), and whose bias starts from 0."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)


class NoisyLayerNorm(nn.LayerNorm):
    """A LayerNorm whose gains start from N(1, 0.02)."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, mean=1.0, std=0.02)
        nn.init.zeros_(self.bias)


def _window(window: int | None, causal: bool) -> int:
    if window is None:
        return 64 if causal else 8
    return window


def _pad_to_multiple(x: Tensor, size: int) -> Tensor:
    """(..., n, e), with zeros at the end up to a multiple of `size` positions."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % size))


def _windows(x: Tensor, size: int) -> Tensor:
    """(..., size + n, e) -> (..., ceil(n / size), 2 size, e): windows of 2 size at every `size`; zeros pad the end."""
    return _pad_to_multiple(x, size).unfold(-2, 2 * size, size).mT


def _lowest(x: Tensor) -> float:
    """In place of -inf, where a row may be hidden completely."""
    return torch.finfo(x.dtype).min
