"""What landmark methods share: where in a sequence the landmarks lie, and the inverse of their matrix."""

from typing import NamedTuple

import torch
from torch import Tensor


class Stretches(NamedTuple):
    """Consecutive parts of a sequence, of equal length or nearly; all of them (..., count)."""

    start: Tensor
    end: Tensor
    used: Tensor  # false for the last ones, where a sequence is shorter than the count: there each token is a part


def stretches(length: Tensor, count: int) -> Stretches:
    """`count` stretches of each sequence; length (...), at least 1."""
    index = torch.arange(count, device=length.device)
    length = length.unsqueeze(-1)
    parts = length.clamp(max=count)
    return Stretches(index * length // parts, (index + 1) * length // parts, index < parts)


def iterative_inverse(matrix: Tensor, iterations: int, *, whole_batch: bool = False) -> Tensor:
    """The inverse of (..., m, m) with entries of 0 or more whose largest row sum or eigenvalue is 1.

    V <- V (13 I - KV (15 I - KV (7 I - KV))) / 4 from V = K^T / (largest column sum): what is left of I - KV is about
    cubed each time. `whole_batch`: the largest of all matrices, so that each depends on its neighbours.
    """
    columns = matrix.sum(-2)
    largest = columns.amax() if whole_batch else columns.amax(-1)[..., None, None]
    inverse = matrix.mT / largest
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * eye - product @ (15 * eye - product @ (7 * eye - product))) / 4
    return inverse
