"""Coefficients that are sums of decaying oscillations, for which an operator has a state of constant size."""

import math

import torch
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn._precision import compute_dtype, no_autocast


class PoleKernel(nn.Module):
    """k_i = direct_i for the first m lags, then k_{m+i} = Re(sum_p weight_p pole_p^i); channels share the poles.

    A pole and its conjugate are stored once, as real and imaginary part; no complex dtype is used. None is slower than
    `rate`, even if training or rounding pushes the parameters there.
    """

    DIRECT = 16  # lags that are not left to the poles: spikes there would need many

    def __init__(self, channels: int, num_poles: int, rate: float = 1.0):
        super().__init__()
        self.rate = rate
        check_positive("num_poles", num_poles)
        self.poles = nn.Parameter(torch.empty(num_poles, 2))  # real, imaginary
        self.weights = nn.Parameter(torch.empty(2, num_poles, channels))  # real, imaginary
        self.direct = nn.Parameter(torch.empty(self.DIRECT, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """To zero: the values come from a fit."""
        for parameter in (self.poles, self.weights, self.direct):
            nn.init.zeros_(parameter)

    def forward(self, lags: int) -> Tensor:
        """(lags, channels), lags 0, 1, ..."""
        if torch.compiler.is_exporting():
            return self._forward_without_branches(lags)
        dtype = compute_dtype(self.weights)
        direct = self.direct.to(dtype)[:lags]
        if lags <= len(self.direct):
            return direct
        with no_autocast(self.weights.device):
            tail = self.powers(lags - len(self.direct)).to(dtype) @ self.signed_weights()
        return torch.cat([direct, tail])

    def _forward_without_branches(self, lags: int) -> Tensor:
        """For a number of lags that a graph leaves open."""
        dtype, direct = compute_dtype(self.weights), len(self.direct)
        lag = torch.arange(lags, device=self.weights.device)
        tail = self.powers(lags).to(dtype) @ self.signed_weights()
        first = self.direct.to(dtype)[lag.clamp_max(direct - 1)]
        return torch.where((lag < direct)[:, None], first, tail[(lag - direct).clamp_min(0)])

    def powers(self, count: int) -> Tensor:
        """(count, 2 * poles): real parts of pole^0, pole^1, ..., then imaginary parts; in float64.

        In float32 the angle of a high power would have lost its digits.
        """
        pole = self.stable_poles()
        step = torch.arange(count, dtype=torch.float64, device=pole.device)[:, None]
        radius = torch.exp(step * pole.norm(dim=1).clamp_min(1e-300).log())
        angle = step * torch.atan2(pole[:, 1], pole[:, 0])
        return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)

    def stable_poles(self) -> Tensor:
        """(poles, 2): the parameters, no longer than the rate; in float64."""
        pole = self.poles.double()
        return pole * (self.rate / pole.norm(dim=1, keepdim=True).clamp_min(1e-300)).clamp_max(1)

    def signed_weights(self) -> Tensor:
        """(2 * poles, channels): what a real and an imaginary part of a state add to the output."""
        weights = self.weights.to(compute_dtype(self.weights))
        return torch.cat([weights[0], -weights[1]])

    @torch.no_grad()
    def tail_bound(self, lags: int) -> Tensor:
        """(channels,): at most the L1 norm of all coefficients from lag `lags` on."""
        radius = self.stable_poles().norm(dim=1)
        size = self.weights.double().norm(dim=0)  # (poles, channels)
        far = (radius ** max(0, lags - len(self.direct)) / (1 - radius)) @ size
        return far + self.direct.double()[lags:].abs().sum(0)

    @torch.no_grad()
    def rounding_bound(self, length: int | None = None) -> Tensor:
        """(channels,): at most what float32 adds to the error of a recurrence, for inputs up to 1 and any length.

        With u = 2^-24 and r = |pole|, a state is at most 1 / (1 - r), or `length`. A step s <- pole s + x rounds two
        products and a sum in each part, which is at most 2 sqrt(2) u r |s|, then the sum with x and perhaps the pole:
        5 u |s| in all. Of that r^k is left after k steps. The output adds a rounding for each of its terms.
        """
        u, radius = 2.0**-24, self.stable_poles().norm(dim=1)
        largest = (1 / (1 - radius)).clamp_max(math.inf if length is None else length)
        size = self.weights.double().norm(dim=0)  # (poles, channels)
        states = (5 * u * largest**2) @ size
        terms = 2 * len(radius) + len(self.direct) + 2
        return states + terms * u * (largest @ size + self.direct.double().abs().sum(0))

    def extra_repr(self) -> str:
        return f"poles={len(self.poles)}, direct={len(self.direct)}"
