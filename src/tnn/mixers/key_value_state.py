"""The state of softmax attention: the keys and values of all tokens so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn.layers.sequences import Mask, Sequences
from tnn.layers.state import State
from tnn.streaming.validation import next_part

if TYPE_CHECKING:
    from tnn.mixers.softmax import SoftmaxAttention


class KeyValueState(State):
    """Attention over a sequence that arrives in parts: each call takes the next inputs and returns their outputs.

    Padding stays among the keys, hidden by a mask, so that the state can always be cropped.
    """

    croppable = True
    owner: SoftmaxAttention

    def reset(self) -> None:
        super().reset()
        self._keys: Tensor | None = None  # (batch, heads, seen, head_size)
        self._values: Tensor | None = None
        self._real: Tensor | None = None  # (batch, seen); None if there has been no padding

    @property
    def batch_size(self) -> int | None:
        """None before the first input."""
        return None if self._keys is None else self._keys.shape[0]

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs -> (batch, n, d). Padding among them is skipped."""
        x, sequences = next_part(x, mask, self.owner.hidden_size, self.batch_size)
        q, k, v = self.owner.project(x)
        keys = k if self._keys is None else torch.cat([self._keys, k], -2)
        values = v if self._values is None else torch.cat([self._values, v], -2)
        if sequences is not None or self._real is not None:
            self._real = self._extended(x, sequences, keys.shape[-2] - x.shape[1])
        self._keys, self._values = keys, values
        self.seen = self.seen + x.shape[1]
        if self._real is None:
            return self.owner.output(self.owner.attend(q, keys, values))
        position = torch.where(self._real, self._real.cumsum(-1), (~self._real).cumsum(-1))
        return self.owner.output(self.owner.attend(q, keys, values, self._visible(x.shape[1]), position))

    def _extended(self, x: Tensor, sequences: Sequences | None, seen: int) -> Tensor:
        """(batch, seen + n): which inputs are real, including those of x."""
        old = self._real
        if old is None:
            old = torch.ones(x.shape[0], seen, dtype=torch.bool, device=x.device)
        new = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if sequences is None else sequences.real
        return torch.cat([old, new], 1)

    def _visible(self, n: int) -> Tensor:
        """(batch, n, seen). Padding sees padding, as without a state: a softmax over nothing would be NaN."""
        assert self._real is not None
        total = self._real.shape[1]
        before = torch.ones(n, total, dtype=torch.bool, device=self._real.device).tril(total - n)
        return before & (self._real[:, -n:].unsqueeze(2) == self._real.unsqueeze(1))

    def crop(self, count: int) -> None:
        """Remove the newest `count` inputs."""
        if count > self.seen:
            raise ValueError(f"cannot remove {count} tokens: only {self.seen} have been seen")
        self.seen -= count
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[..., : self.seen, :], self._values[..., : self.seen, :]
        if self._real is not None:
            self._real = self._real[:, : self.seen]

    def join(self, others: Sequence[KeyValueState]) -> None:
        """Rows that have seen less get padding in front."""
        states = [self, *others]
        longest = max(state.seen for state in states)
        keys, values, real = zip(*(state._extended_to(longest) for state in states), strict=True)
        self._keys, self._values, self._real = torch.cat(keys), torch.cat(values), torch.cat(real)
        self.seen = longest
        self._forget_full_marks()

    def _extended_to(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and which inputs are real, with padding in front."""
        assert self._keys is not None
        assert self._values is not None
        real = self._real
        if real is None:
            real = torch.ones(len(self._keys), self.seen, dtype=torch.bool, device=self._keys.device)
        more = length - self.seen
        pad = (0, 0, more, 0)
        return F.pad(self._keys, pad), F.pad(self._values, pad), F.pad(real, (more, 0))

    def unpad(self, length: int) -> None:
        """Keep the newest `length` inputs: whatever came before them was padding, in every row."""
        first = self.seen - length
        if first and self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[..., first:, :].clone(), self._values[..., first:, :].clone()
            if self._real is not None:
                self._real = self._real[:, first:]
                self._forget_full_marks()
        self.seen = length

    def _forget_full_marks(self) -> None:
        """Attention without a mask is faster."""
        if self._real is not None and bool(self._real.all()):
            self._real = None
