"""Mixing by a matrix whose rows and columns are positions, of which there is a fixed number."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_positive
from tnn.layers.sequences import Mask
from tnn.mixers.aligned import AlignedMixer, RowState


class PositionalMixer(AlignedMixer):
    """z = A v, with A for the first `max_length` positions; z = 0 at the ones after them, which nobody sees either.

    A subclass says what is mixed (`enter_mixing`), how (`mix_positions`) and what becomes of it (`leave_mixing`).
    Causal outputs do not change when tokens are added: the state keeps v.
    """

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, max_length: int = 512):
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        check_positive("max_length", max_length)
        self.max_length = max_length

    def enter_mixing(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """x (..., n, hidden_size) -> v (..., n, c), and what leave_mixing needs besides z."""
        return x, None

    def mix_positions(self, x: Tensor, v: Tensor, position: Tensor, visible: Tensor | None) -> Tensor:
        """A v: the rows of A are those of `position` ((n) or (..., n), below max_length), with x (..., n, d) there.

        v (..., m, c) are positions 0 to m - 1; visible (..., n or 1, m): where A is not zero, None everywhere.
        """
        raise NotImplementedError

    def leave_mixing(self, z: Tensor, gate: Tensor | None) -> Tensor:
        """z (..., n, c) -> (..., n, hidden_size)."""
        return z

    def mix_rows(self, x: Tensor, real: Tensor | None) -> Tensor:
        n = x.shape[-2]
        kept = torch.sym_min(n, self.max_length)
        position = torch.arange(kept, device=x.device)
        visible = None
        if self.causal:
            visible = position <= position.unsqueeze(-1)  # what stands after the end of a row is later than all of it
        elif real is not None:
            visible = real[..., None, :kept]
        v, gate = self.enter_mixing(x)
        z = self.mix_positions(x[..., :kept, :], v[..., :kept, :], position, visible)
        return self.leave_mixing(F.pad(z, (0, 0, 0, n - kept)), gate)

    @property
    def state_owner(self) -> Any:
        return self if self.causal else None

    def new_state(self) -> "PositionalState":
        return PositionalState(self)

    def empty_memory(self, x: Tensor) -> "PositionalMemory":
        v, _ = self.enter_mixing(x[:, :0])
        return PositionalMemory(v, torch.zeros(len(x), dtype=torch.long, device=x.device))

    def step(self, x: Tensor, real: Tensor, memory: "PositionalMemory") -> tuple[Tensor, "PositionalMemory"]:
        v, gate = self.enter_mixing(x)
        position = memory.length.unsqueeze(-1) + real.cumsum(-1) - 1  # (batch, n)
        held = memory.v.shape[1]
        width = min(held + x.shape[1], self.max_length)  # all that rows may have filled
        target = torch.where(real & (position < width), position, width)  # the rest: to a column that is thrown away
        line = F.pad(memory.v, (0, 0, 0, width + 1 - held)).scatter(1, target.unsqueeze(-1).expand(v.shape), v)
        line = line[:, :width]  # (batch, width, c)

        visible = torch.arange(width, device=x.device) <= position.unsqueeze(-1)  # (batch, n, width)
        z = self.mix_positions(x, line, position.clamp(0, self.max_length - 1), visible)
        z = z.masked_fill((position >= self.max_length).unsqueeze(-1), 0)
        return self.leave_mixing(z, gate), PositionalMemory(line, memory.length + real.sum(-1))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}"


class PositionalMemory(NamedTuple):
    v: Tensor  # (batch, <= max_length, c): what was mixed, by position
    length: Tensor  # (batch,): tokens so far


class PositionalState(RowState):
    """Keeps what came in, so the newest tokens can be taken back: what stands past the end is not seen."""

    croppable = True

    def reset(self) -> None:
        super().reset()
        self._padded_until = 0  # how many tokens had been seen after the last part with padding in it

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        y = super().__call__(x, mask)
        if mask is not None:
            self._padded_until = self.seen
        return y

    def crop(self, count: int) -> None:
        """Forget the newest `count` inputs."""
        if count > self.seen:
            raise ValueError(f"cannot remove {count} tokens: only {self.seen} have been seen")
        if self.seen - count < self._padded_until:
            raise ValueError(f"cannot remove {count} tokens: there was padding among them or before")
        if count:
            self._memory = self._memory._replace(length=self._memory.length - count)
            self.seen -= count
