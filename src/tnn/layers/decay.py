"""The exponential decay lambda^|lag| of the Toeplitz coefficients."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_choice, check_fraction

MODES = ("fixed", "learned", "none")


def check_decay(rate: float, mode: str) -> None:
    check_choice("decay_mode", mode, MODES)
    check_fraction("decay", rate)


class Decay(nn.Module):
    """Decay of a kernel: one fixed rate, one learned rate per channel (sigmoid of a parameter), or none."""

    def __init__(self, channels: int, rate: float, mode: str):
        super().__init__()
        check_decay(rate, mode)
        self.mode = mode
        self._rate = float(rate) if mode == "fixed" else 1.0
        self.logit = nn.Parameter(torch.empty(channels)) if mode == "learned" else None
        self.reset_parameters()

    @property
    def rate(self) -> float:
        """The fixed rate; 1 if there is none. To change it, make another operator."""
        return self._rate

    def reset_parameters(self) -> None:
        if self.logit is not None:
            nn.init.normal_(self.logit, mean=3.0)

    def forward(self, lags: Tensor) -> Tensor:
        """lags (m,), floating -> powers (m, 1), or (m, channels) if learned.

        exp(|lag| log rate) rather than a power: a rate rounded to float32 would be off by |lag| roundings.
        """
        distance = lags.abs()[:, None]
        if self.logit is not None:
            return torch.exp(distance * F.logsigmoid(self.logit.to(lags.dtype)))
        if self.rate == 0:
            return (distance == 0).to(lags.dtype)
        return torch.exp(distance * math.log(self.rate))

    def slowest_rate(self) -> float:
        """The largest rate of any channel, which decides the bandwidth."""
        if self.logit is None or self.logit.is_meta:
            return self.rate
        return min(1.0, float(torch.sigmoid(self.logit.detach().double()).max()))

    def extra_repr(self) -> str:
        return f"mode={self.mode}" + (f", rate={self.rate}" if self.mode == "fixed" else "")
