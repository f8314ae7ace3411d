"""Which positions of a batch form which sequence: padded rows, or several documents packed into one row.

Layers take a `mask`: a tensor that is true (or 1) at real positions, as in transformers; or `Sequences`, which a model
makes once for all its layers. Either way each sequence must come out as if it were alone.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class _Group(NamedTuple):
    """Sequences of similar length, one per row."""

    position: Tensor  # (sequences, longest): where in the flattened batch
    real: Tensor  # (sequences, longest): false past the end of a sequence
    target: Tensor  # (real positions,): where in the flattened batch they stand, row after row


class Sequences:
    """Where the sequences of a batch lie. `ids` (..., n): 0 at padding; equal ids in a row are one sequence, in order.

    A mask is the case of one sequence per row; its ids are booleans.

    >>> import torch
    >>> from tnn.layers.sequences import Sequences
    >>> packed = Sequences(torch.tensor([[1, 1, 1, 2, 2, 0]]))               # two documents and one position of padding
    >>> packed.apply(lambda x: x.cumsum(-2), torch.ones(1, 6, 1)).squeeze()
    tensor([1., 2., 3., 1., 2., 0.])
    """

    def __init__(self, ids: Tensor):
        self.ids = ids
        self.real = ids != 0  # (..., n)

    @property
    def packed(self) -> bool:
        """Whether a row may hold more than one sequence."""
        return self.ids.dtype != torch.bool

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> "Sequences":
        """Called between the layers of a model that is split over several devices."""
        ids = self.ids.to(device, non_blocking=non_blocking)
        return self if ids is self.ids else Sequences(ids)

    def zero_padding(self, x: Tensor) -> Tensor:
        """x (..., n, d) with zeros at padded positions; filled, not multiplied, so that a NaN there goes too."""
        return x.masked_fill(~self.real.unsqueeze(-1), 0)

    def apply(self, mix: Callable[[Tensor], Tensor], x: Tensor, *, needs_length: bool = False) -> Tensor:
        """mix(x) along axis -2, each sequence alone. `mix` ignores zeros at the end, unless it `needs_length`."""
        if x.numel() == 0:
            return x
        traced = torch.compiler.is_compiling() or self.ids.is_meta
        if traced and not self.packed and not needs_length:
            return self.apply_aligned(lambda rows, real: mix(rows), x)
        if torch.compiler.is_exporting():
            raise ValueError("rows that are mixed by their own lengths do not fit one graph: export without a mask")
        if self._padded_at_the_ends and not needs_length:
            return mix(self.zero_padding(x))  # the product is shift-invariant: zeros on either side add nothing
        groups = self._same_length if needs_length else self._similar_length
        if not groups:
            return torch.zeros_like(x)
        flat = x.reshape(-1, x.shape[-1])
        mixed = torch.cat([mix(flat[g.position].masked_fill(~g.real.unsqueeze(-1), 0))[g.real] for g in groups])
        y = mixed.new_zeros(flat.shape)  # of its dtype, which under autocast is not that of x
        return y.index_copy(0, torch.cat([g.target for g in groups]), mixed).reshape(x.shape)

    def apply_aligned(self, mix: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
        """mix(rows, real) where each row is one sequence, moved to its start: `real` (..., n) is true up to its end.

        Behind the end there are zeros. Shapes do not depend on the mask: one graph serves every mask.
        """
        count = self.real.cumsum(-1)  # of the real positions up to here
        real = torch.arange(1, x.shape[-2] + 1, device=x.device) <= count[..., -1:]
        padded = count[..., -1:] - 1 + (~self.real).cumsum(-1)
        place = torch.where(self.real, count - 1, padded).unsqueeze(-1).expand(x.shape)  # where each position goes
        rows = torch.zeros_like(x).scatter(-2, place, self.zero_padding(x))
        return mix(rows, real).gather(-2, place)

    @cached_property
    def positions(self) -> Tensor:
        """(real positions,): where in the flattened batch they stand."""
        return self.real.flatten().nonzero().squeeze(1)

    @cached_property
    def _padded_at_the_ends(self) -> bool:
        """At most one sequence per row, without gaps."""
        starts = self.real[..., 1:] & (self.ids[..., 1:] != self.ids[..., :-1])
        return bool((starts.sum(-1) + self.real[..., 0] <= 1).all())

    @cached_property
    def _same_length(self) -> list[_Group]:
        return self._groups(self._sorted[1])

    @cached_property
    def _similar_length(self) -> list[_Group]:
        """Within a power of two, so that less than half is padding."""
        return self._groups(torch.ceil(torch.log2(self._sorted[1].double())))

    def _groups(self, key: Tensor) -> list[_Group]:
        """Sequences with the same key together; key (sequences,)."""
        order, lengths = self._sorted
        starts = lengths.cumsum(0) - lengths
        groups = []
        for member in (key == value for value in key.unique()):
            start, length = starts[member, None], lengths[member, None]
            step = torch.arange(int(length.max()), device=order.device)
            real = step < length
            position = order[torch.where(real, start + step, start)]
            groups.append(_Group(position, real, position[real]))
        return groups

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """Real positions of the flattened batch, sequence after sequence; and the sequences' lengths."""
        ids = self.ids.reshape(-1, self.ids.shape[-1]).long()
        row = torch.arange(len(ids), device=ids.device)[:, None]
        key = (row * (ids.amax() + 1) + ids).flatten()
        order = self.positions[torch.argsort(key[self.positions], stable=True)]
        return order, torch.unique_consecutive(key[order], return_counts=True)[1]


Mask = Tensor | Sequences | None


def resolve_mask(x: Tensor, mask: Mask) -> tuple[Tensor, Sequences | None]:
    """The first step of every layer: check a mask that comes from outside, and zero the inputs at padding."""
    if mask is None or isinstance(mask, Sequences):
        return x, mask
    sequences = Sequences(checked_mask(mask, x))
    return sequences.zero_padding(x), sequences


def checked_mask(mask: Tensor, x: Tensor, name: str = "mask") -> Tensor:
    """`mask` as booleans of shape x.shape[:-1]."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(mask).__name__}")
    if mask.is_complex():
        raise TypeError(f"{name} must be boolean, or hold 0 and 1; got {mask.dtype}")
    if mask.shape != x.shape[:-1]:
        raise ValueError(
            f"{name} must have shape {tuple(x.shape[:-1])}, one entry per position; got {tuple(mask.shape)}"
        )
    if mask.device != x.device:
        raise ValueError(f"{name} and x must share a device; got {mask.device} and {x.device}")
    readable = not (torch.compiler.is_compiling() or mask.is_meta)
    if mask.is_floating_point() and torch.compiler.is_compiling():
        raise TypeError(
            f"{name} must be boolean or integer under torch.compile, which cannot read it; got {mask.dtype}"
        )
    if mask.dtype != torch.bool and readable and not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"{name} must hold 1 at real positions and 0 at padding; got other values (an additive mask?)")
    return mask == 1
