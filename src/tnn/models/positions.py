"""Absolute position embeddings: the TNN needs none, but the paper's Long-Range Arena models and its competitors do."""

import math

import torch
from torch import Tensor, nn

from tnn._precision import compute_dtype

FIRST_POSITION = 2  # of the first token: the paper's language models count from their padding index 1


class PositionEmbedding(nn.Module):
    """x + p: sines and cosines for any position, or learned vectors for `max_positions`, or nothing.

    The sinusoids of the paper's language models ("sinusoidal") are not those of its Long-Range Arena ("interleaved").
    """

    def __init__(self, kind: str, hidden_size: int, max_positions: int | None):
        super().__init__()
        self.kind = kind
        self.max_positions = max_positions or 0
        self.learned = nn.Embedding(self.max_positions + FIRST_POSITION, hidden_size) if kind == "learned" else None

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x (batch, n, d), positions (batch, n) counted from 0; 0 .. n-1 if not given."""
        if self.kind == "none":
            return x
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device).unsqueeze(0)
        if self.learned is None:
            first, waves = (0, interleaved_sinusoids) if self.kind == "interleaved" else (FIRST_POSITION, sinusoids)
            return x + waves(positions + first, x.shape[-1], compute_dtype(x)).to(x.dtype)
        if not torch.compiler.is_compiling() and positions.amax() >= self.max_positions:
            raise ValueError(
                f"learned position embeddings reach {self.max_positions} positions (max_position_embeddings); "
                f"got position {int(positions.amax())}"
            )
        return x + self.learned(positions + FIRST_POSITION)

    def extra_repr(self) -> str:
        return f"kind={self.kind}"


def sinusoids(positions: Tensor, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(..., size): sin(p f_k) for k < size/2, then cos(p f_k), with f_k from 1 down to 1/10,000.

    >>> import torch
    >>> from tnn.models.positions import sinusoids
    >>> sinusoids(torch.tensor([0, 1]), 4)
    tensor([[0.0000e+00, 0.0000e+00, 1.0000e+00, 1.0000e+00],
            [8.4147e-01, 1.0000e-04, 5.4030e-01, 1.0000e+00]])
    """
    half = size // 2
    angle = _angles(positions, half, math.log(10_000) / max(half - 1, 1), dtype)
    waves = torch.cat([angle.sin(), angle.cos()], dim=-1)
    return nn.functional.pad(waves, (0, size % 2))


def interleaved_sinusoids(positions: Tensor, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(..., size): sin(p f_0), cos(p f_0), sin(p f_1), ..., with f_k = 10,000^(-2k / size).

    >>> import torch
    >>> from tnn.models.positions import interleaved_sinusoids
    >>> interleaved_sinusoids(torch.tensor([0, 1]), 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    angle = _angles(positions, (size + 1) // 2, 2 * math.log(10_000) / size, dtype)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :size]


def _angles(positions: Tensor, count: int, step: float, dtype: torch.dtype) -> Tensor:
    """p exp(-k step) for k < count: (..., count)."""
    frequency = torch.exp(torch.arange(count, device=positions.device, dtype=dtype) * -step)
    return positions.to(dtype).unsqueeze(-1) * frequency
