"""Linear attention: weights are products of features, so that all queries share sums over the keys. O(n) time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._precision import compute_dtype, no_autocast
from tnn.layers.sequences import Mask, Sequences
from tnn.layers.state import State
from tnn.mixers.attention import Attention
from tnn.streaming.validation import next_part

CHUNK = 64  # inside chunks of so many tokens, weights are computed for each pair


class LinearAttention(Attention):
    """y_i = o( sum_j w_ij v_j / max(sum_j w_ij, floor) ), w_ij = f(q_i) . g(k_j), in each head; over j <= i if causal.

    A subclass writes the features f and g. Computed in float32 at least.
    """

    floor = 1e-12  # padding before the first token sees no keys

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """q, k (..., heads, n, head_size), real (..., n) or None -> (..., heads, n, features) of both."""
        raise NotImplementedError

    def new_state(self) -> RunningSums:
        return RunningSums(self)

    def mix(self, x: Tensor) -> Tensor:
        return self.advance(x)[0]

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if sequences.packed:
            return super().mix_masked(x, sequences)
        return self.advance(x, sequences.real)[0]

    def advance(self, x: Tensor, real: Tensor | None = None, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The outputs of x (..., n, hidden_size), and the sums over the keys of x and of all earlier inputs.

        The sums of g(k) v and of g(k) are one tensor (..., heads, features, head_size + 1): values have a 1 appended.
        """
        y, sums = self.weigh(*self.project(x), real, before)
        return self.output(y), sums

    def weigh(
        self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None = None, before: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The part of `advance` between the projections: q, k, v (..., heads, n, head_size)."""
        dtype = compute_dtype(v)
        with no_autocast(v.device):
            q, k = self.features(q.to(dtype), k.to(dtype), real)
            if real is not None:
                k = k.masked_fill(~real[..., None, :, None], 0)
            counted = F.pad(v.to(dtype), (0, 1), value=1.0)
            if self.causal:
                mixed, sums = causal_sums(q, k, counted, before)
            else:
                sums = k.mT @ counted
                mixed = q @ sums
            y = mixed[..., :-1] / mixed[..., -1:].clamp_min(self.floor)
        return y.to(v.dtype), sums


def causal_sums(q: Tensor, k: Tensor, v: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """y_i = q_i (before + sum_{j <= i} k_j^T v_j), and the sum over all j.

    Inside a chunk by its matrix of weights, across chunks by their sums: no (f, e) matrix per position is made.

    >>> import torch
    >>> from tnn.mixers.linear_attention import causal_sums
    >>> q = k = v = torch.ones(100, 1)
    >>> causal_sums(q, k, v)[0].squeeze()[[0, 1, 99]]
    tensor([  1.,   2., 100.])
    """
    n = q.shape[-2]
    size = min(n, CHUNK)
    q, k, v = (F.pad(t, (0, 0, 0, -n % size)).unflatten(-2, (-1, size)) for t in (q, k, v))  # (..., chunks, size, f)
    inside = (q @ k.mT).tril() @ v
    sums = (k.mT @ v).cumsum(-3)  # (..., chunks, f, e), to the end of each chunk
    if before is None:
        before = torch.zeros_like(sums[..., 0, :, :])
    else:
        sums = sums + before.unsqueeze(-3)
    earlier = torch.cat([before.unsqueeze(-3), sums[..., :-1, :, :]], -3)
    y = inside + q @ earlier
    return y.flatten(-3, -2)[..., :n, :], sums[..., -1, :, :]


class RunningSums(State):
    """The state of linear attention: sums over all tokens so far. Its size is constant, and it cannot be cropped."""

    owner: LinearAttention

    def reset(self) -> None:
        super().reset()
        self._sums: Tensor | None = None  # (batch, heads, features, head_size + 1)

    @property
    def batch_size(self) -> int | None:
        """None before the first input."""
        return None if self._sums is None else self._sums.shape[0]

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs -> (batch, n, d). Padding among them is skipped."""
        x, sequences = next_part(x, mask, self.owner.hidden_size, self.batch_size)
        real = None if sequences is None else sequences.real
        y, self._sums = self.owner.advance(x, real, self._sums)
        self.seen = self.seen + x.shape[1]
        return y

    def join(self, others: Sequence[RunningSums]) -> None:
        sums = [state._sums for state in (self, *others)]
        self._sums = torch.cat([one for one in sums if one is not None])
        self.seen = max(state.seen for state in (self, *others))
