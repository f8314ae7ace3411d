"""The state of an operator whose coefficients are sums of decaying oscillations: its size does not grow.

    y_t = sum_{i < m} direct_i x_{t-i} + Re(sum_p weight_p s_p),    s_p <- pole_p s_p + x_{t-m+1}

with real and imaginary part of s_p as two real numbers per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tnn._precision import compute_dtype, no_autocast
from tnn.layers import ToeplitzOperator
from tnn.layers.poles import PoleKernel
from tnn.layers.sequences import Mask
from tnn.layers.state import State
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


class Recurrence(State):
    """y = T x of a sequence that comes in parts, with a state of constant size.

    One token is one step of the recurrence. Several are mixed by the fast product, and the state is carried over them
    by matrix products.
    """

    derived = ("_constants",)
    owner: ToeplitzOperator

    def __init__(self, operator: ToeplitzOperator):
        if operator.poles is None:
            raise ValueError("a recurrence needs an operator with poles; make one with to_state_space()")
        super().__init__(operator)

    def reset(self) -> None:
        super().reset()
        self._state: Tensor | None = None  # (batch, 2 * poles, d): real parts, then imaginary parts
        self._recent: Tensor | None = None  # (batch, m, d): the newest inputs, the last one at the end
        self._constants: StepConstants | None = None

    @property
    def kernel(self) -> PoleKernel:
        assert self.owner.poles is not None
        return self.owner.poles

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
        self._check_limit(x.shape[1])
        if self._state is None or self._recent is None:
            poles, direct = len(self.kernel.poles), len(self.kernel.direct)
            self._state = x.new_zeros(x.shape[0], 2 * poles, x.shape[2], dtype=compute_dtype(x))
            self._recent = x.new_zeros(x.shape[0], direct, x.shape[2], dtype=compute_dtype(x))
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and self._state.is_inference():
            # Begun in inference mode, whose tensors no gradient can pass by later.
            self._state, self._recent = self._state.clone(), self._recent.clone()
        wide = x.to(self._state.dtype)
        with no_autocast(x.device):
            if sequences is not None and (torch.compiler.is_compiling() or not sequences.real.all()):
                y = self._padded(sequences.zero_padding(wide), sequences.real)
            else:
                y = self._step(wide) if x.shape[1] == 1 else self._many(wide)
        self.seen = self.seen + x.shape[1]
        return y.to(x.dtype)

    def _check_limit(self, n: int) -> None:
        limit = self.owner.max_lags
        if limit is None:
            return
        if torch.compiler.is_exporting():
            raise ValueError(f"this state space is for {limit} tokens, which an exported graph would not count")
        if self.seen + n > limit:
            raise ValueError(f"this state space is exact for {limit} tokens and wrong after them; got more")

    def _step(self, x: Tensor) -> Tensor:
        """One input, x (batch, 1, d)."""
        assert self._state is not None
        assert self._recent is not None
        y, self._state, self._recent = step(x, self._state, self._recent, self._step_constants(x.dtype))
        return y

    def _step_constants(self, dtype: torch.dtype) -> StepConstants:
        """Computed once where no gradient needs the way from the parameters to them."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return step_constants(self.kernel, dtype)
        if self._constants is None:
            self._constants = step_constants(self.kernel, dtype)
        return self._constants

    def _many(self, x: Tensor) -> Tensor:
        """Several inputs: the product among them, what the state adds to it, and the state after them."""
        assert self._recent is not None
        held, n = torch.cat([self._recent, x], 1), x.shape[1]
        y = self._advance(held[:, 1:], n, torch.arange(n, device=x.device).unsqueeze(0))
        self._recent = held[:, n:].clone()  # not with all of `held` behind it
        return y[:, -n:]

    def _padded(self, x: Tensor, real: Tensor) -> Tensor:
        """The same with padding among them, 0 in x: it is moved in front of all inputs, where it adds nothing."""
        assert self._recent is not None
        (batch, n), m = real.shape, self._recent.shape[1]
        known = torch.ones(batch, m, dtype=torch.bool, device=x.device)
        order = torch.argsort(torch.cat([known, real], 1).byte(), dim=1, stable=True)
        index = order.unsqueeze(-1).expand(-1, -1, x.shape[2])
        held = torch.cat([self._recent, x], 1).gather(1, index)
        line = torch.cat([torch.zeros_like(self._recent[:, :1]), self._recent[:, 1:], x], 1).gather(1, index)
        steps = torch.arange(n, device=x.device) - (n - real.sum(1, keepdim=True))  # (batch, n), below 0 at padding
        y = self._advance(line[:, 1:], n, steps)
        self._recent = held[:, n:].clone()
        y = torch.cat([torch.zeros_like(y[:, :1]), y], 1)
        return torch.zeros_like(y).scatter(1, index, y)[:, -n:]

    def _advance(self, line: Tensor, n: int, steps: Tensor) -> Tensor:
        """The outputs of line (batch, m - 1 + n, d): the inputs that the state has not seen, and n new ones.

        `steps` (batch or 1, n): how many inputs of its row precede each new one, below 0 at padding.
        """
        assert self._state is not None
        kernel = self.owner.shared_kernel(line.shape[1], line.device)
        y = toeplitz_matmul(line, kernel, causal=True, backend=self.owner.backend)
        powers = self.kernel.powers(n + 1)  # (n + 1, 2 * poles), in float64
        real, imaginary = powers[steps[:, -1] + 1].unsqueeze(-1).chunk(2, 1)  # (batch or 1, poles, 1)
        state, weight = self._state.double().chunk(2, 1), self.kernel.weights.double()
        after, old = _multiply(state, (weight[0], weight[1])), _multiply(state, (real, imaginary))  # (batch, poles, d)
        weights = torch.cat([after[0], -after[1]], 1).to(line.dtype)
        added = powers[steps.clamp_min(0)].to(line.dtype) @ weights  # (batch, n, d)
        new = torch.einsum("tp,btd->bpd", powers[:n].flip(0), line[:, :n].double())  # rounded once, not n times
        self._state = (torch.cat(old, 1) + new).to(line.dtype)
        return torch.cat([y[:, :-n], y[:, -n:] + added], 1)

    def join(self, others: Sequence[Recurrence]) -> None:
        """There is no position in it: rows of any age stand side by side."""
        parts = [state.tensors for state in (self, *others)]
        assert None not in parts
        self._state, self._recent = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        self.seen = max(state.seen for state in (self, *others))

    def crop(self, count: int) -> None:
        raise ValueError("a state of constant size cannot remove tokens; use the exact decoder, which can")


Complex = tuple[Tensor, Tensor]


def _multiply(a: Complex | list[Tensor] | tuple[Tensor, ...], b: Complex) -> Complex:
    """Of complex numbers as real and imaginary part."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
