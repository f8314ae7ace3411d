"""What landmark methods share: the positions of the landmarks, and the inverse of their matrix."""

from typing import NamedTuple

import torch
from torch import Tensor


class Segments(NamedTuple):
    """Consecutive segments of a sequence, of equal or nearly equal length. All fields (..., count)."""

    start: Tensor
    end: Tensor
    used: Tensor  # false for the last ones if a sequence is shorter than the count: each token is then a segment


def segments(length: Tensor, count: int) -> Segments:
    """`count` segments of each sequence; length (...), at least 1."""
    index = torch.arange(count, device=length.device)
    length = length.unsqueeze(-1)
    used = length.clamp(max=count)
    return Segments(index * length // used, (index + 1) * length // used, index < used)


def iterative_inverse(matrix: Tensor, iterations: int, *, whole_batch: bool = False) -> Tensor:
    """The inverse of a non-negative matrix (..., m, m) whose largest row sum or eigenvalue is 1.

    V <- V (13 I - KV (15 I - KV (7 I - KV))) / 4, starting from V = K^T / (largest column sum): each iteration about
    cubes the error I - KV. `whole_batch`: the largest column sum of all matrices, so that each result depends on the
    other matrices of the batch.
    """
    columns = matrix.sum(-2)
    largest = columns.amax() if whole_batch else columns.amax(-1)[..., None, None]
    inverse = matrix.mT / largest
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(iterations):
        product = matrix @ inverse
        inverse = inverse @ (13 * eye - product @ (15 * eye - product @ (7 * eye - product))) / 4
    return inverse
