"""DSS: a convolution with sums of exponentials, which are normalised over the length."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_fraction, check_positive
from tnn._precision import compute_dtype
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
    NO_POSITIONS,
    STATE_SPACE,
    Fields,
    causal_lm,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_masked_lm,
    sizes,
)
from tnn.mixers.registry import register_mixer

EPSILON = 1e-7  # added to |z|^2 in 1 / z

# Kernels of 64 states would take more time than the rest of a small model.
MINI: Fields = NO_POSITIONS | {"mixer_options": {"state_size": 16}}


@register_mixer(
    "dss",
    channel_mixer=None,
    small_options={"state_size": 8},
    presets=[
        causal_lm(STATE_SPACE, NO_POSITIONS, sizes(16, 1024, embedding_size=512)),
        masked_lm(
            STATE_SPACE, NO_POSITIONS, sizes(16, 1536), norm_position="pre", mixer_options={"inner_dropout": 0.1}
        ),
        # Wider than the other mixers, as S4.
        mini_causal_lm(MINI, sizes(8, 256, embedding_size=128)),
        mini_masked_lm(MINI, sizes(8, 168), norm="simple_rms", norm_position="pre"),
        mini_lra(NO_POSITIONS),
    ],
)
class DSS(ConvolutionMixer):
    """W gelu(k * x + D x), k_t = Re sum_r w_r / lambda_r softmax_t(rate_r t): a diagonal state space with a softmax.

    The softmax over t = 0 .. n-1 is that of complex numbers, e^(rate t) (e^rate - 1) / (e^(rate n) - 1). Kernels
    therefore depend on the length n, and there is no state. The channels share `state_size` numbers lambda, which start
    from the eigenvalues of HiPPO-LegS. rate = dt_0 Re(lambda) + i dt_1 Im(lambda), with two step sizes per channel that
    start equal, between `dt_min` and `dt_max`. If bidirectional, a second w gives the kernel over later inputs.
    `inner_dropout` is applied before W.

    `as_published` is the implementation that the paper compares with: without a norm and a residual connection.

    Gupta, Gu and Berant (2022), Diagonal State Spaces are as Effective as Structured State Spaces.

    >>> import torch
    >>> from tnn.mixers.dss import DSS
    >>> DSS(16, causal=True, state_size=8)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        state_size: int = 64,
        dt_min: float = 1e-3,
        dt_max: float = 0.1,
        inner_dropout: float = 0.0,
    ):
        DSS.check_options(hidden_size, state_size=state_size, dt_min=dt_min, dt_max=dt_max, inner_dropout=inner_dropout)
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        self.owns_residual = as_published
        self.operator = DSSOperator(hidden_size, causal=causal, state_size=state_size, dt_min=dt_min, dt_max=dt_max)
        self.dropout = nn.Dropout(inner_dropout)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        *,
        state_size: int = 64,
        dt_min: float = 1e-3,
        dt_max: float = 0.1,
        inner_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().check_options(hidden_size, **options)
        check_positive("state_size", state_size)
        check_steps(dt_min, dt_max)
        check_fraction("inner_dropout", inner_dropout)

    def transform(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        return self.out_proj(self.dropout(F.gelu(convolve(x))))


class DSSOperator(ConvolutionOperator):
    """The convolution of DSS; DSS.check_options checks the values."""

    depends_on_length = True

    def __init__(self, channels: int, *, causal: bool, state_size: int, dt_min: float, dt_max: float):
        super().__init__(channels, causal=causal)
        self._steps = (dt_min, dt_max)
        self.poles = nn.Parameter(torch.empty(state_size, 2))  # lambda: real, imaginary
        self.log_dt = nn.Parameter(torch.empty(channels, 2))  # for the real and the imaginary part
        self.weights = nn.Parameter(torch.empty(channels, 1 if causal else 2, state_size, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        frequency = -hippo_modes(2 * len(self.poles)).frequency
        start_from(self.poles, torch.stack([torch.full_like(frequency, -0.5), frequency], -1))
        low, high = map(math.log, self._steps)
        start_from(self.log_dt, torch.empty_like(self.log_dt[:, :1]).uniform_(low, high))
        nn.init.normal_(self.weights)

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        """The published training: poles and steps learn slowly and are not drawn to zero."""
        return {name: {"learning_rate": 1e-3, "weight_decay": 0.0} for name in ("log_dt", "poles")}

    def responses(self, length: int) -> tuple[Tensor, Tensor | None]:
        compute = partial(_responses, length, compute_dtype(self.skip), as_complex(self.poles))
        numbers = 4 * len(self.poles) * math.isqrt(length)
        weights, steps = as_complex(self.weights), self.log_dt.double().exp()
        kernels = in_slices(compute, weights, steps, numbers_per_channel=numbers)  # (channels, sides, length)
        after, *before = kernels.permute(1, 2, 0)
        return after, before[0] if before else None


def _responses(length: int, dtype: torch.dtype, poles: Tensor, weights: Tensor, steps: Tensor) -> Tensor:
    """poles (modes,), weights (channels, sides, modes), steps (channels, 2) -> (channels, sides, length).

    A growing mode is computed from the end, where it is largest, so that every power is at most 1.
    """
    rates = torch.complex(steps[:, :1] * poles.real, steps[:, 1:] * poles.imag)  # (channels, modes)
    grows = poles.real > 0
    rates = torch.where(grows, -rates, rates)
    total = (torch.exp(length * rates) - 1) * poles
    scale = (torch.exp(rates) - 1) * total.conj() / (total.real.square() + total.imag.square() + EPSILON)
    weights = weights * scale[:, None]
    both = torch.stack([weights * ~grows, weights * grows], 1)  # (channels, 2, sides, modes)
    forwards, backwards = _exponential_sums(length, dtype, rates, both.flatten(1, 2)).chunk(2, 1)
    return forwards + backwards.flip(-1)


def _exponential_sums(length: int, dtype: torch.dtype, rates: Tensor, weights: Tensor) -> Tensor:
    """Re sum_r weights_r e^(rates_r t), t < length. (channels, modes), (channels, k, modes) -> (channels, k, length).

    With t = i + stride j the sum is a product of weights e^(rates i) and e^(rates stride j): two sets of about
    sqrt(length) exponentials.
    """
    stride = math.isqrt(length - 1) + 1
    step = torch.arange(stride, dtype=torch.float64, device=rates.device)
    jump = stride * torch.arange(-(-length // stride), dtype=torch.float64, device=rates.device)
    rows = weights[:, :, None] * torch.exp(rates[:, None] * step[:, None])[:, None]  # (channels, k, stride, modes)
    columns = torch.exp(rates[:, :, None] * jump)  # (channels, modes, blocks)
    rows = torch.cat([rows.real, -rows.imag], -1).to(dtype)
    columns = torch.cat([columns.real, columns.imag], -2).to(dtype)
    sums = (rows.flatten(1, 2) @ columns).unflatten(1, (-1, stride))  # (channels, k, stride, blocks)
    return sums.transpose(-1, -2).flatten(-2)[..., :length]
