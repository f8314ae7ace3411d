"""Methods that mix tokens by a convolution whose kernel is a function of parameters, at any length."""

from collections.abc import Callable
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

CHANNELS_AT_ONCE = 128  # of a kernel that takes much memory on the way:
MUCH = 2**19  # numbers, and more


class ConvolutionOperator(nn.Module):
    """y = k * x along the sequence, one kernel a channel, which a method writes in `responses`.

    To its own output an input adds a learned multiple, `skip`, besides. Takes the place of a ToeplitzOperator: its
    state is a History, its kernel can be drawn. In evaluation without gradients the kernel is computed once and kept
    until a parameter changes.
    """

    reach: int | None = None  # there is no last lag
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
        """What an input adds to the outputs 0, 1, ... after it, and to those 1, 2, ... before it unless causal.

        Each (length, channels); without `skip`.
        """
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., n, channels), mask (..., n) true at real positions -> (..., n, channels).

        Outputs at real positions are those of the unpadded rows; what stands at the others means nothing.
        """
        check_sequence("x", x, self.channels)
        x, sequences = resolve_mask(x, mask)
        if sequences is None:
            return self._product(x)
        if self.depends_on_length:
            return sequences.apply(self._product, x, needs_length=True)
        kernel = self._kernel(x.shape[-2])  # once, for sequences of every length: lags past an end are ignored
        return sequences.apply(lambda rows: self._multiply(rows, kernel), x)

    def _product(self, x: Tensor) -> Tensor:
        return self._multiply(x, self._kernel(x.shape[-2]))

    def _multiply(self, x: Tensor, kernel: Tensor) -> Tensor:
        return toeplitz_matmul(x, kernel, causal=self.causal, backend=self.backend)

    def kernel(self, length: int) -> Tensor:
        """The coefficients for sequences of `length`: (length, channels) if causal, else (2 length - 1, channels)."""
        check_positive("length", length)
        kernel = self._kernel(length)
        return kernel if kernel.requires_grad else kernel.clone()  # not the cache itself

    def _kernel(self, length: int) -> Tensor:
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
    """A method around an `operator`: what it does before and after the convolution is written in `transform`."""

    operator: ConvolutionOperator

    def transform(self, x: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        """The output, where `convolve` is the operator on whole sequences, or a state of it."""
        raise NotImplementedError

    @property
    def state_owner(self) -> Any:
        return self.operator if self.causal and not self.operator.depends_on_length else None

    def mix(self, x: Tensor) -> Tensor:
        return self.transform(x, self.operator)

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        return self.transform(x, lambda values: self.operator(values, sequences))

    def forward_from_state(self, x: Tensor, sequences: Sequences | None, state: State) -> Tensor:
        seen = None if self.ignores_mask else sequences
        return self.transform(x, lambda values: state(values, seen))


def in_slices(function: Callable[..., Tensor], *tensors: Tensor, held: int) -> Tensor:
    """function(*tensors), where it treats each channel (axis 0 of all tensors) alone and holds so many numbers for it.

    If these are many, it gets some channels at a time, and what it needs on the way is computed again for the gradient,
    so that it is never there for all channels at once.
    """
    if held * len(tensors[0]) <= MUCH:
        return function(*tensors)
    parts = zip(*(t.split(CHANNELS_AT_ONCE) for t in tensors), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([function(*part) for part in parts])
    return torch.cat([checkpoint(function, *part, use_reentrant=False, preserve_rng_state=False) for part in parts])


def as_complex(parts: Tensor) -> Tensor:
    """(..., 2), the real and imaginary parts of a parameter -> (...), in double precision.

    In float32 the angle of a high power would have lost its digits.
    """
    return torch.view_as_complex(parts.double().contiguous())


@torch.no_grad()
def start_from(parameter: Tensor, values: Tensor) -> None:
    """Fill a parameter, unless transformers has loaded it: as the functions of nn.init do there."""
    if not getattr(parameter, "_is_hf_initialized", False):
        parameter.copy_(values.expand(parameter.shape))


def check_steps(dt_min: float, dt_max: float) -> None:
    if not 0 < dt_min <= dt_max < float("inf"):
        raise ValueError(f"dt_min and dt_max must be positive, and in this order; got {dt_min} and {dt_max}")
