"""Mixers that are long convolutions: the kernel is computed from parameters, for any length."""

from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tnn._checks import check_positive, check_sequence
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.kernel_cache import KernelCache
from tnn.layers.mixer import Mixer
from tnn.layers.sequences import Mask, Sequences, resolve_mask
from tnn.layers.state import State
from tnn.ops import toeplitz_matmul

CHANNELS_AT_ONCE = 128  # of a kernel that is computed in slices, to save memory
MAX_NUMBERS_AT_ONCE = 2**19  # kernels that need more numbers in between are computed in slices


class ConvolutionOperator(nn.Module):
    """y = k * x + skip x along the sequence, with one kernel per channel; a subclass writes it in `responses`.

    It can stand wherever a ToeplitzOperator can: its state is a History, and its kernel can be plotted. In evaluation
    without gradients the kernel is computed once and kept until a parameter changes.
    """

    reach: int | None = None  # the kernel has no last lag
    depends_on_length = False

    def __init__(self, channels: int, *, causal: bool, backend: str = "auto"):
        super().__init__()
        check_positive("channels", channels)
        self.channels = channels
        self.causal = causal
        self.backend = backend
        self.skip = nn.Parameter(torch.empty(channels))
        self._cache = KernelCache()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.skip)

    def responses(self, length: int) -> tuple[Tensor, Tensor | None]:
        """The effect of an input on the outputs 0, 1, ... positions later and, unless causal, 1, 2, ... earlier.

        Each (length, channels); without `skip`.
        """
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Mask = None, state: State | None = None) -> Tensor:
        """x (..., n, channels), mask (..., n) true at real positions -> (..., n, channels).

        Outputs at real positions are those of the unpadded rows; outputs at padding have no meaning. With a `state` of
        this operator, x is the next part of a sequence.
        """
        if state is not None:
            return state(x, mask)
        check_sequence("x", x, self.channels)
        x, sequences = resolve_mask(x, mask)
        if sequences is None:
            return self._product(x)
        if self.depends_on_length:
            return sequences.apply(self._product, x, needs_length=True)
        kernel = self.shared_kernel(
            x.shape[-2], x.device
        )  # once for all sequences: lags beyond their length are ignored
        return sequences.apply(lambda rows: self._multiply(rows, kernel), x)

    def _product(self, x: Tensor) -> Tensor:
        return self._multiply(x, self.shared_kernel(x.shape[-2], x.device))

    def _multiply(self, x: Tensor, kernel: Tensor) -> Tensor:
        return toeplitz_matmul(x, kernel, causal=self.causal, backend=self.backend)

    def kernel(self, length: int) -> Tensor:
        """The coefficients for sequences of `length`: (length, channels) if causal, else (2 length - 1, channels)."""
        check_positive("length", length)
        kernel = self.shared_kernel(length, self.skip.device)
        return kernel if kernel.requires_grad else kernel.clone()

    def shared_kernel(self, length: int, device: torch.device) -> Tensor:
        """The same without a copy, for inputs on `device`: it is kept for later calls, and must not be changed."""
        return self._cache.get(
            self,
            length,
            lambda: self._compute_kernel(length),
            causal=self.causal,
            made_for=length if self.depends_on_length else None,
        )

    def _compute_kernel(self, length: int) -> Tensor:
        dtype = compute_dtype(self.skip)
        with no_autocast(self.skip.device):
            after, before = self.responses(length)
            after = torch.cat([after[:1] + self.skip.to(after.dtype), after[1:]])
            kernel = after if before is None else torch.cat([before[: length - 1].flip(0), after])
        return kernel.to(dtype)

    def extra_repr(self) -> str:
        return f"{self.channels}, causal={self.causal}, backend={self.backend}"


class ConvolutionMixer(Mixer):
    """A mixer around an `operator`: `transform` does what comes before and after the convolution."""

    operator: ConvolutionOperator

    def transform(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        """The output. `convolve` is the operator on complete sequences, or a state of it."""
        raise NotImplementedError

    @property
    def state_owner(self) -> Any:
        return self.operator if self.causal and not self.operator.depends_on_length else None

    def mix(self, x: Tensor) -> Tensor:
        return self.transform(x, self.operator)

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        return self.transform(x, lambda values: self.operator(values, sequences))

    def forward_from_state(self, x: Tensor, sequences: Sequences | None, state: State) -> Tensor:
        mask = None if self.ignores_mask else sequences
        return self.transform(x, lambda values: self.operator(values, mask, state))


def in_slices(function: Callable[..., Tensor], *tensors: Tensor, numbers_per_channel: int) -> Tensor:
    """function(*tensors), for a function that treats each channel (axis 0 of all tensors) separately.

    If it needs many intermediate numbers, it gets some channels at a time, and the intermediate numbers are computed
    again for the gradient, so that those of all channels are never in memory at once.
    """
    if numbers_per_channel * len(tensors[0]) <= MAX_NUMBERS_AT_ONCE:
        return function(*tensors)
    parts = zip(*(t.split(CHANNELS_AT_ONCE) for t in tensors), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([function(*part) for part in parts])
    return torch.cat([checkpoint(function, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])


def as_complex(parts: Tensor) -> Tensor:
    """(..., 2), the real and imaginary parts of a parameter -> (...), in double precision.

    In float32 the angles of high powers would be inaccurate.
    """
    return torch.view_as_complex(parts.double().contiguous())


def check_steps(dt_min: float, dt_max: float) -> None:
    for name, value in (("dt_min", dt_min), ("dt_max", dt_max)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number; got {value!r}")
    if not 0 < dt_min <= dt_max < float("inf"):
        raise ValueError(f"dt_min and dt_max must be positive, and in this order; got {dt_min} and {dt_max}")
