"""The state of an operator whose coefficients are sums of decaying oscillations: its size does not grow.

    y_t = sum_{i < m} direct_i x_{t-i} + Re(sum_p weight_p s_p),    s_p <- pole_p s_p + x_{t-m+1}

with real and imaginary part of s_p as two real numbers per channel.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from tnn._precision import compute_dtype, no_autocast
from tnn.layers import ToeplitzOperator
from tnn.layers.poles import PoleKernel
from tnn.layers.sequences import Mask
from tnn.ops import toeplitz_matmul
from tnn.streaming.validation import next_part


class StepConstants(NamedTuple):
    """What a step needs of a kernel."""

    real: Tensor  # (poles, 1)
    imaginary: Tensor  # (poles, 1)
    weights: Tensor  # (2 * poles, d)
    direct: Tensor  # (m, d), the largest lag first


def step_constants(kernel: PoleKernel, dtype: torch.dtype = torch.float32) -> StepConstants:
    real, imaginary = kernel.stable_poles().to(dtype).unsqueeze(-1).unbind(1)
    return StepConstants(real, imaginary, kernel.signed_weights().to(dtype), kernel.direct.to(dtype).flip(0))


def step(x: Tensor, state: Tensor, recent: Tensor, constants: StepConstants) -> tuple[Tensor, Tensor, Tensor]:
    """One input, x (batch, 1, d), with the tensors of a Recurrence -> y (batch, 1, d), and both tensors after it.

    Real numbers and plain operations only, nothing in place: it can be exported.
    """
    real, imaginary, weights, direct = constants
    recent = torch.cat([recent[:, 1:], x], 1)
    # A product and a sum: einsum would make it d tiny matrix products, several times slower.
    y = (state * weights).sum(1, keepdim=True) + (recent * direct).sum(1, keepdim=True)
    turned = _multiply(state.chunk(2, 1), (real, imaginary))
    return y, torch.cat([turned[0] + recent[:, :1], turned[1]], 1), recent


class Recurrence:
    """y = T x of a sequence that comes in parts, with a state of constant size.

    One token is one step of the recurrence. Several are mixed by the fast product, and the state is carried over them
    by matrix products.
    """

    croppable = False

    def __init__(self, operator: ToeplitzOperator):
        if operator.poles is None:
            raise ValueError("a recurrence needs an operator with poles; make one with to_state_space()")
        self.owner = operator
        self.kernel = operator.poles
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self._state: Tensor | None = None  # (batch, 2 * poles, d): real parts, then imaginary parts
        self._recent: Tensor | None = None  # (batch, m, d): the newest inputs, the last one at the end
        self._constants: StepConstants | None = None

    @property
    def batch_size(self) -> int | None:
        """None before the first input."""
        return None if self._state is None else self._state.shape[0]

    @property
    def tensors(self) -> tuple[Tensor, Tensor] | None:
        """The state (batch, 2 * poles, d) and the newest inputs (batch, m, d); None before the first input."""
        return None if self._state is None or self._recent is None else (self._state, self._recent)

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs; padding among them is left out. -> (batch, n, d)."""
        x, sequences = next_part(x, mask, self.owner.channels, self.batch_size)
        limit = self.owner.max_lags
        if limit is not None and self.seen + x.shape[1] > limit:
            raise ValueError(f"this state space is exact for {limit} tokens and wrong after them; got more")
        if self._state is None or self._recent is None:
            poles, direct = len(self.kernel.poles), len(self.kernel.direct)
            self._state = x.new_zeros(x.shape[0], 2 * poles, x.shape[2], dtype=compute_dtype(x))
            self._recent = x.new_zeros(x.shape[0], direct, x.shape[2], dtype=compute_dtype(x))
        if self._state.is_inference() and torch.is_grad_enabled():
            # Begun in inference mode, whose tensors no gradient can pass by later.
            self._state, self._recent = self._state.clone(), self._recent.clone()
        wide = x.to(self._state.dtype)
        with no_autocast(x.device):
            if sequences is not None and not sequences.real.all():
                y = self._row_by_row(wide, sequences.real)
            else:
                y = self._step(wide) if x.shape[1] == 1 else self._many(wide)
        self.seen += x.shape[1]
        return y.to(x.dtype)

    def _step(self, x: Tensor) -> Tensor:
        """One input, x (batch, 1, d)."""
        assert self._state is not None
        assert self._recent is not None
        y, self._state, self._recent = step(x, self._state, self._recent, self._step_constants(x.dtype))
        return y

    def _step_constants(self, dtype: torch.dtype) -> StepConstants:
        """Computed once where no gradient needs the way from the parameters to them."""
        if torch.is_grad_enabled():
            return step_constants(self.kernel, dtype)
        if self._constants is None:
            self._constants = step_constants(self.kernel, dtype)
        return self._constants

    def _many(self, x: Tensor) -> Tensor:
        """Several inputs: the product among them, what the state adds to it, and the state after them."""
        assert self._state is not None
        assert self._recent is not None
        n = x.shape[1]
        line = torch.cat([self._recent[:, 1:], x], 1)  # what the state has not seen: (batch, m - 1 + n, d)
        kernel = self.owner.kernel(line.shape[1])
        y = toeplitz_matmul(line, kernel, causal=True, backend=self.owner.backend)[:, -n:]
        powers = self.kernel.powers(n + 1)  # (n + 1, 2 * poles), in float64
        real, imaginary = powers[n, :, None].chunk(2)
        state, weight = self._state.double().chunk(2, 1), self.kernel.weights.double()
        after, old = _multiply(state, (weight[0], weight[1])), _multiply(state, (real, imaginary))  # (batch, poles, d)
        y = y + torch.einsum("tp,bpd->btd", powers[:n].to(x.dtype), torch.cat([after[0], -after[1]], 1).to(x.dtype))
        new = torch.einsum("tp,btd->bpd", powers[:n].flip(0), line[:, :n].double())  # rounded once, not n times
        self._state = (torch.cat(old, 1) + new).to(x.dtype)
        self._recent = torch.cat([self._recent, x], 1)[:, -self._recent.shape[1] :]
        return y

    def _row_by_row(self, x: Tensor, real: Tensor) -> Tensor:
        """Rows with padding among their inputs advance by different numbers of tokens."""
        y, rows = torch.zeros_like(x), []
        for i in range(len(x)):
            row = copy.copy(self)
            row.select(torch.tensor([i]))
            if real[i].any():
                y[i, real[i]] = row._many(x[i : i + 1, real[i]])[0]
            rows.append(row)
        self._state = torch.cat([row._state for row in rows if row._state is not None])
        self._recent = torch.cat([row._recent for row in rows if row._recent is not None])
        return y

    def crop(self, count: int) -> None:
        raise ValueError("a state of constant size cannot remove tokens; use the exact decoder, which can")

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be repeated."""
        for name in ("_state", "_recent"):
            if (value := getattr(self, name)) is not None:
                setattr(self, name, value.index_select(0, rows.to(value.device)))

    def __deepcopy__(self, memo: dict[int, object]) -> Recurrence:
        """A second state of the same operator; nothing is changed in place."""
        return copy.copy(self)


Complex = tuple[Tensor, Tensor]


def _multiply(a: Complex | list[Tensor] | tuple[Tensor, ...], b: Complex) -> Complex:
    """Of complex numbers as real and imaginary part."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
