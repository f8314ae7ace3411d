"""The exponential decay lambda^|lag| of the Toeplitz coefficients: one rate for all channels, or a spread of rates."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_choice, check_fraction
from tnn.layers.initialization import start_from

MODES = ("fixed", "learned", "none")
NORMAL_SHARE = 0.8  # of the exponents of normal numbers
Rates = float | Sequence[float]  # one rate, or a pair: the rates of the first and of the last channel


def check_decay(decay: Rates, mode: str) -> None:
    check_choice("decay_mode", mode, MODES)
    if not isinstance(decay, Sequence) or isinstance(decay, str):
        check_fraction("decay", decay)
        return
    if len(decay) != 2:
        raise ValueError(f"decay must be one rate, or the fastest and the slowest of a spread; got {list(decay)}")
    for rate in decay:
        check_fraction("decay", rate)
    if not 0 < decay[0] <= decay[1] < 1:
        got = f"got {list(decay)}"
        raise ValueError(f"a spread of decays must be two rates between 0 and 1, the faster (smaller) first; {got}")


def spread_rates(fastest: float, slowest: float, channels: int) -> Tensor:
    """(channels,), in float64: rates whose half-lives grow by the same factor from each channel to the next.

    >>> from tnn.layers.decay import spread_rates
    >>> spread_rates(0.25, 0.5**0.125, 5)                               # half-lives of 0.5, 1, 2, 4 and 8 lags
    tensor([0.2500, 0.5000, 0.7071, 0.8409, 0.9170], dtype=torch.float64)
    """
    first, last = math.log(-math.log(fastest)), math.log(-math.log(slowest))
    return torch.exp(-torch.linspace(first, last, channels, dtype=torch.float64).exp())


def _exp(x: Tensor) -> Tensor:
    """e^x, and 0 where a product with it could be subnormal: such numbers take processors a hundred times as long."""
    least = NORMAL_SHARE * math.log(torch.finfo(x.dtype).tiny)  # -70 in float32, where e^x is 4e-31
    return torch.exp(x.masked_fill(x < least, -math.inf))


class Decay(nn.Module):
    """Decay of a kernel: "fixed" rates, "learned" ones (one per channel, the sigmoid of a parameter), or "none".

    `decay` is one rate for all channels, or a pair: the fastest and the slowest of a spread over the channels. Learned
    rates start from the spread; without one they start around 0.95, the sigmoid of N(3, 1), as in the paper.
    """

    def __init__(self, channels: int, decay: Rates, mode: str):
        super().__init__()
        check_decay(decay, mode)
        self.channels = channels
        self.mode = mode
        rates = decay if isinstance(decay, Sequence) else (decay, decay)
        self.spread = (float(rates[0]), float(rates[1])) if isinstance(decay, Sequence) else None
        self._rate = float(rates[1]) if mode == "fixed" else 1.0
        self.logit = nn.Parameter(torch.empty(channels)) if mode == "learned" else None
        self.reset_parameters()

    @property
    def rate(self) -> float:
        """The fixed rate, of a spread the slowest; 1 if there is none. To change it, make another operator."""
        return self._rate

    def reset_parameters(self) -> None:
        if self.logit is None:
            return
        if self.spread is None:
            nn.init.normal_(self.logit, mean=3.0)
        else:
            start_from(self.logit, torch.logit(spread_rates(*self.spread, self.channels)))

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        """Weight decay would pull learned rates towards 0.5."""
        return {"logit": {"weight_decay": 0.0}} if self.logit is not None else {}

    def forward(self, lags: Tensor) -> Tensor:
        """lags (m,), floating -> powers (m, channels), or (m, 1) of a single rate.

        exp(|lag| log rate) rather than a power: a rate rounded to float32 would be off by |lag| roundings.
        """
        distance = lags.abs()[:, None]
        if self.logit is not None:
            return _exp(distance * F.logsigmoid(self.logit.to(lags.dtype)))
        if self.spread is not None and self.mode == "fixed":
            return _exp(distance * spread_rates(*self.spread, self.channels).log().to(lags))
        if self.rate == 0:
            return (distance == 0).to(lags.dtype)
        return _exp(distance * math.log(self.rate))

    def slowest_rate(self) -> float:
        """The largest rate of any channel, which decides the bandwidth."""
        if self.logit is None or self.logit.is_meta:
            return self.rate
        return min(1.0, float(torch.sigmoid(self.logit.detach().double()).max()))

    def extra_repr(self) -> str:
        rates = "" if self.spread is None else f", from {self.spread[0]} to {self.spread[1]}"
        return f"mode={self.mode}" + (f", rate={self.rate}" if self.mode == "fixed" and not rates else rates)
