"""The block that a method of the comparison stands in: norm and residual, and a feed-forward layer if it has one."""

from inspect import signature
from typing import Any

from torch import Tensor, nn

from tnn._checks import check_choice
from tnn.layers.activation import activation
from tnn.layers.block import Block
from tnn.layers.gated import inner_size
from tnn.layers.sequences import Mask, State, enter
from tnn.mixers.registry import find_method


class BaselineBlock(Block):
    """x + mix(norm(x)), then x + FFN(norm(x)), or with the norms after; `mixer` names the method.

    >>> import torch
    >>> from tnn.mixers.block import BaselineBlock
    >>> block = BaselineBlock(16, mixer="transformer", num_heads=2, causal=True)
    >>> block(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        mixer: str,
        causal: bool = False,
        num_heads: int = 1,
        ffn_expansion: float = 4,
        hidden_act: str = "gelu",
        norm: str = "layer",
        norm_position: str = "pre",
        dropout: float = 0.0,
        **options: Any,
    ):
        method = find_method(mixer)
        if causal and not method.causal:
            raise ValueError(f"mixer {mixer!r} has no causal form: it is bidirectional only")
        make = method.load()
        allowed = [name for name in signature(make).parameters if name not in ("hidden_size", "causal", "num_heads")]
        for name in options:
            check_choice(f"options of mixer {mixer!r}", name, allowed)
        heads = {"num_heads": num_heads} if method.heads else {}
        token_mixer = make(hidden_size, causal=causal, **heads, **options)
        ffn = None
        if method.feed_forward:
            ffn = FeedForward(hidden_size, inner_size("ffn_expansion", hidden_size, ffn_expansion), hidden_act)
        super().__init__(hidden_size, token_mixer, ffn, norm=norm, norm_position=norm_position, dropout=dropout)
        self.remembers = token_mixer.remembers
        if token_mixer.bare:
            self.token_norm = nn.Identity()

    @property
    def operator(self) -> Any:
        """The Toeplitz operator that mixes the tokens, if that is what does."""
        return getattr(self.token_mixer, "operator", None)

    @property
    def stateful(self) -> Any:
        return self.token_mixer.stateful

    def forward(self, x: Tensor, mask: Mask = None, state: State | None = None) -> Tensor:
        if not self.token_mixer.bare:
            return super().forward(x, mask, state)
        x, sequences = enter(x, mask)
        return self.token_mixer(x, sequences, state)


class FeedForward(nn.Module):
    """Two dense layers with an activation between them; each position alone."""

    def __init__(self, hidden_size: int, inner: int, hidden_act: str):
        super().__init__()
        self.hidden_act = hidden_act
        self._activation = activation("hidden_act", hidden_act)
        self.in_proj = nn.Linear(hidden_size, inner)
        self.out_proj = nn.Linear(inner, hidden_size)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., hidden_size)."""
        return self.out_proj(self._activation(self.in_proj(x)))

    def extra_repr(self) -> str:
        return f"hidden_act={self.hidden_act}"
