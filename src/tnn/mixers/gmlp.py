"""gMLP: a gate that mixes tokens by one learned matrix, the same for all inputs."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn.layers.gated import inner_size
from tnn.mixers.positional import PositionalMixer
from tnn.mixers.presets import (
    EMBEDDING_DROPOUT,
    causal_lm,
    masked_lm,
    mini_causal_lm,
    mini_lra,
    mini_masked_lm,
    sizes,
)
from tnn.mixers.registry import register_mixer


@register_mixer(
    "gmlp",
    channel_mixer=None,
    small_options={"max_length": 32},
    presets=[
        causal_lm(EMBEDDING_DROPOUT, sizes(12, 512)),
        masked_lm(EMBEDDING_DROPOUT, sizes(24, 768), norm_position="pre"),
        mini_causal_lm(num_hidden_layers=2, mixer_options={"expansion": 2.25}),
        mini_masked_lm(num_hidden_layers=8, norm_position="pre", mixer_options={"expansion": 2.5, "max_length": 128}),
        mini_lra(mixer_options={"expansion": 5.75, "max_length": 2048}),
    ],
)
class SpatialGating(PositionalMixer):
    """y = W2( u * (S norm(v) + b) ), [u, v] = gelu(W1 x): a gMLP block without its norm and residual connection.

    W1 has `expansion * hidden_size` outputs, half of them for u and half for v. S (max_length, max_length) is cut to
    (n, n), and to its lower triangle if causal; from position `max_length` on the gate is 0. At the start S is near 0
    and b is 1, so that tokens are not mixed.
    `as_published`: S and b start as those of a dense layer, b exists but is not added; padding is treated as tokens.
    (Liu, Dai, So and Le, 2021.)

    >>> import torch
    >>> from tnn.mixers.gmlp import SpatialGating
    >>> SpatialGating(16, causal=True, max_length=32)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        causal: bool = False,
        as_published: bool = False,
        expansion: float = 4,
        max_length: int = 512,
    ):
        SpatialGating.check_options(hidden_size, expansion=expansion)
        super().__init__(hidden_size, causal=causal, as_published=as_published, max_length=max_length)
        inner = inner_size("expansion", hidden_size, expansion)
        self.in_proj = nn.Linear(hidden_size, inner)
        self.norm = nn.LayerNorm(inner // 2)
        self.spatial = nn.Linear(max_length, max_length) if as_published else NearIdentityGate(max_length)
        self.out_proj = nn.Linear(inner // 2, hidden_size)
        self.train()

    @classmethod
    def check_options(cls, hidden_size: int, *, expansion: float = 4, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        inner = inner_size("expansion", hidden_size, expansion)
        if inner % 2:
            raise ValueError(f"expansion must make an even number of channels, for two halves; got {inner}")

    def unused_parameters(self) -> list[nn.Parameter]:
        return [self.spatial.bias] if self.as_published else []

    def enter_mixing(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        u, v = F.gelu(self.in_proj(x)).chunk(2, -1)  # (..., n, inner / 2) each
        return self.norm(v), u

    def mix_positions(self, x: Tensor, v: Tensor, position: Tensor, visible: Tensor | None) -> Tensor:
        matrix = self.spatial.weight[position][..., : v.shape[-2]]  # (..., n, m)
        if visible is not None:
            matrix = matrix.masked_fill(~visible, 0)
        z = matrix.to(v.dtype) @ v
        return z if self.as_published else z + self.spatial.bias[position].unsqueeze(-1)

    def leave_mixing(self, z: Tensor, gate: Tensor | None) -> Tensor:
        assert gate is not None
        return self.out_proj((gate * z).to(gate.dtype))


class NearIdentityGate(nn.Module):
    """The parameters of a gate that is about 1 for every input at the start."""

    def __init__(self, max_length: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, max_length))
        self.bias = nn.Parameter(torch.empty(max_length))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1e-3 / len(self.bias)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.ones_(self.bias)
