"""Performer: linear attention whose random features estimate softmax attention."""

from typing import Any

import torch
from torch import Tensor

from tnn._checks import check_positive
from tnn._precision import compute_dtype
from tnn.layers.sequences import Sequences
from tnn.mixers.linear_attention import LinearAttention
from tnn.mixers.presets import (
    CAUSAL_ATTENTION,
    LRA_TASKS,
    MASKED_ATTENTION,
    MINI_ATTENTION,
    MINI_LRA_ATTENTION,
    MINI_LRA_IMAGE_ATTENTION,
    causal_lm,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_lra_image,
    mini_masked_lm,
    skyformer_lra,
)
from tnn.mixers.registry import register_mixer

MAX_EXPONENT = 60.0  # exponents are at most |w|^2 / 2: the limit is reached only with more than about 100 channels
SMALLEST_FEATURE = 1e-6  # keys that are far from every w have equal weights


@register_mixer(
    "performer",
    channel_mixer="ffn",
    small_options={"features": 16},
    presets=[
        causal_lm(CAUSAL_ATTENTION),
        masked_lm(MASKED_ATTENTION),
        *[skyformer_lra(task, features=128, redraw=False) for task in LRA_TASKS],
        mini_causal_lm(MINI_ATTENTION),
        mini_masked_lm(MINI_ATTENTION),
        mini_lra(MINI_LRA_ATTENTION),
        mini_lra_image(MINI_LRA_IMAGE_ATTENTION),
    ],
)
class PerformerAttention(LinearAttention):
    """y_i = o( sum_j f(q_i) . g(k_j) v_j / sum_j f(q_i) . g(k_j) ).

    f(q) . g(k) is exp(q . k / sqrt(head_size)) on average, up to a factor that depends on q only and cancels. With
    s = head_size^(-1/4) and the rows w of a random matrix: f(q) = exp(s w . q - max_w(s w . q)) and
    g(k) = exp(s w . k - |s k|^2 / 2) + 1e-6. Each head has `features` rows; they are orthogonal, and have the lengths
    of Gaussian vectors.

    `redraw`: each call in training draws a new matrix from torch's global generator. In evaluation, or without
    `redraw`, the matrix is a buffer that is drawn with the parameters and saved with them. O(n) time; the state for
    generation has a constant size. While matrices are redrawn there is no state.

    `as_published`: the implementation of the language models. Rows are independent in training; features are
    features^(-1/2) exp(s w . t - |s t|^2 / 2 - c) + 1e-4, where c is the maximum of s w . t for one query, or for all
    keys of a head, including later ones; the divisor is at least 1e-2; there is no state. With `redraw=False` it is
    the implementation of Long-Range Arena: s = head_size^(-1/2), which estimates another kernel,
    exp(q . k / head_size); c is the maximum over all keys of a batch; the divisor has no lower bound; keys and values
    are 0 at padding, which still counts in the divisor.

    Choromanski et al., "Rethinking attention with Performers", 2021.

    >>> import torch
    >>> from tnn.mixers.performer import PerformerAttention
    >>> PerformerAttention(16, num_heads=2, causal=True, features=32)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    xavier = ()

    directions: Tensor

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        num_heads: int = 1,
        as_published: bool = False,
        features: int = 64,
        redraw: bool = True,
    ):
        PerformerAttention.check_options(hidden_size, features=features)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        self.num_features = features
        self.redraw = redraw
        self._lra = as_published and not redraw  # the published implementation of Long-Range Arena
        self.ignores_mask = as_published and not self._lra
        if as_published and redraw:
            self.floor = 1e-2
        self.register_buffer("directions", torch.empty(num_heads, features, self.head_size))
        self.reset_parameters()

    @classmethod
    def check_options(cls, hidden_size: int, *, features: int = 64, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("features", features)

    def reset_parameters(self) -> None:
        """Does not replace the directions of a loaded checkpoint, which transformers marks."""
        if not self.directions.is_meta and not getattr(self.directions, "_is_hf_initialized", False):
            self.directions.copy_(self._orthogonal(self.directions))

    @property
    def state_owner(self) -> "PerformerAttention | None":
        fixed = not (self.training and self.redraw)
        return self if self.causal and fixed and not self.as_published else None

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if not self._lra:
            return super().mix_masked(x, sequences)
        q, k, v = self.project(x)
        real = sequences.real[..., None, :, None]
        return self.output(self.weigh(q, k * real, v * real)[0])

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = self._draw(q) if self.training and self.redraw else self.directions.to(q.dtype)
        scale = self.head_size ** (-0.5 if self._lra else -0.25)
        q, k = q * scale, k * scale
        q_along, k_along = q @ rows.mT, k @ rows.mT  # (..., heads, n, features)
        q_norm, k_norm = (t.square().sum(-1, keepdim=True) / 2 for t in (q, k))
        if self.as_published:
            q_largest = q_along.amax(-1, keepdim=True)
            k_largest = k_along.amax() if self._lra else k_along.amax((-2, -1), keepdim=True)
            f = self._published(q_along - q_norm - q_largest.detach())
            return f, self._published(k_along - k_norm - k_largest.detach())
        f = (q_along - q_along.amax(-1, keepdim=True).detach()).exp()
        g = (k_along - k_norm).clamp_max(MAX_EXPONENT).exp() + SMALLEST_FEATURE
        return f, g

    def _published(self, exponent: Tensor) -> Tensor:
        factor = self.num_features**-0.5
        return factor * (exponent.exp() + 1e-4) if self._lra else factor * exponent.exp() + 1e-4

    def _draw(self, like: Tensor) -> Tensor:
        return self._gaussian(like) if self.as_published else self._orthogonal(like)

    def _gaussian(self, like: Tensor) -> Tensor:
        """(heads, features, head_size), on the device of `like`."""
        shape = (self.num_heads, self.num_features, self.head_size)
        return torch.randn(shape, dtype=compute_dtype(like), device=like.device)

    def _orthogonal(self, like: Tensor) -> Tensor:
        """The same, but each head_size rows are orthogonal to each other."""
        rows = self._gaussian(like)
        blocks = -(-self.num_features // self.head_size)
        square = rows.new_empty(self.num_heads, blocks, self.head_size, self.head_size).normal_()
        rotation, triangle = torch.linalg.qr(square)
        rotation = rotation * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # uniform over all rotations
        return rotation.flatten(1, 2)[:, : self.num_features] * rows.norm(dim=-1, keepdim=True)

    def extra_repr(self) -> str:
        return f"features={self.num_features}, redraw={self.redraw}, {super().extra_repr()}"
