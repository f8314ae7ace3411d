"""Few poles for all kernels of a layer: a state space whose kernels are close to them in the L1 norm, and how close.

All channels share their poles, because their kernels lie in the span of a few (the width of the network that made
them). Poles come from the shift that the leading vectors of a block-Hankel matrix obey (Ho and Kalman; Kung), weights
from least squares; the first lags stay as they are, which keeps the rest smooth and the fit well conditioned. What is
reported is measured on the result, rounded as it will be stored.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tnn._checks import check_float, check_fraction, check_positive, check_tolerance
from tnn.layers.poles import PoleKernel

HANKEL_ROWS = 512
RANK_TOLERANCE = 1e-9  # of the largest singular value, in float64
STEP = 2  # poles come in pairs


class Realization(NamedTuple):
    """A `kernel` of `states` poles, conjugates counted, for another one.

    Token by token in float32, |y - y of the kernel it replaces| <= (error + rounding) * max|x|.
    """

    kernel: PoleKernel
    states: int
    error: Tensor  # (channels,): L1 norm of the difference, over all lags to infinity
    rounding: Tensor  # (channels,)
    residual: float  # largest error of a channel relative to the L1 norm of its kernel


def realize(kernel: Tensor, rate: float, tail: Tensor, *, tolerance: float, max_states: int) -> Realization:
    """A small state space within `tolerance`, or the closest one with at most `max_states`: look at `residual`.

    More states are tried until there are enough, then bisection looks for fewer. `kernel` (lags, channels); `tail`
    (channels,) bounds the L1 norm of what follows these lags; `rate` < 1 is that of the decay, which no pole exceeds.

    >>> import torch
    >>> from tnn.streaming import realize
    >>> lag = torch.arange(2000.0)[:, None]
    >>> kernel = 0.99**lag * torch.cos(0.1 * lag) + 0.9**lag                 # three poles
    >>> realize(kernel, 0.99, torch.zeros(1), tolerance=1e-4, max_states=16).states
    4
    """
    _check_kernel(kernel)
    check_fraction("rate", rate)
    if rate == 1:
        raise ValueError("rate must be below 1: kernels without decay do not compress into few poles; got 1")
    check_float("tail", tail)
    if tail.shape != kernel.shape[1:]:
        raise ValueError(f"tail must have shape ({kernel.shape[1]},), one bound per channel; got {tuple(tail.shape)}")
    if not (tail >= 0).all():
        raise ValueError(f"tail must be 0 or more in every channel; got {tail.min():g}")
    check_tolerance("tolerance", tolerance)
    check_positive("max_states", max_states, at_least=STEP)
    kernel, tail = kernel.double(), tail.double()
    poles_of, most = _pole_sets(kernel, rate)

    def fit(pairs: int) -> Realization:
        return _fit(kernel, poles_of(STEP * pairs), rate, tail)

    few, many, most = 0, 1, max(1, min(max_states, most) // STEP)
    tried = [fit(many)]
    while tried[-1].residual > tolerance:
        if many == most:
            return min(tried, key=lambda candidate: candidate.residual)
        few, many = many, min(2 * many, most)
        tried.append(fit(many))
    best = tried[-1]
    while many - few > 1:
        middle = (few + many) // 2
        candidate = fit(middle)
        if candidate.residual <= tolerance:
            best, many = candidate, middle
        else:
            few = middle
    return best


def _check_kernel(kernel: Tensor) -> None:
    check_float("kernel", kernel)
    if kernel.ndim != 2 or 0 in kernel.shape:
        raise ValueError(f"kernel must have shape (lags, channels); got {tuple(kernel.shape)}")
    if not kernel.isfinite().all():
        raise ValueError("kernel must be finite; got NaN or infinity among its coefficients")


def _pole_sets(kernel: Tensor, rate: float) -> tuple[Callable[[int], Tensor], int]:
    """A function from a number of states to poles, complex, one of each conjugate pair; and the most that it takes."""
    smooth = kernel[PoleKernel.DIRECT :]
    if len(smooth) < 5:  # too short for a shift of two leading vectors
        return lambda states: torch.zeros(1, dtype=torch.complex128), STEP
    left, scale, _ = torch.linalg.svd(smooth, full_matrices=False)
    rank = max(1, int((scale > RANK_TOLERANCE * scale[0]).sum()))
    basis = left[:, :rank] * scale[:rank]  # (lags, rank)
    rows = min(HANKEL_ROWS, (len(basis) + 1) // 2)
    hankel = basis.unfold(0, len(basis) - rows + 1, 1).flatten(1)  # row i: the basis from lag i on
    vectors = torch.linalg.eigh(hankel @ hankel.T).eigenvectors.flip(1)  # (rows, rows), the leading ones first

    def poles_of(states: int) -> Tensor:
        leading = vectors[:, :states]
        poles = torch.linalg.eigvals(torch.linalg.lstsq(leading[:-1], leading[1:]).solution)
        poles = poles * (rate / poles.abs().clamp_min(1e-300)).clamp_max(1)  # no slower than the decay
        return poles[poles.imag >= 0]

    return poles_of, rows - 1


@torch.no_grad()
def _fit(kernel: Tensor, poles: Tensor, rate: float, tail: Tensor) -> Realization:
    smooth = kernel[PoleKernel.DIRECT :]
    fitted = PoleKernel(kernel.shape[1], len(poles), rate).float()  # as it will be stored
    fitted.poles.copy_(torch.stack([poles.real, poles.imag], 1) * (1 - 1e-7))  # rounding must not make it slower
    fitted.direct[: len(kernel)] = kernel[: PoleKernel.DIRECT].float()
    if len(smooth):
        powers = fitted.powers(len(smooth))  # (lags, 2 * poles), of the poles as stored
        oscillates = fitted.poles[:, 1] != 0
        used = torch.cat([torch.ones_like(oscillates), oscillates])  # a real pole has no imaginary part to weigh
        signed = torch.zeros(len(used), kernel.shape[1], dtype=torch.float64)
        signed[used] = torch.linalg.lstsq(powers[:, used], smooth, driver="gelsd").solution
        fitted.weights.copy_(torch.stack([signed[: len(poles)], -signed[len(poles) :]]))
    beyond = fitted.tail_bound(max(len(kernel), PoleKernel.DIRECT)) + tail
    return _measured(kernel, fitted, beyond, fitted.rounding_bound())


@torch.no_grad()
def realize_by_dft(kernel: Tensor) -> Realization:
    """The published exact conversion: as many states as lags, and kernels that repeat after them.

    One more coefficient, minus the sum of the others, makes the mean zero; the poles are then the other roots of unity.
    Good for sequences no longer than the kernel, and for them only: `error` is that of these lags.
    """
    _check_kernel(kernel)
    lags, size = len(kernel), len(kernel) + 1
    spectrum = torch.fft.fft(torch.cat([kernel.double(), -kernel.double().sum(0, keepdim=True)]), dim=0)
    frequency = torch.arange(1, size // 2 + 1, dtype=torch.float64)
    poles = torch.polar(torch.ones_like(frequency), 2 * math.pi * frequency / size)
    pairs = 2 - (2 * frequency == size).double()  # a real pole is its own conjugate and counts once
    weights = pairs[:, None] / size * spectrum[1 : size // 2 + 1] * poles[:, None] ** PoleKernel.DIRECT
    fitted = PoleKernel(kernel.shape[1], len(poles)).float()
    fitted.poles.copy_(torch.stack([poles.real, poles.imag], 1))
    fitted.weights.copy_(torch.stack([weights.real, weights.imag]))
    fitted.direct[:lags] = kernel[: PoleKernel.DIRECT].float()
    beyond = torch.zeros(kernel.shape[1], dtype=torch.float64)
    return _measured(kernel.double(), fitted, beyond, fitted.rounding_bound(lags))


def _measured(kernel: Tensor, fitted: PoleKernel, beyond: Tensor, rounding: Tensor) -> Realization:
    """How far the stored coefficients are from the kernel, lag by lag, and at most `beyond` its end."""
    weights = fitted.weights.double()
    tail = fitted.powers(max(0, len(kernel) - PoleKernel.DIRECT)) @ torch.cat([weights[0], -weights[1]])
    stored = torch.cat([fitted.direct.double()[: len(kernel)], tail])
    error = (kernel - stored).abs().sum(0) + beyond
    size = kernel.abs().sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    states = len(fitted.poles) + int((fitted.poles[:, 1] != 0).sum())
    return Realization(fitted, states, error, rounding, float((error / size).max()))
