"""Nystromformer: softmax attention through the means of stretches of the sequence."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_positive
from tnn.mixers.landmarks import iterative_inverse, stretches
from tnn.mixers.projected_attention import ProjectedAttention, hide
from tnn.mixers.registry import register_mixer


@register_mixer("nystromformer", channel_mixer="ffn", small_options={"landmarks": 4})
class NystromAttention(ProjectedAttention):
    """softmax(q k~^T) inverse(softmax(q~ k~^T)) softmax(q~ k^T) v, with scores divided by sqrt(p).

    q~ and k~ are `landmarks` means of consecutive tokens; a shorter sequence has a landmark for each token, and comes
    out as by softmax attention but for the inverse, which is iterated `iterations` times. Time and memory grow with
    n * landmarks. Without the convolution that the publication has beside it.

    `as_published`: queries and keys at padding are zeros that count in the means, and the start of the inverse depends on
    the whole batch. From Xiong et al., "Nystromformer", 2021; this variant from Chen et al., "Skyformer", 2021.

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
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        check_positive("landmarks", landmarks)
        check_positive("iterations", iterations)
        self.landmarks = landmarks
        self.iterations = iterations

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
        middle = torch.where(used & used.mT, middle, eye)  # the identity beside a matrix does not touch its inverse
        inverse = iterative_inverse(middle, self.iterations, whole_batch=self.as_published)

        seen = None if real is None else hide(real[..., None, None, :], q.dtype)
        gathered = inverse @ F.scaled_dot_product_attention(q_mean, k, v, attn_mask=seen)  # (..., heads, m, p)
        return F.scaled_dot_product_attention(q, k_mean, gathered, attn_mask=hide(used, q.dtype))

    def _means(self, length: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """A matrix (..., 1, m, n) that takes means of stretches, and which of them there are (..., 1, 1, m)."""
        n = like.shape[-2]
        start, end, used = (t.unsqueeze(-1) for t in stretches(length, min(self.landmarks, n)))
        position = torch.arange(n, device=like.device)
        member = (start <= position) & (position < end) & used
        mean = member.to(like.dtype) / (end - start)
        return mean.unsqueeze(-3), used.mT.unsqueeze(-3)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, landmarks={self.landmarks}"
