"""GSS: a gated unit whose value is mixed by a convolution with sums of exponentials, on fewer channels."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn._precision import compute_dtype
from tnn.layers.gated import inner_size
from tnn.mixers.convolution import ConvolutionMixer, ConvolutionOperator, as_complex
from tnn.mixers.presets import (
    EMBEDDING_DROPOUT,
    NO_POSITIONS,
    causal_lm,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_masked_lm,
    sizes,
)
from tnn.mixers.registry import register_mixer


@register_mixer(
    "gss",
    channel_mixer=None,
    small_options={"state_channels": 8, "state_size": 16},
    presets=[
        causal_lm(EMBEDDING_DROPOUT, NO_POSITIONS, sizes(6, 512)),
        masked_lm(EMBEDDING_DROPOUT, NO_POSITIONS, sizes(14, 768), norm_position="pre"),
        mini_causal_lm(
            NO_POSITIONS,
            num_hidden_layers=4,
            mixer_options={"expansion": 3.25, "state_channels": 64, "state_size": 128},
        ),
        mini_masked_lm(
            NO_POSITIONS,
            num_hidden_layers=5,
            norm_position="pre",
            mixer_options={"expansion": 2.875, "state_channels": 48, "state_size": 96},
        ),
        mini_lra(NO_POSITIONS, mixer_options={"expansion": 3, "state_channels": 16, "state_size": 32}),
    ],
)
class GatedStateSpace(ConvolutionMixer):
    """Wo(gelu(Wu x) * Wm S(gelu(Wv x))), S(v) = k * v' + D v' with v' = LN(v) on `state_channels` channels.

    k_l = Re sum_r c_r (e^lambda_r - 1) / lambda_r e^(lambda_r l), over `state_size` numbers lambda = -exp(p) + i exp(q)
    that the channels share. The gate has `expansion * hidden_size` channels. If bidirectional, S is applied in both
    directions with the same weights: S(v) + flip(S(flip(v))).

    `as_published` differs only in that padding is treated as tokens.

    Mehta, Gupta, Cutkosky and Neyshabur (2022), Long Range Language Modeling via Gated State Spaces.

    >>> import torch
    >>> from tnn.mixers.gss import GatedStateSpace
    >>> GatedStateSpace(16, causal=True, state_channels=8, state_size=32)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        expansion: float = 4,
        state_channels: int = 256,
        state_size: int = 512,
    ):
        GatedStateSpace.check_options(
            hidden_size, expansion=expansion, state_channels=state_channels, state_size=state_size
        )
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        inner = inner_size("expansion", hidden_size, expansion)
        self.gate_proj = nn.Linear(hidden_size, inner, bias=False)
        self.value_proj = nn.Linear(hidden_size, state_channels, bias=False)
        self.norm = nn.LayerNorm(state_channels)
        self.operator = GSSOperator(state_channels, causal=causal, state_size=state_size)
        self.mixed_proj = nn.Linear(state_channels, inner, bias=False)
        self.out_proj = nn.Linear(inner, hidden_size)

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        *,
        expansion: float = 4,
        state_channels: int = 256,
        state_size: int = 512,
        **options: Any,
    ) -> None:
        super().check_options(hidden_size, **options)
        inner_size("expansion", hidden_size, expansion)
        check_positive("state_channels", state_channels)
        check_positive("state_size", state_size)

    def transform(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        value = self.norm(F.gelu(self.value_proj(x)))
        return self.out_proj(F.gelu(self.gate_proj(x)) * self.mixed_proj(convolve(value)))


class GSSOperator(ConvolutionOperator):
    """The convolution of GSS; GatedStateSpace.check_options checks the values."""

    def __init__(self, channels: int, *, causal: bool, state_size: int):
        super().__init__(channels, causal=causal)
        self.log_decay = nn.Parameter(torch.empty(state_size))
        self.log_frequency = nn.Parameter(torch.empty(state_size))
        self.c = nn.Parameter(torch.empty(channels, state_size, 2))  # real, imaginary
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for parameter in (self.log_decay, self.log_frequency, self.c):
            nn.init.normal_(parameter)

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        """Weight decay would draw the poles to those of exp(0): -1 + i."""
        return {name: {"weight_decay": 0.0} for name in ("log_decay", "log_frequency")}

    def responses(self, length: int) -> tuple[Tensor, Tensor | None]:
        dtype = compute_dtype(self.skip)
        poles = torch.complex(-self.log_decay.double().exp(), self.log_frequency.double().exp())
        weights = as_complex(self.c) * (torch.expm1(poles) / poles)  # (channels, modes)
        lag = torch.arange(length, dtype=torch.float64, device=poles.device)
        powers = torch.exp(lag[:, None] * poles)  # (length, modes)
        powers = torch.cat([powers.real, powers.imag], 1).to(dtype)
        after = powers @ torch.cat([weights.real, -weights.imag], 1).to(dtype).T
        if self.causal:
            return after, None
        own = 2 * after[:1] + self.skip.to(dtype)  # both directions add the response and `skip` at lag 0
        return torch.cat([own, after[1:]]), after[1:]
