"""S4: a convolution with the impulse response of a structured state space."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_fraction, check_positive
from tnn.layers.initialization import start_from
from tnn.mixers.convolution import (
    ConvolutionMixer,
    ConvolutionOperator,
    as_complex,
    check_steps,
    in_slices,
)
from tnn.mixers.hippo import hippo_modes
from tnn.mixers.presets import (
    LRA_TASKS,
    NO_POSITIONS,
    STATE_SPACE,
    Fields,
    causal_lm,
    lra,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_lra_image,
    mini_masked_lm,
    sizes,
)
from tnn.mixers.registry import register_mixer

FIRST_PERIOD = 512  # of the published kernels, which are periodic: the period is doubled until it covers the length

LRA: Fields = NO_POSITIONS | sizes(6, 64, embedding_dropout=0.0, mixer_options={"state_size": 8, "n_ssm": 64})
LRA_CHANGES: dict[str, Fields] = {
    "listops": {"norm_position": "post"},
    "image": {
        "num_hidden_layers": 4,
        "norm": "layer",
        "norm_position": "post",
        "dropout": 0.1,
        "mixer_options": {"state_size": 64, "n_ssm": 2},
    },
}
# Kernels of 64 states would take more time than the rest of a small model.
MINI: Fields = {"mixer_options": {"state_size": 16}}


@register_mixer(
    "s4",
    channel_mixer=None,
    small_options={"state_size": 8},
    presets=[
        causal_lm(STATE_SPACE, sizes(8, 1024, embedding_size=512)),
        masked_lm(
            STATE_SPACE, NO_POSITIONS, sizes(10, 1536), norm_position="pre", mixer_options={"inner_dropout": 0.1}
        ),
        *[lra(task, LRA, LRA_CHANGES.get(task, {})) for task in LRA_TASKS],
        # Twice as wide as the other mixers, as published.
        mini_causal_lm(MINI, sizes(4, 256, embedding_size=128)),
        # Not twice as wide: the embedding, which is also the output matrix, would have nearly all parameters.
        mini_masked_lm(MINI, NO_POSITIONS, sizes(5, 168), norm="simple_rms", norm_position="pre"),
        mini_lra(MINI, NO_POSITIONS, num_hidden_layers=4),
        mini_lra_image(NO_POSITIONS, num_hidden_layers=4, mixer_options={"state_size": 18}),
    ],
)
class S4(ConvolutionMixer):
    """GLU(W gelu(k * x + D x)), k_l = C Ab^l Bb: a discretised state space x' = A x + B u, y = C x for each channel.

    A = diag(w) - p p^* starts from HiPPO-LegS with `state_size` states; one of each conjugate pair is stored.
    Ab = (I - dt A / 2)^-1 (I + dt A / 2) and Bb = (I - dt A / 2)^-1 dt B, where the dt of each channel starts between
    `dt_min` and `dt_max`. The channels share `n_ssm` sets of A and B (None: each channel has its own). If
    bidirectional, a second C gives the kernel over later inputs. `inner_dropout` is applied before W.

    `as_published` is the implementation that the paper compares with: without a norm and a residual connection, and
    with the stored half of the modes only.

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
        S4.check_options(
            hidden_size,
            state_size=state_size,
            n_ssm=n_ssm,
            dt_min=dt_min,
            dt_max=dt_max,
            inner_dropout=inner_dropout,
        )
        super().__init__(hidden_size, causal=causal, as_published=as_published)
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

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        *,
        state_size: int = 64,
        n_ssm: int | None = None,
        dt_min: float = 1e-3,
        dt_max: float = 0.1,
        inner_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().check_options(hidden_size, **options)
        check_positive("state_size", state_size)
        if state_size % 2:
            raise ValueError(f"state_size must be even: modes come in conjugate pairs; got {state_size}")
        check_steps(dt_min, dt_max)
        if n_ssm is not None:
            check_positive("n_ssm", n_ssm)
            if hidden_size % n_ssm:
                raise ValueError(f"n_ssm must divide the {hidden_size} channels, which share the sets; got {n_ssm}")
        check_fraction("inner_dropout", inner_dropout)

    def transform(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        return F.glu(self.out_proj(self.dropout(F.gelu(convolve(x)))), -1)


class S4Operator(ConvolutionOperator):
    """The convolution of S4; S4.check_options checks the values. `half_modes` leaves the conjugate modes out."""

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
        sets = channels if n_ssm is None else n_ssm
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

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        """The published training: the state space learns slowly and is not drawn to zero."""
        names = ("log_dt", "log_decay", "frequency", "b", "p")
        return {name: {"learning_rate": 1e-3, "weight_decay": 0.0} for name in names}

    def responses(self, length: int) -> tuple[Tensor, Tensor | None]:
        period = length
        if self.half_modes:
            period = FIRST_PERIOD
            while period < length:
                period *= 2
        copies = self.channels // len(self.b)
        w = torch.complex(-self.log_decay.double().exp(), self.frequency.double())
        w, b, p = (v.repeat(copies, 1) for v in (w, as_complex(self.b), as_complex(self.p)))  # (channels, modes)
        steps = self.log_dt.double().exp()
        compute = partial(_half_responses if self.half_modes else _responses, period)
        numbers = self.state_size * (self.state_size + 4 * math.isqrt(period))
        kernels = in_slices(compute, w, b, p, as_complex(self.c), steps, numbers_per_channel=numbers)
        after, *before = kernels[..., :length].permute(1, 2, 0)  # from (channels, sides, length)
        return after, before[0] if before else None


def _responses(length: int, w: Tensor, b: Tensor, p: Tensor, c: Tensor, steps: Tensor) -> Tensor:
    """w, b, p (channels, modes), c (channels, sides, modes), steps (channels,) -> (channels, sides, length).

    In real coordinates: a mode x = r + i s and its conjugate are the two numbers r, s.
    """
    real, imaginary = torch.diag_embed(w.real), torch.diag_embed(w.imag)
    p = torch.cat([p.real, p.imag], -1)
    matrix = torch.cat([torch.cat([real, -imaginary], -1), torch.cat([imaginary, real], -1)], -2)
    matrix = matrix - 2 * p[:, :, None] * p[:, None, :]  # p p^* for the modes and their conjugates
    b = torch.cat([b.real, b.imag], -1)
    c = 2 * torch.cat([c.real, -c.imag], -1)  # the two conjugates add 2 Re(c x)
    return _impulse_response(length, matrix, b, c, steps)


def _half_responses(length: int, w: Tensor, b: Tensor, p: Tensor, c: Tensor, steps: Tensor) -> Tensor:
    """The same from the stored modes only, as published. That response is complex; the lower half of its spectrum is
    used as the spectrum of a real kernel with the period `length`.
    """
    matrix = torch.diag_embed(w) - p[:, :, None] * p[:, None, :].conj()
    spectrum = torch.fft.fft(_impulse_response(length, matrix, b, c, steps))
    return torch.fft.irfft(spectrum[..., : length // 2 + 1], length)


def _impulse_response(length: int, a: Tensor, b: Tensor, c: Tensor, steps: Tensor) -> Tensor:
    """k_l = c Ab^l Bb. a (channels, N, N), b (channels, N), c (channels, sides, N) -> (channels, sides, length).

    With l = i + stride j, k_l is a product of c Ab^i and Ab^(stride j) Bb: two sets of about sqrt(length) vectors,
    which are computed by doubling. The powers of Ab have norms of at most 1, so that no precision is lost.
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
    response = (rows @ columns).unflatten(1, (stride, -1))  # (channels, stride, sides, blocks)
    return response.permute(0, 2, 3, 1).flatten(2)[..., :length]
