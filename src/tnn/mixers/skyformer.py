"""Skyformer: attention with a Gaussian kernel, approximated from a sample of the queries and keys."""

from typing import Any

import torch
from torch import Tensor

from tnn._checks import check_positive, check_tolerance
from tnn.mixers.kernelized import gaussian
from tnn.mixers.landmarks import iterative_inverse, segments
from tnn.mixers.presets import (
    LRA_TASKS,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    mini_lra,
    mini_lra_image,
    skyformer_lra,
)
from tnn.mixers.projected_attention import ProjectedAttention, draws_from
from tnn.mixers.registry import register_mixer

_DRAWS = 2**31  # random integers are below it


@register_mixer(
    "skyformer",
    channel_mixer="ffn",
    small_options={"landmarks": 8},
    presets=[
        *[skyformer_lra(task) for task in LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class SkyformerAttention(ProjectedAttention):
    """kernel(q, S) inverse(kernel(S, S) + r I) kernel(S, k) v, which approximates `KernelizedAttention`.

    kernel(x, y) = exp(-|x - y|^2 / (2 sqrt(p))). S are `landmarks` rows, half from q and half from k: one row is drawn
    from each of `landmarks` / 2 equal segments of the sequence; a short sequence uses all its rows. The matrix of
    the landmarks, with `regularization` r on its diagonal, is divided by the square roots of its row sums on both
    sides; its inverse is computed in `iterations` steps. Time and memory grow with n * landmarks. In training, draws
    come from torch's generator, the same for the complete batch; in evaluation they are the same in each call.

    `as_published`: landmarks are drawn from the complete sequence, with repetition, as if padding came last; and the
    first step of the inverse depends on the complete batch. From Chen, Zeng, Ji and Yang, "Skyformer", 2021.

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
        SkyformerAttention.check_options(
            hidden_size, landmarks=landmarks, regularization=regularization, iterations=iterations
        )
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.landmarks = landmarks
        self.regularization = regularization
        self.iterations = iterations

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        *,
        landmarks: int = 128,
        regularization: float = 0.1,
        iterations: int = 6,
        **options: Any,
    ) -> None:
        super().check_options(hidden_size, **options)
        check_positive("landmarks", landmarks)
        if landmarks % 2:
            raise ValueError(f"landmarks must be even, half of them queries and half keys; got {landmarks}")
        check_tolerance("regularization", regularization)
        check_positive("iterations", iterations)

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
        """The sampled rows of q and of k (..., 2, m / 2), and which of them are used (..., m)."""
        generator, device = draws_from(self.training, length.device)
        half = self.landmarks // 2
        # Integers, because a uniform float could round up to 1. Always `landmarks` draws, so that those of a sequence
        # do not depend on the length of the batch.
        draws = torch.randint(_DRAWS, (2, half), generator=generator, device=device).to(length.device)
        if self.as_published:
            index = draws * length[..., None, None] // _DRAWS
            return index, torch.ones(2 * half, dtype=torch.bool, device=length.device)
        half = min(half, n)
        start, end, used = segments(length, half)
        size = (end - start).unsqueeze(-2)
        index = start.unsqueeze(-2) + draws[:, :half] * size // _DRAWS
        return index, torch.cat([used, used], dim=-1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, landmarks={self.landmarks}"


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x (..., heads, n, p) at index (..., m) -> (..., heads, m, p)."""
    return torch.take_along_dim(x, index[..., None, :, None], dim=-2)
