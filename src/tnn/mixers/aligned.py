"""Mixers that count positions from the start of a sequence, and can ignore what follows its end."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from tnn.layers.mixer import Mixer
from tnn.layers.sequences import Mask, Sequences
from tnn.layers.state import State
from tnn.streaming.validation import next_part


class AlignedMixer(Mixer):
    """A subclass writes `mix_rows`: the tokens of padded rows are moved to the start, and all rows mixed at once."""

    def mix(self, x: Tensor) -> Tensor:
        return self.mix_rows(x, None)

    def mix_rows(self, x: Tensor, real: Tensor | None) -> Tensor:
        """x (..., n, hidden_size); real (..., n) is true up to the end of each row; None: there is no padding."""
        raise NotImplementedError

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if sequences.packed:
            return super().mix_masked(x, sequences)
        return sequences.apply_aligned(self.mix_rows, x)


class Stepping(Protocol):
    """What a RowState needs from its mixer. A memory is a named tuple of tensors with one row per sequence."""

    hidden_size: int

    def empty_memory(self, x: Tensor, /) -> Any: ...
    def step(self, x: Tensor, real: Tensor, memory: Any, /) -> tuple[Tensor, Any]: ...


class RowState(State):
    """The state of a causal mixer that computes its next outputs from a memory; see `Stepping`."""

    owner: Stepping

    def reset(self) -> None:
        super().reset()
        self._memory: Any = None

    @property
    def batch_size(self) -> int | None:
        """None before the first input."""
        return None if self._memory is None else len(self._memory[0])

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs -> (batch, n, d). Padding among them is skipped."""
        x, sequences = next_part(x, mask, self.owner.hidden_size, self.batch_size)
        if sequences is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        else:
            x, real = sequences.zero_padding(x), sequences.real
        memory = self.owner.empty_memory(x) if self._memory is None else self._memory
        y, self._memory = self.owner.step(x, real, memory)
        self._count_inputs(x, sequences)
        return y

    def _count_inputs(self, x: Tensor, sequences: Sequences | None) -> None:
        self.seen = self.seen + x.shape[1]
