"""S4: a convolution with the impulse response of a structured state space."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_fraction, check_positive
from tnn.mixers.convolution import (
    ConvolutionMixer,
    ConvolutionOperator,
    as_complex,
    check_steps,
    in_slices,
    start_from,
)
from tnn.mixers.hippo import hippo_modes
from tnn.mixers.registry import register_mixer

FIRST_LENGTH = 512  # of the published port, which takes its kernels from a period: this, doubled until it covers n


@register_mixer("s4", channel_mixer=None, small_options={"state_size": 8})
class S4(ConvolutionMixer):
    """GLU(W gelu(k * x + D x)), k_l = C Ab^l Bb: the state space x' = A x + B u, y = C x of each channel, in steps.

    A = diag(w) - p p^* starts from HiPPO-LegS with `state_size` states, of which one in each conjugate pair is stored;
    Ab = (I - dt A / 2)^-1 (I + dt A / 2) and Bb = (I - dt A / 2)^-1 dt B, with dt of each channel between `dt_min` and
    `dt_max` at the start. `n_ssm` sets of A and B are shared by the channels in turn (None: each has its own).
    Bidirectional, a second C gives the kernel over later inputs. `inner_dropout` acts before W.

    `as_published` is the port that the paper compares with: without a norm and a residual, and with the stored half of the
    modes in place of all.

    Gu, Goel and Re (2022), Efficiently Modeling Long Sequences with Structured State Spaces.

    >>> import torch
    >>> from tnn.mixers.s4 import S4
    >>> S4(16, causal=True, state_size=8)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        state_size: int = 64,
        n_ssm: int | None = None,
        dt_min: float = 1e-3,
        dt_max: float = 0.1,
        inner_dropout: float = 0.0,
    ):
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        check_fraction("inner_dropout", inner_dropout)
        self.owns_residual = as_published
        self.operator = S4Operator(
            hidden_size,
            causal=causal,
            state_size=state_size,
            n_ssm=n_ssm,
            dt_min=dt_min,
            dt_max=dt_max,
            half_modes=as_published,
        )
        self.dropout = nn.Dropout(inner_dropout)
        self.out_proj = nn.Linear(hidden_size, 2 * hidden_size)

    def transform(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        return F.glu(self.out_proj(self.dropout(F.gelu(convolve(x)))), -1)


class S4Operator(ConvolutionOperator):
    """The convolution of S4; see there. `half_modes` leaves the conjugate modes out."""

    def __init__(
        self,
        channels: int,
        *,
        causal: bool,
        state_size: int,
        n_ssm: int | None,
        dt_min: float,
        dt_max: float,
        half_modes: bool,
    ):
        super().__init__(channels, causal=causal)
        check_positive("state_size", state_size)
        if state_size % 2:
            raise ValueError(f"state_size must be even: modes come in conjugate pairs; got {state_size}")
        check_steps(dt_min, dt_max)
        sets = channels if n_ssm is None else n_ssm
        check_positive("n_ssm", sets)
        if channels % sets:
            raise ValueError(f"n_ssm must divide the {channels} channels, which share the sets; got {n_ssm}")
        self.state_size = state_size
        self.half_modes = self.depends_on_length = half_modes
        self._steps = (dt_min, dt_max)
        modes = state_size // 2
        self.log_dt = nn.Parameter(torch.empty(channels))
        self.log_decay = nn.Parameter(torch.empty(sets, modes))  # w = -exp(log_decay) + i frequency
        self.frequency = nn.Parameter(torch.empty(sets, modes))
        self.b = nn.Parameter(torch.empty(sets, modes, 2))  # real, imaginary
        self.p = nn.Parameter(torch.empty(sets, modes, 2))
        self.c = nn.Parameter(torch.empty(channels, 1 if causal else 2, modes, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        low, high = map(math.log, self._steps)
        nn.init.uniform_(self.log_dt, low, high)
        nn.init.constant_(self.log_decay, math.log(0.5))
        start = hippo_modes(self.state_size)
        start_from(self.frequency, start.frequency)
        start_from(self.b, torch.view_as_real(start.b))
        start_from(self.p, torch.view_as_real(start.p))
        nn.init.normal_(self.c, std=0.5**0.5)

    def responses(self, length: int) -> tuple[Tensor, Tensor | None]:
        period = length
        if self.half_modes:
            period = FIRST_LENGTH
            while period < length:
                period *= 2
        copies = self.channels // len(self.b)
        w = torch.complex(-self.log_decay.double().exp(), self.frequency.double())
        w, b, p = (v.repeat(copies, 1) for v in (w, as_complex(self.b), as_complex(self.p)))  # (channels, modes)
        steps = self.log_dt.double().exp()
        find = partial(_half_responses if self.half_modes else _responses, period)
        held = self.state_size * (self.state_size + 4 * math.isqrt(period))
        found = in_slices(find, w, b, p, as_complex(self.c), steps, held=held)  # (channels, sides, period)
        after, *before = found[..., :length].permute(1, 2, 0)
        return after, before[0] if before else None


def _responses(length: int, w: Tensor, b: Tensor, p: Tensor, c: Tensor, steps: Tensor) -> Tensor:
    """w, b, p (channels, modes), c (channels, sides, modes), steps (channels,) -> (channels, sides, length).

    In real coordinates: a mode x = r + i s and its conjugate are the two numbers r, s.
    """
    diagonal, turn = torch.diag_embed(w.real), torch.diag_embed(w.imag)
    p = torch.cat([p.real, p.imag], -1)
    matrix = torch.cat([torch.cat([diagonal, -turn], -1), torch.cat([turn, diagonal], -1)], -2)
    matrix = matrix - 2 * p[:, :, None] * p[:, None, :]  # p p^* of both halves, on both
    b = torch.cat([b.real, b.imag], -1)
    c = 2 * torch.cat([c.real, -c.imag], -1)  # the two conjugates add 2 Re(c x)
    return _impulse_response(length, matrix, b, c, steps)


def _half_responses(length: int, w: Tensor, b: Tensor, p: Tensor, c: Tensor, steps: Tensor) -> Tensor:
    """The same from the stored modes alone, as the port has it: the lower half of the spectrum of what is complex then
    is taken for that of a real kernel, which has `length` as its period.
    """
    matrix = torch.diag_embed(w) - p[:, :, None] * p[:, None, :].conj()
    spectrum = torch.fft.fft(_impulse_response(length, matrix, b, c, steps))
    return torch.fft.irfft(spectrum[..., : length // 2 + 1], length)


def _impulse_response(length: int, a: Tensor, b: Tensor, c: Tensor, steps: Tensor) -> Tensor:
    """k_l = c Ab^l Bb. a (channels, N, N), b (channels, N), c (channels, sides, N) -> (channels, sides, length).

    With l = i + stride j it is a product of c Ab^i and Ab^(stride j) Bb, each about sqrt(length) vectors, which
    doubling finds: the powers of Ab are never larger than 1, so that no digits are lost.
    """
    half = steps[:, None, None] / 2
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    inverse = torch.linalg.inv(eye - half * a)
    power = 2 * inverse - eye  # Ab
    rows, columns = c, inverse @ (2 * half * b.unsqueeze(-1))  # (channels, stride * sides, N), (channels, N, blocks)
    stride = 1
    while stride * stride < length:
        rows, power, stride = torch.cat([rows, rows @ power], 1), power @ power, 2 * stride
    blocks = -(-length // stride)
    while (count := columns.shape[-1]) < blocks:
        if count > 1:
            power = power @ power
        columns = torch.cat([columns, power @ columns[..., : blocks - count]], -1)
    found = (rows @ columns).unflatten(1, (stride, -1))  # (channels, stride, sides, blocks)
    return found.permute(0, 2, 3, 1).flatten(2)[..., :length]
