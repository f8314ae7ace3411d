"""Normalisation: the paper's parameter-free RMS norm, and the other norms that a block can use."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_choice, check_float
from tnn._precision import compute_dtype
from tnn.layers.activation import silu_slope
from tnn.layers.one_pass import one_pass, one_pass_backward
from tnn.layers.sequences import Mask, Sequences, resolve_mask
from tnn.ops import native, transforms

TINY = 1e-30  # a row of zeros has no slope


def simple_rms_norm(x: Tensor, eps: float = 1e-8, gate: Tensor | None = None, *, silu: bool = False) -> Tensor:
    """x / (rms(x) + eps) over the last axis, computed in float32 at least; times `gate`, or silu(gate), if given."""
    check_float("x", x)
    if one_pass(x) if gate is None else one_pass(x, gate):
        return _NativeNorm.apply(x, gate, eps, silu)
    y = _by_steps(x.to(compute_dtype(x)), eps).to(x.dtype)
    if gate is None:
        return y
    return y * (F.silu(gate) if silu else gate)


def _by_steps(x: Tensor, eps: float) -> Tensor:
    rms = _rms(x)
    if torch.compiler.is_exporting():  # exactly the same, but the ONNX optimizer takes an addend of 1e-8 for 0
        x, rms, eps = x * 1024, rms * 1024, eps * 1024
    return x / (rms + eps)


def _rms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True) / x.shape[-1] ** 0.5  # (..., 1)


class _NativeNorm(torch.autograd.Function):
    """One pass over memory, and one for the gradient: the single steps take ten."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor | None, eps: float, silu: bool) -> Tensor:
        ctx.eps, ctx.silu = eps, silu
        ctx.save_for_backward(x, gate)
        return native.rms_norm(x, gate, eps, silu=silu)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, gate = ctx.saved_tensors
        if one_pass_backward(grad, x):
            return *native.rms_norm_gradient(grad, x, gate, ctx.eps, silu=ctx.silu), None, None
        rms = _rms(x)
        divisor = rms + ctx.eps
        factor = F.silu(gate) if ctx.silu else gate
        from_norm = grad if gate is None else grad * factor
        slope = (
            torch.linalg.vecdot(from_norm, x).unsqueeze(-1) / divisor / divisor / (rms.clamp_min(TINY) * x.shape[-1])
        )
        from_x = from_norm / divisor - x * slope
        if gate is None:
            return from_x, None, None, None
        return from_x, grad * x / divisor * (silu_slope(gate) if ctx.silu else 1), None, None


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

    def forward(self, x: Tensor, mask: Mask = None, gate: Tensor | None = None, *, silu: bool = False) -> Tensor:
        """x (..., d), times gate (..., d) or silu(gate) if there is one. Each position is normalised alone: no mask."""
        return simple_rms_norm(x, self.eps, gate, silu=silu)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return super().forward(x)


class ScaleNorm(nn.Module):
    """g x / rms(x) with one learned number g for all channels."""

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.ones(()))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        y = x.to(compute_dtype(x))
        return (self.scale * y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of the channels (last axis), with statistics over the real positions only."""

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        if mask is None or not self.training:  # running statistics: each position is normalised alone
            return super().forward(x.reshape(-1, x.shape[-1])).reshape(x.shape)
        dtype = x.dtype
        x, sequences = resolve_mask(x.to(compute_dtype(x)), mask)
        assert sequences is not None
        normalized = self._gathered if self._may_gather(x, sequences) else self._by_sums
        return normalized(x, sequences).to(dtype)

    def _may_gather(self, x: Tensor, sequences: Sequences) -> bool:
        """Where the mask can be read at no cost. torch's batch norm wants its own dtype and two positions at least."""
        if torch.compiler.is_compiling() or type(x) is not Tensor or x.device.type != "cpu" or transforms.active(x):
            return False
        return x.dtype == self.weight.dtype and len(sequences.positions) > 1

    def _gathered(self, x: Tensor, sequences: Sequences) -> Tensor:
        """torch's batch norm of the real positions; zeros elsewhere."""
        flat = x.reshape(-1, x.shape[-1])
        real = super().forward(flat.index_select(0, sequences.positions))
        return flat.new_zeros(flat.shape).index_copy(0, sequences.positions, real).reshape(x.shape)

    def _by_sums(self, x: Tensor, sequences: Sequences) -> Tensor:
        """Sums over all positions: more than three times as slow on a CPU, but shapes do not depend on the mask."""
        axes = tuple(range(x.ndim - 1))
        positions = sequences.real.sum()
        count = positions.clamp_min(1)
        mean = sequences.zero_padding(x).sum(axes) / count
        variance = sequences.zero_padding(x - mean).square().sum(axes) / count
        self._track(mean.detach(), variance.detach() * count / (count - 1).clamp_min(1), positions > 0)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias

    def _track(self, mean: Tensor, unbiased_variance: Tensor, seen: Tensor) -> None:
        """`seen` () is false for a batch of padding only, which changes nothing. Not read: graphs stay whole."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(seen)
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased_variance)):
            running.lerp_(torch.where(seen, new.to(running.dtype), running), self.momentum)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "simple_rms": lambda size: SimpleRMSNorm(),
    "layer": LayerNorm,
    "rms": RMSNorm,
    "scale": lambda size: ScaleNorm(),
    "batch": BatchNorm,
}


def make_norm(name: str, hidden_size: int) -> nn.Module:
    check_choice("norm", name, NORMS)
    return NORMS[name](hidden_size)
