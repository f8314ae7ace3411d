"""One block of the network: a token mixer and a channel mixer, each with a norm and a residual connection."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from torch import Tensor, nn

from tnn._checks import check_choice, check_fraction, check_sequence
from tnn.layers.activation import activation
from tnn.layers.feed_forward import FeedForward
from tnn.layers.gated import GatedLinearUnit, inner_size
from tnn.layers.mixer import Mixer
from tnn.layers.norm import NORMS, LayerNorm, make_norm
from tnn.layers.sequences import Mask, Sequences, resolve_mask
from tnn.layers.state import States
from tnn.mixers.registry import find_mixer

NORM_POSITIONS = ("pre", "post")
INNER_NORMS = (*NORMS, "unused")
CHANNEL_MIXERS: dict[str, Callable[..., nn.Module]] = {"glu": GatedLinearUnit, "ffn": FeedForward}


class TNNBlock(nn.Module):
    """x + mix(norm(x)) along the tokens, then along the channels; norm(x + mix(x)) with norm_position="post".

    Args:
        hidden_size: channels of the input and the output.
        mixer: what mixes the tokens, by its name (`tnn.mixers.list_mixers()`): "tnn" is the paper's block, a gated
            Toeplitz unit and a gated linear unit; "gtu" is its ablation without the second half, and "attention" the
            one with softmax attention in place of the GTU.
        causal: an output depends on inputs up to its own position only.
        glu_expansion: the channel mixer (GLU or feed-forward) works on `glu_expansion * hidden_size` channels inside.
        glu_dropout: inside the channel mixer: of the gate of the GLU, or of what a feed-forward layer has activated.
        hidden_act: the activation of the channel mixer, and of the GTU.
        norm: "simple_rms", "layer", "rms", "scale" or "batch".
        norm_position: "pre" or "post".
        inner_norm: a second norm and a second skip connection around the token mixer, as in the Long-Range Arena
            models of the paper's main table. "unused": a LayerNorm that is counted but not computed, as in the released
            ones.
        dropout: of what each half adds.
        options: the options of the mixer. For "tnn" and "gtu" these are the keyword arguments of GatedToeplitzUnit
            (expansion, decay, rpe_size, dims, ...); attention takes num_heads.

    >>> import torch
    >>> from tnn.layers import TNNBlock, count_parameters
    >>> block = TNNBlock(512, causal=True)                       # one block of the paper's language model
    >>> block(torch.randn(1, 20, 512)).shape
    torch.Size([1, 20, 512])
    >>> count_parameters(block)
    ParameterCount(trained=3275776, fixed_decay=1536)
    >>> TNNBlock(16, mixer="transformer", num_heads=2, glu_expansion=4)(torch.randn(1, 20, 16)).shape
    torch.Size([1, 20, 16])
    """

    def __init__(
        self,
        hidden_size: int = 512,
        *,
        mixer: str = "tnn",
        causal: bool = False,
        glu_expansion: float = 1,
        glu_dropout: float = 0.0,
        hidden_act: str = "silu",
        norm: str = "simple_rms",
        norm_position: str = "pre",
        inner_norm: str | None = None,
        dropout: float = 0.0,
        **options: Any,
    ):
        super().__init__()
        self.check_options(
            hidden_size,
            mixer=mixer,
            causal=causal,
            glu_expansion=glu_expansion,
            glu_dropout=glu_dropout,
            hidden_act=hidden_act,
            norm=norm,
            norm_position=norm_position,
            inner_norm=inner_norm,
            dropout=dropout,
            **options,
        )
        self.hidden_size = hidden_size
        self.mixer_name = mixer
        self.norm_position = norm_position
        entry = find_mixer(mixer)
        token_mixer = entry.cls(hidden_size, causal=causal, **_with_activation(entry.cls, options, hidden_act))
        self.token_norm = nn.Identity() if token_mixer.owns_residual else make_norm(norm, hidden_size)
        self.token_mixer: nn.Module = token_mixer
        self.unused_norm = UnusedNorm(hidden_size) if inner_norm == "unused" else None
        if inner_norm in NORMS:
            self.token_mixer = InnerResidual(make_norm(inner_norm, hidden_size), token_mixer)
        self.channel_norm = self.channel_mixer = None
        if entry.channel_mixer is not None:
            self.channel_norm = make_norm(norm, hidden_size)
            make = CHANNEL_MIXERS[entry.channel_mixer]
            self.channel_mixer = make(hidden_size, glu_expansion, hidden_act=hidden_act, dropout=glu_dropout)
        self.dropout = nn.Dropout(dropout)

    @staticmethod
    def check_options(
        hidden_size: int,
        *,
        mixer: str,
        causal: bool,
        glu_expansion: float,
        glu_dropout: float,
        hidden_act: str,
        norm: str,
        norm_position: str,
        inner_norm: str | None,
        dropout: float,
        **options: Any,
    ) -> None:
        """Check the values of the constructor's arguments without building anything."""
        entry = find_mixer(mixer)
        if entry.channel_mixer is not None:
            inner_size("glu_expansion", hidden_size, glu_expansion)
            activation("hidden_act", hidden_act)
        check_choice("norm", norm, NORMS)
        check_choice("norm_position", norm_position, NORM_POSITIONS)
        if inner_norm is not None:
            check_choice("inner_norm", inner_norm, INNER_NORMS)
        check_fraction("dropout", dropout)
        check_fraction("glu_dropout", glu_dropout)
        entry.check(hidden_size, causal=causal, **_with_activation(entry.cls, options, hidden_act))

    @property
    def mixer(self) -> Any:
        """The token mixer, without the inner residual connection that may be around it."""
        return self.token_mixer.mixer if isinstance(self.token_mixer, InnerResidual) else self.token_mixer

    @property
    def operator(self) -> Any:
        """The Toeplitz operator that mixes the tokens; None if something else does."""
        return getattr(self.mixer, "operator", None)

    @property
    def state_owners(self) -> list[Any]:
        """What has a state for sequences in parts; a None among them if outputs change as tokens are added."""
        return self.mixer.state_owners

    def forward(self, x: Tensor, mask: Mask = None, state: States = None) -> Tensor:
        """x (..., n, hidden_size), mask (..., n) true at real positions; a grid has two axes in place of n.

        With a `state` of the token mixer (see tnn.streaming), or a tuple with one for each of its `state_owners`, x is
        the next part of a sequence.
        """
        check_sequence("x", x, self.hidden_size)
        x, sequences = resolve_mask(x, mask)
        mix = self.token_mixer if state is None else partial(self.token_mixer, state=state)
        x = mix(x, sequences) if self.mixer.owns_residual else self._residual(x, mix, self.token_norm, sequences)
        if self.channel_mixer is not None and self.channel_norm is not None:
            x = self._residual(x, self.channel_mixer, self.channel_norm, sequences)
        return x

    def _residual(
        self, x: Tensor, mix: Callable[..., Tensor], norm: Callable[..., Tensor], sequences: Sequences | None
    ) -> Tensor:
        if self.norm_position == "pre":
            return x + self.dropout(mix(norm(x, sequences), sequences))
        return norm(x + self.dropout(mix(x, sequences)), sequences)

    def extra_repr(self) -> str:
        return f"mixer={self.mixer_name}, norm_position={self.norm_position}"


class InnerResidual(nn.Module):
    """x + mixer(norm(x)), inside the residual connection of a block."""

    def __init__(self, norm: nn.Module, mixer: Mixer):
        super().__init__()
        self.norm = norm
        self.mixer = mixer

    def forward(self, x: Tensor, mask: Mask = None, state: States = None) -> Tensor:
        x, sequences = resolve_mask(x, mask)
        return x + self.mixer(self.norm(x, sequences), sequences, state)


class UnusedNorm(LayerNorm):
    """Parameters that a published model has, and its tables count, without using them."""

    def __init__(self, hidden_size: int):
        super().__init__(hidden_size)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Also freezes it again: see `Mixer.train`."""
        self.requires_grad_(False)
        return super().train(mode)


def _with_activation(cls: type[Mixer], options: dict[str, Any], hidden_act: str) -> dict[str, Any]:
    """A mixer that has an activation uses that of the block."""
    return {**options, "hidden_act": hidden_act} if "hidden_act" in cls.option_names() else options
