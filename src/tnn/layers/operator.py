"""The Toeplitz neural operator (TNO): a Toeplitz product whose coefficients a network generates."""

from typing import TypedDict

import torch
from torch import Tensor, nn

from tnn._checks import check_choice, check_positive, check_sequence, check_tolerance
from tnn._precision import compute_dtype
from tnn.layers.decay import Decay, Rates, check_decay
from tnn.layers.kernel_cache import KernelCache, first_lags
from tnn.layers.poles import PoleKernel
from tnn.layers.position import ACTIVATIONS, INPUTS, NORMS, RelativePositionEncoder
from tnn.layers.sequences import Mask, resolve_mask
from tnn.layers.state import State
from tnn.ops import Bandwidth, effective_bandwidth, toeplitz_matmul
from tnn.ops.product import BACKENDS

COEFFICIENTS = ("rpe", "free", "poles")


class OperatorOptions(TypedDict, total=False):
    """The keyword arguments of ToeplitzOperator besides `causal`, for the layers that pass them on."""

    coefficients: str
    max_lags: int | None
    num_poles: int | None
    decay: Rates
    decay_mode: str
    rpe_size: int
    rpe_num_layers: int
    rpe_input: str
    rpe_activation: str
    rpe_norm: str
    bandwidth_tolerance: float
    backend: str


