"""Nystromformer: softmax attention, approximated by the means of segments of the sequence."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_positive
from tnn.mixers.landmarks import iterative_inverse, segments
from tnn.mixers.presets import (
    LRA_TASKS,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    mini_lra,
    mini_lra_image,
    skyformer_lra,
)
from tnn.mixers.projected_attention import ProjectedAttention, hide
from tnn.mixers.registry import register_mixer


@register_mixer(
    "nystromformer",
    channel_mixer="ffn",
    small_options={"landmarks": 4},
    presets=[
        *[skyformer_lra(task) for task in LRA_TASKS],
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class NystromAttention(ProjectedAttention):
    """softmax(q k~^T) inverse(softmax(q~ k~^T)) softmax(q~ k^T) v, with scores divided by sqrt(p).

    q~ and k~ are `landmarks` means of consecutive tokens. A shorter sequence has one landmark per token: it is softmax
    attention, up to the error of the inverse, which is computed in `iterations` steps. Time and memory grow with
    n * landmarks. The convolution of the publication is left out.

    `as_published`: queries and keys at padding are zeros that count in the means, and the first step of the inverse
    depends on the complete batch.
    From Xiong et al., "Nystromformer", 2021; this variant from Chen et al., "Skyformer", 2021.

    >>> import torch
    >>> from tnn.mixers.nystromformer import NystromAttention
    >>> NystromAttention(16, num_heads=2, landmarks=8)(torch.randn(1, 20, 16)).shape
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
        iterations: int = 6,
    ):
        NystromAttention.check_options(hidden_size, landmarks=landmarks, iterations=iterations)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.landmarks = landmarks
        self.iterations = iterations

    @classmethod
    def check_options(cls, hidden_size: int, *, landmarks: int = 128, iterations: int = 6, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("landmarks", landmarks)
        check_positive("iterations", iterations)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None) -> Tensor:
        length = torch.tensor(q.shape[-2], device=q.device)
        if real is not None and self.as_published:
            q, k = (t.masked_fill(~real[..., None, :, None], 0) for t in (q, k))
        elif real is not None:
            length = real.sum(-1)
        mean, used = self._means(length, q)  # (..., 1, m, n), (..., 1, 1, m)
        q_mean, k_mean = mean @ q, mean @ k  # (..., heads, m, p)

        scores = q_mean @ k_mean.mT * q.shape[-1] ** -0.5
        middle = torch.softmax(scores + hide(used, q.dtype), dim=-1)
        eye = torch.eye(middle.shape[-1], dtype=middle.dtype, device=middle.device)
        middle = torch.where(used & used.mT, middle, eye)  # an identity block does not change the inverse of the rest
        inverse = iterative_inverse(middle, self.iterations, whole_batch=self.as_published)

        seen = None if real is None else hide(real[..., None, None, :], q.dtype)
        gathered = inverse @ F.scaled_dot_product_attention(q_mean, k, v, attn_mask=seen)  # (..., heads, m, p)
        return F.scaled_dot_product_attention(q, k_mean, gathered, attn_mask=hide(used, q.dtype))

    def _means(self, length: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """A matrix (..., 1, m, n) that takes the means of segments, and which of these are used (..., 1, 1, m)."""
        n = like.shape[-2]
        start, end, used = (t.unsqueeze(-1) for t in segments(length, min(self.landmarks, n)))
        position = torch.arange(n, device=like.device)
        member = (start <= position) & (position < end) & used
        mean = member.to(like.dtype) / (end - start)
        return mean.unsqueeze(-3), used.mT.unsqueeze(-3)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, landmarks={self.landmarks}"
