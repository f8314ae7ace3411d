"""Skyformer: attention with a Gaussian kernel, through a sample of its queries and keys."""

import torch
from torch import Tensor

from tnn._checks import check_positive, check_tolerance
from tnn.mixers.kernelized import gaussian
from tnn.mixers.landmarks import iterative_inverse, stretches
from tnn.mixers.projected_attention import ProjectedAttention, draws_from
from tnn.mixers.registry import register_mixer

_DRAWS = 2**31


@register_mixer("skyformer", channel_mixer="ffn", small_options={"landmarks": 8})
class SkyformerAttention(ProjectedAttention):
    """kernel(q, S) inverse(kernel(S, S) + r I) kernel(S, k) v, which approximates `KernelizedAttention`.

    kernel(x, y) = exp(-|x - y|^2 / (2 sqrt(p))); S are `landmarks` of the rows of q and k, half of each: one drawn from
    each of so many equal stretches of the sequence, or all of them where it is short. The matrix of the landmarks, with
    `regularization` r on its diagonal, is divided by the roots of its row sums on both sides, and its inverse iterated
    `iterations` times. Time and memory grow with n * landmarks. Draws come from torch's generator in training, one for
    the whole batch; in evaluation they are the same each time.

    `as_published`: landmarks are drawn from the whole sequence, some of them twice, as if padding came last; and the start
    of the inverse depends on the whole batch. From Chen, Zeng, Ji and Yang, "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.skyformer import SkyformerAttention
    >>> SkyformerAttention(16, num_heads=2, landmarks=8)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    masks_rows = True
    full_precision = True

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        landmarks: int = 128,
        regularization: float = 0.1,
        iterations: int = 6,
    ):
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        check_positive("landmarks", landmarks)
        if landmarks % 2:
            raise ValueError(f"landmarks must be even, half of them queries and half keys; got {landmarks}")
        check_tolerance("regularization", regularization)
        check_positive("iterations", iterations)
        self.landmarks = landmarks
        self.regularization = regularization
        self.iterations = iterations

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        scale = q.shape[-1] ** -0.25
        q, k = q * scale, k * scale
        length = torch.full(q.shape[:-3], q.shape[-2], device=q.device)
        if real is not None:
            q, k, v = (t.masked_fill(~real[..., None, :, None], 0) for t in (q, k, v))
            length = real.sum(-1)
        index, used = self._sample(length, q.shape[-2])  # (..., 2, m / 2), (..., m)
        sample = torch.cat([_rows(q, index[..., 0, :]), _rows(k, index[..., 1, :])], dim=-2)  # (..., heads, m, p)
        used = used[..., None, None, :]

        eye = torch.eye(sample.shape[-2], dtype=q.dtype, device=q.device)
        middle = gaussian(sample, sample).masked_fill(~(used & used.mT), 0) + self.regularization * eye
        root = middle.sum(-1, keepdim=True).rsqrt()  # (..., heads, m, 1)
        inverse = iterative_inverse(root * middle * root.mT, self.iterations, whole_batch=self.as_published)

        gathered = gaussian(k, sample).masked_fill(~used, 0).mT @ v  # (..., heads, m, p)
        gathered = root * (inverse.mT @ (root * gathered))
        return gaussian(q, sample).masked_fill(~used, 0) @ gathered

    def _sample(self, length: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Rows of q and of k (..., 2, m / 2), and which of all of them count (..., m)."""
        generator, device = draws_from(self.training, length.device)
        half = self.landmarks // 2
        # Integers, as 1 - 1e-9 is 1 in a smaller type. All of them are drawn, so that the draws of a sequence do not
        # depend on how long its neighbours are.
        draws = torch.randint(_DRAWS, (2, half), generator=generator, device=device).to(length.device)
        if self.as_published:
            index = draws * length[..., None, None] // _DRAWS
            return index, torch.ones(2 * half, dtype=torch.bool, device=length.device)
        half = min(half, n)
        start, end, used = stretches(length, half)
        size = (end - start).unsqueeze(-2)
        index = start.unsqueeze(-2) + draws[:, :half] * size // _DRAWS
        return index, torch.cat([used, used], dim=-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, landmarks={self.landmarks}"


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x (..., heads, n, p) at index (..., m) -> (..., heads, m, p)."""
    return torch.take_along_dim(x, index[..., None, :, None], dim=-2)
