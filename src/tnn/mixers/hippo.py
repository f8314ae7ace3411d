"""The HiPPO-LegS matrix, the initial value of state spaces. It projects an input onto Legendre polynomials."""

from typing import NamedTuple

import torch
from torch import Tensor


class Modes(NamedTuple):
    """One mode of each conjugate pair of diag(-1/2 + i frequency) - p p^*. All fields (size / 2,), in float64."""

    frequency: Tensor  # negative, ascending
    b: Tensor  # of the input, complex
    p: Tensor  # of the rank-one correction, complex


def hippo_modes(size: int) -> Modes:
    """A_nk = -sqrt((2n+1)(2k+1)) below the diagonal and -(n+1) on it, B_n = sqrt(2n+1), in its eigenvectors.

    With p_n = sqrt(n + 1/2), A + p p^T is -1/2 plus a skew-symmetric matrix: i times a Hermitian one, whose
    eigenvectors are orthogonal. The phase of each eigenvector is arbitrary; it is chosen such that b is positive, so
    that the result does not depend on the linear algebra library.

    >>> from tnn.mixers.hippo import hippo_modes
    >>> hippo_modes(4).frequency
    tensor([-4.6033, -0.5565], dtype=torch.float64)
    """
    n = torch.arange(size, dtype=torch.float64, device="cpu")  # also if a model is built on another device
    b, p = torch.sqrt(2 * n + 1), torch.sqrt(n + 0.5)
    matrix = -torch.tril(b[:, None] * b, -1) - torch.diag(n + 1) + p[:, None] * p
    skew = (matrix - matrix.T) / 2
    frequency, vectors = torch.linalg.eigh(torch.complex(torch.zeros_like(skew), -skew))  # skew = i * this
    b, p = vectors.mH @ b.to(vectors.dtype), vectors.mH @ p.to(vectors.dtype)
    turn = b.conj() / b.abs()
    half = size // 2
    return Modes(frequency[:half].clone(), (b * turn)[:half], (p * turn)[:half])
