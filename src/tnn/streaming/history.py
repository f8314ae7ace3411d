"""The exact state of a causal Toeplitz operator: its past inputs, and what they add to the next block of outputs.

A new output needs products with the newest inputs only: once in `BLOCK` tokens, one fast product over the history
computes what all older inputs add to the next `BLOCK` outputs. The history is bounded by the reach of the operator
where that has one, and grows otherwise. Any split of a sequence into parts gives the same outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._precision import compute_dtype
from tnn.layers.sequences import Mask, Sequences
from tnn.layers.state import CroppableState
from tnn.ops import toeplitz_matmul
from tnn.streaming.validation import next_part

BLOCK = 64  # newest inputs that are mixed one by one
SPARE = 128  # inputs kept beyond the reach, so that up to this many tokens can be removed


class CausalOperator(Protocol):
    """What a history needs of an operator: ToeplitzOperator has it."""

    @property
    def channels(self) -> int: ...
    @property
    def causal(self) -> bool: ...
    @property
    def depends_on_length(self) -> bool: ...
    @property
    def reach(self) -> int | None: ...  # lags that are not zero; None if there is no end
    @property
    def backend(self) -> str: ...
    def shared_kernel(self, length: int, device: torch.device, /) -> Tensor: ...  # (<= length, d)


class History(CroppableState):
    """y = T x of a sequence that comes in parts: each call takes the next inputs and returns their outputs.

    >>> import torch
    >>> from tnn.layers import ToeplitzOperator
    >>> from tnn.streaming import History
    >>> operator, x = ToeplitzOperator(channels=4, causal=True).eval(), torch.randn(1, 10, 4)
    >>> with torch.no_grad():
    ...     state = History(operator)
    ...     parts = [state(x[:, :7]), state(x[:, 7:8]), state(x[:, 8:])]
    ...     torch.testing.assert_close(torch.cat(parts, 1), operator(x), atol=1e-5, rtol=1e-5)
    """

    derived = ("_kernel", "_near")
    owner: CausalOperator

    def __init__(self, operator: CausalOperator):
        if not operator.causal:
            raise ValueError("a state needs a causal operator: outputs of a bidirectional one depend on later inputs")
        if operator.depends_on_length:
            raise ValueError(
                'a state needs coefficients that stay: with rpe_input="normalized" they change with the length'
            )
        super().__init__(operator)

    def reset(self) -> None:
        super().reset()
        self._past: Tensor | None = None  # (batch, <= reach - 1 + SPARE, d)
        self._recent: Tensor | None = None  # (batch, BLOCK, d), of which _count are filled
        self._count = 0
        self._ahead: Tensor | None = None  # (batch, BLOCK, d): what the past adds to the outputs of this block
        self._kernel: Tensor | None = None  # (lags, d): as many as have been needed so far
        self._near: Tensor | None = None  # the first of them, reversed

    @property
    def batch_size(self) -> int | None:
        """None before the first input."""
        return None if self._past is None else self._past.shape[0]

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs; padding among them is left out. -> (batch, n, d)."""
        x, sequences = next_part(x, mask, self.owner.channels, self.batch_size)
        if self._past is None:
            self._past = x.new_zeros(x.shape[0], 0, x.shape[2], dtype=compute_dtype(x))
        wide = x.to(self._past.dtype)
        y = self._few(wide) if sequences is None and self._are_few(x.shape[1]) else self._many(wide, sequences)
        self._count_inputs(x, sequences)
        return y.to(x.dtype)

    def _are_few(self, n: int) -> bool:
        """Whether to mix n inputs one by one; the first part, if it is longer than one, is mixed as without a state."""
        return not _is_recorded() and n <= BLOCK - self._count and (n == 1 or self.seen > 0)

    def _few(self, x: Tensor) -> Tensor:
        """Inputs that fit into the current block."""
        if self._ahead is None or self._recent is None:
            self._recent = x.new_empty(x.shape[0], BLOCK, x.shape[2])
            self._ahead = self._contribution()
        if self._recent.is_inference() and not torch.is_inference_mode_enabled():
            self._recent = self._recent.clone()  # begun in inference mode, where tensors cannot be written to later
        first, end = self._count, self._count + x.shape[1]
        self._recent[:, first:end] = x
        if x.shape[1] == 1:
            y = (self._recent[:, :end] * self._countdown()[-end:]).sum(1, keepdim=True)  # sum_j t_{i-j} x_j
        else:
            y = self._product(self._recent[:, :end])[:, first:]
        y += self._ahead[:, first:end]
        self._count = end
        if end == BLOCK:
            self._close_block()
        return y

    def _many(self, x: Tensor, sequences: Sequences | None) -> Tensor:
        """Any number of inputs, by one product over them and the history."""
        self._close_block()
        assert self._past is not None
        n = x.shape[1]
        if sequences is None:
            line = torch.cat([self._past, x], 1) if self._past.shape[1] else x
            y = self._product(line)
        else:
            line = torch.cat([self._past, sequences.zero_padding(x)], 1)
            held = torch.ones(self._past.shape[:2], dtype=torch.bool, device=x.device)
            real = torch.cat([held, sequences.real], 1)
            order = torch.argsort(real.byte(), dim=1, stable=True)  # padding first: there it adds nothing
            index = order.unsqueeze(-1).expand(line.shape)
            line = line.gather(1, index)
            y = torch.zeros_like(line).scatter(1, index, self._product(line))
        self._keep(line)
        return y[:, -n:]

    def _contribution(self) -> Tensor:
        """(batch, BLOCK, d): what the history adds to the next BLOCK outputs."""
        assert self._past is not None
        reach = self.owner.reach
        visible = self._past if reach is None else self._past[:, max(0, self._past.shape[1] - (reach - 1)) :]
        rest = visible.new_zeros(visible.shape[0], BLOCK, visible.shape[2])
        if visible.shape[1] == 0:
            return rest
        return self._product(torch.cat([visible, rest], 1))[:, -BLOCK:]

    def _product(self, line: Tensor) -> Tensor:
        return toeplitz_matmul(line, self._lags(line.shape[1]), causal=True, backend=self.owner.backend)

    def _lags(self, count: int) -> Tensor:
        """(<= count, d): the first coefficients; kept, and twice as many the next time, up to the reach."""
        assert self._past is not None
        device = self._past.device
        if _is_recorded():
            return self.owner.shared_kernel(count, device)
        reach = self.owner.reach
        wanted = count if reach is None else min(count, reach)
        if self._kernel is None:
            self._kernel = self.owner.shared_kernel(wanted, device)
        elif len(self._kernel) < wanted:
            ahead = 2 ** (wanted - 1).bit_length()
            self._kernel = self.owner.shared_kernel(ahead if reach is None else min(ahead, reach), device)
        return self._kernel[:count]

    def _countdown(self) -> Tensor:
        """(BLOCK, d): the coefficients of lags BLOCK - 1 down to 0."""
        if self._near is None:
            near = self._lags(BLOCK)
            self._near = near.new_zeros(BLOCK, near.shape[1])
            self._near[BLOCK - len(near) :] = near.flip(0)
        return self._near

    def _close_block(self) -> None:
        """Move the inputs of the current block to the history."""
        assert self._past is not None
        if self._count:
            assert self._recent is not None
            self._keep(torch.cat([self._past, self._recent[:, : self._count]], 1))
        self._count, self._ahead = 0, None

    def _keep(self, line: Tensor) -> None:
        """All of it, or as much as the operator reaches back.

        A full history is overwritten in place: a long-lived block of memory among the short-lived ones of each part
        would fragment the heap, and the process would grow.
        """
        assert self._past is not None
        reach = self.owner.reach
        if reach is None:
            self._past = line
            return
        newest = line[:, torch.sym_max(0, line.shape[1] - (reach - 1 + SPARE)) :]
        may_write = not _is_recorded() and self._past.is_inference() == torch.is_inference_mode_enabled()
        if may_write and self._past.shape == newest.shape:
            self._past.copy_(newest)
        else:
            self._past = newest.clone()

    def _remove(self, count: int, real: Tensor | None) -> None:
        self._close_block()
        assert self._past is not None
        most = count if real is None else int(real.max())
        least = count if real is None else int(real.min())
        held, reach = self._past.shape[1], self.owner.reach
        if held < self.seen and (reach is None or held - most < reach - 1):
            raise ValueError(f"cannot remove {count} tokens: the state keeps {SPARE} beyond its reach")
        kept = self._past[:, : held - least]
        if real is not None and most > least:  # rows that lose more are moved to the end, behind zeros
            source = torch.arange(held - least, device=kept.device) - (real - least).unsqueeze(1)
            index = source.clamp_min(0).unsqueeze(-1).expand(kept.shape)
            kept = kept.gather(1, index).masked_fill((source < 0).unsqueeze(-1), 0)
        self._past = kept

    def join(self, others: Sequence[History]) -> None:
        """Zeros in front of a history add nothing, so that rows can have any age once their blocks are aligned.

        The others are cut where this state is in its block, which takes one product over their histories.
        """
        if not others:
            return
        new = History(self.owner)
        lines = [other._line() for other in others]
        longest = max(self._count, *(line.shape[1] for line in lines))
        line = torch.cat([_left_padded(line, longest) for line in lines])  # (new rows, longest, d)
        new._past = line[:, : longest - self._count]
        new._kernel, new._near = self._kernel, self._near
        assert self._past is not None
        if self._count:
            assert self._recent is not None
            assert self._ahead is not None
            self._ahead = torch.cat([self._ahead, new._contribution()])
            self._recent = torch.cat([self._recent, F.pad(line[:, longest - self._count :], self._room)])
        else:
            self._recent = None
        held = max(self._past.shape[1], new._past.shape[1])
        self._past = torch.cat([_left_padded(self._past, held), _left_padded(new._past, held)])
        self.seen = max(self.seen, *(other.seen for other in others))
        self._forget_marks(self._past)

    @property
    def _room(self) -> tuple[int, int, int, int]:
        """The padding that makes the inputs of the current block a whole block."""
        return (0, 0, 0, BLOCK - self._count)

    def _line(self) -> Tensor:
        """(batch, n, d): the history and the current block."""
        assert self._past is not None
        if not self._count:
            return self._past
        assert self._recent is not None
        return torch.cat([self._past, self._recent[:, : self._count]], 1)

    def unpad(self, length: int) -> None:
        """Keep the newest `length` inputs: whatever came before them was padding, in every row."""
        if self._past is not None and (extra := self._past.shape[1] + self._count - length) > 0:
            self._past = self._past[:, extra:].clone()
        super().unpad(length)

    def content(self) -> dict[str, Any]:
        """As if the current block had just been moved to the history."""
        content = super().content()
        for name in ("_recent", "_count", "_ahead"):
            content.pop(name, None)
        if self._past is not None and self._recent is not None:
            content["_past"] = torch.cat([self._past, self._recent[:, : self._count]], 1)
        return content


def _left_padded(line: Tensor, length: int) -> Tensor:
    """line (batch, n, d) with zeros in front: (batch, length, d)."""
    return F.pad(line, (0, 0, length - line.shape[1], 0))


def _is_recorded() -> bool:
    """Whether a gradient or a graph needs the way from the parameters to the outputs, without writes in place."""
    return torch.is_grad_enabled() or torch.compiler.is_compiling()
