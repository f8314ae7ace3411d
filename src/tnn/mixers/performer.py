"""Performer: softmax attention estimated by random features, in linear time."""

import torch
from torch import Tensor

from tnn._checks import check_positive
from tnn._precision import compute_dtype
from tnn.layers.sequences import Sequences
from tnn.mixers.linear_attention import LinearAttention
from tnn.mixers.registry import register_mixer

LARGEST_EXPONENT = 60.0  # |w|^2 / 2 bounds it: it matters only for heads of more than about 100 channels
SMALLEST_FEATURE = 1e-6  # keys that are all far from every w count alike


@register_mixer("performer", channel_mixer="ffn", small_options={"features": 16})
class PerformerAttention(LinearAttention):
    """y_i = o( sum_j f(q_i) . g(k_j) v_j / sum_j f(q_i) . g(k_j) ): on average exp(q . k / sqrt(head_size)).

    With s = head_size^(-1/4) and rows w of a random matrix, f(q) = exp(s w . q - max_w) and
    g(k) = exp(s w . k - |s k|^2 / 2) + 1e-6; what f lacks cancels. Rows are orthogonal, with the lengths of Gaussian
    vectors; there are `features` of them in each head.

    `redraw`: a new matrix at each call in training, from torch's global generator; in evaluation, or without
    `redraw`, always the one that is drawn with the parameters and saved with them. Linear in time; the state for
    generation is of constant size, and there is none while matrices are redrawn.

    `as_published`: the port of the language models. Independent Gaussian rows in training; features
    features^(-1/2) exp(s w . t - |s t|^2 / 2 - c) + 1e-4, with c the largest s w . t of a query, or of all keys of a
    head, later ones too; no divisor below 1e-2; no state. With `redraw=False` the port of Long-Range Arena:
    s = head_size^(-1/2), so that it estimates another kernel, exp(q . k / head_size); c of all keys of a batch; no
    least divisor; keys and values 0 at padding, which still counts in the divisor.

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
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, as_published=as_published)
        check_positive("features", features)
        self.num_features = features
        self.redraw = redraw
        self._arena = as_published and not redraw  # the port of Long-Range Arena
        self.ignores_mask = as_published and not self._arena
        if as_published and redraw:
            self.floor = 1e-2
        self.register_buffer("directions", torch.empty(num_heads, features, self.head_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Those of a checkpoint stay: transformers marks them."""
        if not self.directions.is_meta and not getattr(self.directions, "_is_hf_initialized", False):
            self.directions.copy_(self._orthogonal(self.directions))

    @property
    def state_owner(self) -> "PerformerAttention | None":
        fixed = not (self.training and self.redraw)
        return self if self.causal and fixed and not self.as_published else None

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        if not self._arena:
            return super().mix_masked(x, sequences)
        q, k, v = self.project(x)
        real = sequences.real[..., None, :, None]
        return self.output(self.weigh(q, k * real, v * real)[0])

    def features(self, q: Tensor, k: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = self._draw(q) if self.training and self.redraw else self.directions.to(q.dtype)
        scale = self.head_size ** (-0.5 if self._arena else -0.25)
        q, k = q * scale, k * scale
        q_along, k_along = q @ rows.mT, k @ rows.mT  # (..., heads, n, features)
        q_norm, k_norm = (t.square().sum(-1, keepdim=True) / 2 for t in (q, k))
        if self.as_published:
            q_largest = q_along.amax(-1, keepdim=True)
            k_largest = k_along.amax() if self._arena else k_along.amax((-2, -1), keepdim=True)
            f = self._published(q_along - q_norm - q_largest.detach())
            return f, self._published(k_along - k_norm - k_largest.detach())
        f = (q_along - q_along.amax(-1, keepdim=True).detach()).exp()
        g = (k_along - k_norm).clamp_max(LARGEST_EXPONENT).exp() + SMALLEST_FEATURE
        return f, g

    def _published(self, exponent: Tensor) -> Tensor:
        factor = self.num_features**-0.5
        return factor * (exponent.exp() + 1e-4) if self._arena else factor * exponent.exp() + 1e-4

    def _draw(self, like: Tensor) -> Tensor:
        return self._gaussian(like) if self.as_published else self._orthogonal(like)

    def _gaussian(self, like: Tensor) -> Tensor:
        """(heads, features, head_size), on the device of `like`."""
        shape = (self.num_heads, self.num_features, self.head_size)
        return torch.randn(shape, dtype=compute_dtype(like), device=like.device)

    def _orthogonal(self, like: Tensor) -> Tensor:
        """The same with rows orthogonal, head_size at a time."""
        rows = self._gaussian(like)
        blocks = -(-self.num_features // self.head_size)
        square = rows.new_empty(self.num_heads, blocks, self.head_size, self.head_size).normal_()
        rotation, triangle = torch.linalg.qr(square)
        rotation = rotation * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # or not all would be as likely
        return rotation.flatten(1, 2)[:, : self.num_features] * rows.norm(dim=-1, keepdim=True)

    def extra_repr(self) -> str:
        return f"features={self.num_features}, redraw={self.redraw}, {super().extra_repr()}"