class ToeplitzOperator(nn.Module):
    """y = T x along the sequence, one Toeplitz matrix per channel: coefficients t_i of an RPE, times decay^|i|.

    `coefficients`: "rpe", or "free" parameters for `max_lags` lags in each direction; with "rpe" a given `max_lags`
    zeroes every lag from there on. "poles" (causal only) are sums of `num_poles` decaying oscillations, none slower
    than `decay`: what a conversion to a state space makes. `decay_mode`: "fixed" (the rate `decay`), "learned" (a rate
    per channel; `decay` is not used) or "none". Lags whose whole tail is provably below `bandwidth_tolerance` times the
    largest possible coefficient are cut, which makes the cost linear in the length; 0 keeps them all.

    In evaluation without gradients the coefficients are computed once and kept until a parameter changes.

    >>> import torch
    >>> from tnn.layers import ToeplitzOperator
    >>> operator = ToeplitzOperator(channels=8, causal=True)
    >>> operator(torch.randn(2, 100, 8)).shape
    torch.Size([2, 100, 8])
    >>> operator.bandwidth()
    Bandwidth(lags=1833, tail=9.98...e-07)
    """

    def __init__(
        self,
        channels: int,
        *,
        causal: bool = False,
        coefficients: str = "rpe",
        max_lags: int | None = None,
        num_poles: int | None = None,
        decay: Rates = 0.99,
        decay_mode: str = "fixed",
        rpe_size: int = 64,
        rpe_num_layers: int = 6,
        rpe_input: str = "integer",
        rpe_activation: str = "relu",
        rpe_norm: str = "simple_rms",
        bandwidth_tolerance: float = 1e-6,
        backend: str = "auto",
    ):
        super().__init__()
        self.check_options(
            channels,
            causal=causal,
            coefficients=coefficients,
            max_lags=max_lags,
            num_poles=num_poles,
            decay=decay,
            decay_mode=decay_mode,
            rpe_size=rpe_size,
            rpe_num_layers=rpe_num_layers,
            rpe_input=rpe_input,
            rpe_activation=rpe_activation,
            rpe_norm=rpe_norm,
            bandwidth_tolerance=bandwidth_tolerance,
            backend=backend,
        )
        self.channels = channels
        self.causal = causal
        self.max_lags = max_lags
        self.backend = backend
        self.decay = Decay(channels, decay, decay_mode)
        self.bandwidth_tolerance = bandwidth_tolerance
        self.rpe: RelativePositionEncoder | None = None
        self.free: nn.Parameter | None = None
        self.poles: PoleKernel | None = None
        if coefficients == "rpe":
            self.rpe = RelativePositionEncoder(
                channels, rpe_size, rpe_num_layers, activation=rpe_activation, inputs=rpe_input, norm=rpe_norm
            )
        elif coefficients == "poles":
            assert num_poles is not None
            self.poles = PoleKernel(channels, num_poles, self.decay.rate)
        else:
            assert max_lags is not None
            self.free = nn.Parameter(torch.empty(max_lags if causal else 2 * max_lags - 1, channels))
            self.reset_parameters()
        self._cache = KernelCache()

    @staticmethod
    def check_options(
        channels: int,
        *,
        causal: bool = False,
        coefficients: str = "rpe",
        max_lags: int | None = None,
        num_poles: int | None = None,
        decay: Rates = 0.99,
        decay_mode: str = "fixed",
        rpe_size: int = 64,
        rpe_num_layers: int = 6,
        rpe_input: str = "integer",
        rpe_activation: str = "relu",
        rpe_norm: str = "simple_rms",
        bandwidth_tolerance: float = 1e-6,
        backend: str = "auto",
    ) -> None:
        """Check the values of the constructor's arguments without building anything."""
        check_positive("channels", channels)
        check_choice("coefficients", coefficients, COEFFICIENTS)
        check_choice("backend", backend, BACKENDS)
        check_positive("rpe_size", rpe_size)
        check_positive("rpe_num_layers", rpe_num_layers)
        check_choice("rpe_input", rpe_input, INPUTS)
        check_choice("rpe_activation", rpe_activation, ACTIVATIONS)
        check_choice("rpe_norm", rpe_norm, NORMS)
        check_decay(decay, decay_mode)
        check_tolerance("bandwidth_tolerance", bandwidth_tolerance)
        if max_lags is not None:
            check_positive("max_lags", max_lags)
        elif coefficients == "free":
            raise ValueError('max_lags must be given when coefficients="free": the number of lags to learn')
        if coefficients == "poles":
            if num_poles is None or not causal:
                raise ValueError('coefficients="poles" needs causal=True and num_poles')
            check_positive("num_poles", num_poles)
            if decay_mode == "learned":
                raise ValueError('coefficients="poles" decay by their poles: decay_mode must be "fixed" or "none"')

    def reset_parameters(self) -> None:
        if self.free is not None:
            nn.init.normal_(self.free)

    @property
    def bandwidth_tolerance(self) -> float:
        return self._bandwidth_tolerance

    @bandwidth_tolerance.setter
    def bandwidth_tolerance(self, tolerance: float) -> None:
        check_tolerance("bandwidth_tolerance", tolerance)
        self._bandwidth_tolerance = tolerance
        # A plain number, which a compiled graph can hold on to and guard; a learned rate is looked up when needed.
        self._fixed_bandwidth = effective_bandwidth(self.decay.rate, tolerance, causal=self.causal).lags

    def forward(self, x: Tensor, mask: Mask = None, state: State | None = None) -> Tensor:
        """x (..., n, channels), mask (..., n) true at real positions -> (..., n, channels).

        Outputs at real positions are those of the unpadded rows; what stands at the others means nothing. With a
        `state` of this operator, x is the next part of a sequence (see tnn.streaming).
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
        )  # once, for sequences of every length: lags past an end are ignored
        return sequences.apply(lambda rows: self._multiply(rows, kernel), x)

    @property
    def depends_on_length(self) -> bool:
        return self.rpe is not None and self.rpe.depends_on_length

    def _product(self, x: Tensor) -> Tensor:
        return self._multiply(x, self.shared_kernel(x.shape[-2], x.device))

    def _multiply(self, x: Tensor, kernel: Tensor) -> Tensor:
        return toeplitz_matmul(x, kernel, causal=self.causal, backend=self.backend)

    def bandwidth(self) -> Bandwidth:
        """The lags that are kept for any length, and the bound on the dropped tail per unit of coefficient."""
        return effective_bandwidth(self.decay.slowest_rate(), self.bandwidth_tolerance, causal=self.causal)

    @torch.no_grad()
    def truncation_bound(self) -> Tensor:
        """e (channels,) with |y - y of the uncut operator| <= e * max|x|, for any input of any length."""
        if self.rpe is not None:
            largest = self.rpe.coefficient_bound()
        elif self.poles is not None:
            reach = self.reach
            return self.poles.tail_bound(reach) if reach is not None else torch.zeros(self.channels).double()
        else:
            assert self.free is not None
            largest = self.free.double().abs().amax(0)
        return self.bandwidth().tail * largest

    def kernel(self, length: int) -> Tensor:
        """The decayed coefficients for sequences of `length`: (w, channels) if causal, else (2w-1, channels)."""
        check_positive("length", length)
        kernel = self.shared_kernel(length, self._coefficient_source().device)
        return kernel if kernel.requires_grad else kernel.clone()

    def shared_kernel(self, length: int, device: torch.device) -> Tensor:
        """The same without a copy, for inputs on `device`: it is kept for later calls, and must not be changed."""
        lags = self._lags_kept(length)
        return self._cache.get(
            self,
            lags,
            lambda: self._compute_kernel(length, lags, device),
            causal=self.causal,
            made_for=length if self.depends_on_length else None,
        )

    @property
    def reach(self) -> int | None:
        """How many lags, in each direction, are not zero however long a sequence is; None if there is no end."""
        bounds = [b for b in (self._bandwidth_lags(), self.max_lags) if b is not None]
        return min(bounds, default=None)

    def _lags_kept(self, length: int) -> int:
        reach = self.reach
        return length if reach is None else torch.sym_min(length, reach)  # min(), for a length a graph leaves open too

    def _bandwidth_lags(self) -> int | None:
        if self.decay.mode != "learned":
            return self._fixed_bandwidth
        if torch.compiler.is_compiling():
            return None  # a graph must not depend on a parameter's value: no cut
        return self.bandwidth().lags

    def _compute_kernel(self, length: int, lags: int, device: torch.device) -> Tensor:
        """On the device of the input: parameters may be elsewhere until the module that holds them is called."""
        if self.poles is not None:
            return self.poles(lags)
        dtype = compute_dtype(self._coefficient_source())
        lag = torch.arange(0 if self.causal else 1 - lags, lags, device=device)
        if self.rpe is not None:
            coefficients = self.rpe(lag, length)
        else:
            assert self.free is not None
            coefficients = first_lags(self.free.to(dtype), lags, causal=self.causal)
        if self.decay.mode == "none":
            return coefficients
        return coefficients * self.decay(lag.to(dtype))

    def _coefficient_source(self) -> Tensor:
        if self.rpe is not None:
            return self.rpe.output.weight
        source = self.free if self.poles is None else self.poles.weights
        assert source is not None
        return source

    def extra_repr(self) -> str:
        source = "rpe" if self.rpe is not None else "free" if self.free is not None else "poles"
        text = f"{self.channels}, causal={self.causal}, coefficients={source}, "
        if self.max_lags is not None:
            text += f"max_lags={self.max_lags}, "
        return text + f"bandwidth_tolerance={self.bandwidth_tolerance:g}, backend={self.backend}"
