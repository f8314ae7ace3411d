"""Mixers with a matrix of weights for a fixed number of positions."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_positive
from tnn.layers.state import CroppableState
from tnn.mixers.aligned import AlignedMixer, RowState


class PositionalMixer(AlignedMixer):
    """z = A v for the first `max_length` positions. Later positions have z = 0, and no other position sees them.

    A subclass writes v (`enter_mixing`), A v (`mix_positions`) and the output (`leave_mixing`). Causal outputs do not
    change when tokens are added; the state holds v.
    """

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, max_length: int = 512):
        PositionalMixer.check_options(hidden_size, max_length=max_length)
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        self.max_length = max_length

    @classmethod
    def check_options(cls, hidden_size: int, *, max_length: int = 512, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("max_length", max_length)

    def enter_mixing(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """x (..., n, hidden_size) -> v (..., n, c), and what leave_mixing needs in addition to z."""
        return x, None

    def mix_positions(self, x: Tensor, v: Tensor, position: Tensor, visible: Tensor | None) -> Tensor:
        """A v, for the rows of A at `position` (n) or (..., n), which have the inputs x (..., n, d).

        v (..., m, c) has the positions 0 to m - 1. `visible` (..., n or 1, m) is false where A is zero; None: nowhere.
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
            visible = position <= position.unsqueeze(-1)  # what follows the end of a row is later than all of it
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
        width = min(held + x.shape[1], self.max_length)  # the positions that any row may have filled
        target = torch.where(real & (position < width), position, width)  # the rest: a column that is dropped
        values = F.pad(memory.v, (0, 0, 0, width + 1 - held)).scatter(1, target.unsqueeze(-1).expand(v.shape), v)
        values = values[:, :width]  # (batch, width, c)

        visible = torch.arange(width, device=x.device) <= position.unsqueeze(-1)  # (batch, n, width)
        z = self.mix_positions(x, values, position.clamp(0, self.max_length - 1), visible)
        z = z.masked_fill((position >= self.max_length).unsqueeze(-1), 0)
        return self.leave_mixing(z, gate), PositionalMemory(values, memory.length + real.sum(-1))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}"


class PositionalMemory(NamedTuple):
    v: Tensor  # (batch, <= max_length, c), by position
    length: Tensor  # (batch,): number of tokens so far


torch.serialization.add_safe_globals([PositionalMemory])


class PositionalState(CroppableState, RowState):
    """Holds v of all tokens, so the newest can be removed: what is past the end of a row is not seen."""

    def _remove(self, count: int, real: Tensor | None) -> None:
        self._memory = self._memory._replace(length=self._memory.length - (count if real is None else real))
