"""A mixer as a user would write it: an exponential moving average with a learned rate per channel, and its state."""

import math

import torch
from torch import nn

from tnn.mixers import Mixer
from tnn.ops import toeplitz_matmul
from tnn.streaming import State


class MovingAverage(Mixer):
    """y_t = r y_{t-1} + (1 - r) x_t; bidirectional, the mean of both directions. Then a dense layer."""

    def __init__(self, hidden_size, *, causal=False, rate=0.8, backend="auto"):
        super().__init__(hidden_size, causal=causal)
        self.start = rate
        self.backend = backend
        self.logit = nn.Parameter(torch.empty(hidden_size))
        self.out_proj = nn.Linear(hidden_size, hidden_size)
        self.reset_parameters()

    @classmethod
    def check_options(cls, hidden_size, *, rate=0.8, **options):
        super().check_options(hidden_size, **options)
        if not 0 < rate < 1:
            raise ValueError(f"rate must be between 0 and 1; got {rate}")

    def reset_parameters(self):
        nn.init.constant_(self.logit, math.log(self.start / (1 - self.start)))

    def parameter_settings(self):
        return {"logit": {"weight_decay": 0.0, "learning_rate": 1e-3}}

    def mix(self, x):
        rate = self.logit.sigmoid()
        lag = torch.arange(x.shape[-2], dtype=rate.dtype, device=x.device)
        kernel = (1 - rate) * rate ** lag[:, None]  # (n, hidden_size)
        if not self.causal:
            kernel = torch.cat([kernel[1:].flip(0), kernel]) / 2
        return self.out_proj(toeplitz_matmul(x, kernel, causal=self.causal, backend=self.backend))

    @property
    def state_owner(self):
        return self if self.causal else None

    def new_state(self):
        return AverageState(self)


class AverageState(State):
    """The newest average of each row."""

    def reset(self):
        self.seen, self.average = 0, None

    def __call__(self, x, mask=None):
        average = x.new_zeros(x.shape[0], x.shape[2]) if self.average is None else self.average
        rate, outputs = self.owner.logit.sigmoid().to(x.dtype), []
        for t in range(x.shape[1]):
            new = rate * average + (1 - rate) * x[:, t]
            average = new if mask is None else torch.where(mask.real[:, t, None], new, average)
            outputs.append(average)
        self.average, self.seen = average, self.seen + x.shape[1]
        return self.owner.out_proj(torch.stack(outputs, 1))
