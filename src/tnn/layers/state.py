"""The state of a causal mixer: what a sequence that arrives in parts needs to remember."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from tnn.layers.sequences import Mask, Sequences

MARKS = 2**16  # of so many inputs a croppable state knows whether they were padding


class State:
    """Outputs of a sequence that arrives in parts: each call takes the next inputs and returns their outputs.

    Any split of a sequence into parts gives the outputs of one pass over the whole sequence. Public as
    `tnn.streaming.State`; every cache of a model holds one per layer.

    A subclass writes `__call__`, and `reset` if it has attributes of its own. Besides `owner`, the module whose state
    it is, a state holds plain data: tensors with one row per sequence, named tuples of them, whole numbers, None. With
    that it is selected, copied, pickled and exported without further code; the owner is never part of it. What
    a state computes from its owner alone, to have it at hand, has its name in `derived`.

    >>> import torch
    >>> from tnn.streaming import State
    >>> class RunningSum(State):
    ...     def reset(self):
    ...         self.seen, self.total = 0, None
    ...     def __call__(self, x, mask=None):
    ...         y = x.cumsum(1) if self.total is None else x.cumsum(1) + self.total
    ...         self.total, self.seen = y[:, -1:], self.seen + x.shape[1]
    ...         return y
    >>> state = RunningSum(owner=torch.nn.Identity())
    >>> state(torch.ones(1, 3, 1)).flatten(), state(torch.ones(1, 2, 1)).flatten()
    (tensor([1., 2., 3.]), tensor([4., 5.]))
    """

    croppable: bool = False  # whether `crop` can remove the newest inputs
    derived: ClassVar[tuple[str, ...]] = ()
    owner: Any  # a mixer, or the operator inside it; None if the state was unpickled and not used yet
    _made_for: int  # `made_for` of a state without owner
    seen: int  # how many inputs each row has received, padding included; a tensor in an exported graph

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        torch.serialization.add_safe_globals([cls])  # torch.load(weights_only=True) makes states: they are data

    def __init__(self, owner: Any):
        self.owner = owner
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.seen = 0

    @property
    def batch_size(self) -> int | None:
        """The number of rows; None before the first input."""
        return next((len(t) for t in tree_leaves(self.content()) if isinstance(t, Tensor) and t.ndim), None)

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs of each row -> (batch, n, d). Padding among them is skipped."""
        raise NotImplementedError

    def crop(self, count: int) -> None:
        """Remove the newest `count` inputs; ValueError if the state cannot."""
        raise ValueError("this state cannot remove tokens: it holds sums over all of them")

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be repeated."""
        self._change(lambda t: t.index_select(0, rows.to(t.device)))

    def rows(self, rows: Tensor) -> Self:
        """A state of these rows, in this order; this one stays as it is."""
        twin = self._twin()
        twin.select(rows)
        return twin

    def join(self, others: Sequence[Self]) -> None:
        """Append the rows of other states of the same owner, whatever each of them has seen.

        Rows that have seen less are as if padding had come before them. The others stay as they are. All must have
        seen something, if it was only padding.
        """
        raise ValueError(f"rows of different ages cannot share a {type(self).__name__}")

    def unpad(self, length: int) -> None:
        """Keep the newest `length` inputs: whatever came before them was padding, in every row."""
        self.seen = length

    def content(self) -> dict[str, Any]:
        """What the state holds, by name, without its owner and without what follows from it."""
        left_out = {"owner", "_made_for", *self.derived}
        return {name: value for name, value in vars(self).items() if name not in left_out and value is not None}

    @property
    def nbytes(self) -> int:
        """The memory of its tensors, without those that follow from the owner."""
        left_out = {"owner", *self.derived}
        leaves = tree_leaves([value for name, value in vars(self).items() if name not in left_out])
        return sum(t.nbytes for t in leaves if isinstance(t, Tensor))

    def fits(self, owner: Any) -> bool:
        """Whether `owner` is the owner, or has the structure of the one that made this state, which now has none."""
        if self.owner is not None or owner is None:
            return self.owner is owner is not None
        return self._made_for == _structure(owner)

    def bind(self, owner: Any) -> None:
        """Make `owner` the owner, if it fits."""
        if not self.fits(owner):
            raise ValueError("the state belongs to another module, or to one of another structure")
        self.owner = owner

    @property
    def made_for(self) -> int:
        """A number that tells the structure of the owner: its modules and their sizes."""
        return self._made_for if self.owner is None else _structure(self.owner)

    @classmethod
    def from_content(cls, content: dict[str, Any], made_for: int) -> Self:
        """A state with this content and no owner yet: `bind` gives it one."""
        state = cls.__new__(cls)
        state.__setstate__({**content, "_made_for": made_for})
        return state

    def __getstate__(self) -> dict[str, Any]:
        own = tree_map_only(Tensor, _alone, self.content())
        return {**own, "_made_for": self.made_for}

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.owner = None
        self.reset()
        vars(self).update(content)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """An independent copy of the state, with the same owner."""
        twin = self._twin()
        twin._change(Tensor.clone)
        return twin

    def _twin(self) -> Self:
        """A state with the same owner and the same tensors."""
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def _change(self, function: Callable[[Tensor], Tensor]) -> None:
        """Of all tensors that have rows."""
        own = {name: value for name, value in vars(self).items() if name not in ("owner", *self.derived)}
        vars(self).update(tree_map_only(Tensor, lambda t: function(t) if t.ndim else t, own))


class CroppableState(State):
    """A state whose newest inputs can be removed, in each row as many real ones as there were among them.

    A subclass calls `_count_inputs` with each part, and writes `_remove`.

    >>> import torch
    >>> from tnn.layers import ToeplitzOperator
    >>> from tnn.streaming import CroppableState, new_state
    >>> state = new_state(ToeplitzOperator(channels=4, causal=True))
    >>> _ = state(torch.randn(1, 5, 4))
    >>> state.crop(2)
    >>> isinstance(state, CroppableState), state.seen
    (True, 3)
    """

    croppable = True

    def reset(self) -> None:
        super().reset()
        self._padded_until = 0  # how many inputs had been seen after the last part with padding in it
        self._real: Tensor | None = None  # (batch, <= MARKS): whether the last inputs up to there were real

    def _count_inputs(self, x: Tensor, sequences: Sequences | None) -> None:
        """x (batch, n, d), the part that has been mixed."""
        if sequences is not None:
            marks = [sequences.real]
            if isinstance(self.seen, int):  # a graph remembers the marks of its own part only
                since = min(self.seen - self._padded_until, MARKS)
                marks.insert(0, torch.ones(len(x), since, dtype=torch.bool, device=x.device))
                if self._real is not None:
                    marks.insert(0, self._real)
            self._real = torch.cat(marks, 1)[:, -MARKS:]
            self._padded_until = self.seen + x.shape[1]
        self.seen = self.seen + x.shape[1]

    def crop(self, count: int) -> None:
        """Remove the newest `count` inputs; ValueError if the state cannot."""
        if count < 0:
            raise ValueError(f"count must be 0 or more; got {count}")
        if count > self.seen:
            raise ValueError(f"cannot remove {count} tokens: only {self.seen} have been seen")
        if count == 0:
            return
        since = self.seen - self._padded_until
        marked = count - since  # inputs from before the end of the last part with padding
        if self._real is None or marked <= 0:
            self._remove(count, None)
        else:
            if marked > (known := self._real.shape[1]):
                raise ValueError(f"cannot remove {count} tokens: there was padding before the newest {since + known}")
            self._remove(count, since + self._real[:, -marked:].sum(1))
            self._real = self._real[:, :-marked]
            self._padded_until = self.seen - count
        self.seen -= count

    def unpad(self, length: int) -> None:
        """Keep the newest `length` inputs: whatever came before them was padding, in every row."""
        self._padded_until = max(0, self._padded_until - (self.seen - length))
        if self._real is not None:
            self._real = self._real[:, max(0, self._real.shape[1] - self._padded_until) :]
        super().unpad(length)

    def _forget_marks(self, rows: Tensor) -> None:
        """After a join: `rows` (batch, ...) have seen different parts, and only what comes from now on is removable."""
        self._padded_until = self.seen
        self._real = torch.zeros(len(rows), 0, dtype=torch.bool, device=rows.device)

    def _remove(self, count: int, real: Tensor | None) -> None:
        """Forget the newest `count` inputs, of which `real` (batch,) were real; None: all of them."""
        raise NotImplementedError


States = State | tuple[State, ...] | None  # of a mixer: most have one


def _structure(owner: Any) -> int:
    """Of its modules, as they show themselves, and of the shapes of its parameters: a checksum, which is small."""
    named = [*owner.named_parameters(), *owner.named_buffers()] if isinstance(owner, nn.Module) else []
    shapes = [(name, tuple(value.shape)) for name, value in named]
    return crc32(f"{owner!r} {shapes}".encode())


def _alone(t: Tensor) -> Tensor:
    """Detached, and without the rest of a larger storage, which would be pickled with it."""
    t = t.detach()
    return t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
