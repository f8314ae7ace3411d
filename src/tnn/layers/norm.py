"""Normalisation: the paper's parameter-free RMS norm, and the other norms that a block can use."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tnn._checks import check_choice
from tnn._precision import compute_dtype
from tnn.layers.mask import check_mask


def simple_rms_norm(x: Tensor, eps: float = 1e-8) -> Tensor:
    """x / (rms(x) + eps) over the last axis, computed in float32 at least."""
    y = x.to(compute_dtype(x))
    rms = torch.linalg.vector_norm(y, dim=-1, keepdim=True) / y.shape[-1] ** 0.5
    return (y / (rms + eps)).to(x.dtype)


class SimpleRMSNorm(nn.Module):
    """x / (rms(x) + eps) over the channels, without parameters.

    >>> import torch
    >>> from tnn.layers import SimpleRMSNorm
    >>> SimpleRMSNorm()(torch.tensor([[3.0, 4.0]])).square().mean()
    tensor(1.)
    """

    def __init__(self, eps: float = 1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (..., d). Each position is normalised alone, so `mask` changes nothing."""
        return simple_rms_norm(x, self.eps)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of the channels (last axis), with statistics over the real positions only."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if mask is None or not self.training:  # running statistics: each position is normalised alone
            return super().forward(flat).reshape(x.shape)
        real = check_mask(mask, x).flatten()
        return flat.index_put((real,), super().forward(flat[real])).reshape(x.shape)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "simple_rms": lambda size: SimpleRMSNorm(),
    "layer": LayerNorm,
    "rms": RMSNorm,
    "batch": BatchNorm,
}


def make_norm(name: str, hidden_size: int) -> nn.Module:
    check_choice("norm", name, NORMS)
    return NORMS[name](hidden_size)
