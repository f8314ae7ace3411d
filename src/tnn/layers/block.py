"""One block of the network: a token mixer and a channel mixer, each with a norm and a residual."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from tnn._checks import check_choice, check_fraction, check_sequence
from tnn.layers.attention import SelfAttention
from tnn.layers.gated import GatedLinearUnit, GatedToeplitzUnit, inner_size
from tnn.layers.norm import make_norm
from tnn.layers.operator import ToeplitzOperator
from tnn.layers.sequences import Mask, Sequences, State, enter

STRUCTURES = ("gtu+glu", "gtu", "attention+glu")
NORM_POSITIONS = ("pre", "post")


class Block(nn.Module):
    """x + mix(norm(x)) along the tokens, then along the channels; norm(x + mix(x)) with norm_position="post".

    What mixes is given: the tokens' mixer is called with a mask, and with a state if there is one. Without a
    `channel_mixer` the second half is left out.
    """

    remembers = False  # something of one call in the next one, beside a state

    def __init__(
        self,
        hidden_size: int,
        token_mixer: nn.Module,
        channel_mixer: nn.Module | None,
        *,
        norm: str,
        norm_position: str,
        dropout: float,
    ):
        super().__init__()
        check_choice("norm_position", norm_position, NORM_POSITIONS)
        check_fraction("dropout", dropout)
        self.hidden_size = hidden_size
        self.norm_position = norm_position
        self.token_norm = make_norm(norm, hidden_size)
        self.token_mixer = token_mixer
        self.channel_norm = None if channel_mixer is None else make_norm(norm, hidden_size)
        self.channel_mixer = channel_mixer
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask = None, state: State | None = None) -> Tensor:
        """x (..., n, hidden_size), mask (..., n) true at real positions; a grid has two axes in place of n.

        With a `state` of what mixes the tokens (see tnn.streaming), x is the next part of a sequence.
        """
        check_sequence("x", x, self.hidden_size)
        x, sequences = enter(x, mask)
        mix = self.token_mixer if state is None else partial(self.token_mixer, state=state)
        x = self._residual(x, mix, self.token_norm, sequences)
        if self.channel_mixer is not None and self.channel_norm is not None:
            x = self._residual(x, self.channel_mixer, self.channel_norm, sequences)
        return x

    def _residual(
        self, x: Tensor, mixer: Callable[..., Tensor], norm: nn.Module, sequences: Sequences | None
    ) -> Tensor:
        if self.norm_position == "pre":
            return x + self.dropout(mixer(norm(x, sequences), sequences))
        return norm(x + self.dropout(mixer(x, sequences)), sequences)

    def extra_repr(self) -> str:
        return f"norm_position={self.norm_position}"


class TNNBlock(Block):
    """x + GTU(norm(x)), then x + GLU(norm(x)); or norm(x + GTU(x)), norm(x + GLU(x)) with norm_position="post".

    `structure`: "gtu+glu" (the paper's block), and its two ablations "gtu" and "attention+glu" (`num_heads` is used
    there only). `norm`: "simple_rms", "layer", "rms", "scale" or "batch". `inner_norm` puts a second norm and a second
    skip around the token mixer, as the paper's Long-Range Arena models have. The other `options` (causal, decay,
    rpe_size, dims, ...) are those of GatedToeplitzUnit and ToeplitzOperator.

    >>> import torch
    >>> from tnn.layers import TNNBlock, count_parameters
    >>> block = TNNBlock(512, causal=True)                       # one block of the paper's language model
    >>> block(torch.randn(1, 20, 512)).shape
    torch.Size([1, 20, 512])
    >>> count_parameters(block)
    ParameterCount(trained=3275776, fixed_decay=1536)
    """

    def __init__(
        self,
        hidden_size: int = 512,
        *,
        structure: str = "gtu+glu",
        gtu_expansion: float = 3,
        glu_expansion: float = 1,
        num_heads: int = 1,
        hidden_act: str = "silu",
        norm: str = "simple_rms",
        norm_position: str = "pre",
        inner_norm: str | None = None,
        dropout: float = 0.0,
        **options: Any,
    ):
        check_choice("structure", structure, STRUCTURES)
        inner_size("gtu_expansion", hidden_size, gtu_expansion)
        inner_size("glu_expansion", hidden_size, glu_expansion)
        token_mixer: nn.Module
        if structure == "attention+glu":
            token_mixer = SelfAttention(hidden_size, num_heads, **options)
        else:
            token_mixer = GatedToeplitzUnit(hidden_size, gtu_expansion, hidden_act=hidden_act, **options)
        if inner_norm is not None:
            token_mixer = InnerResidual(make_norm(inner_norm, hidden_size), token_mixer)
        channel_mixer = (
            None if structure == "gtu" else GatedLinearUnit(hidden_size, glu_expansion, hidden_act=hidden_act)
        )
        super().__init__(
            hidden_size, token_mixer, channel_mixer, norm=norm, norm_position=norm_position, dropout=dropout
        )
        self.structure = structure

    @property
    def operator(self) -> Any:
        """The Toeplitz operator that mixes the tokens, if that is what does."""
        mixer = self.token_mixer.mixer if isinstance(self.token_mixer, InnerResidual) else self.token_mixer
        return mixer.operator if isinstance(mixer, GatedToeplitzUnit) else None

    @property
    def stateful(self) -> Any:
        """What has a state from which a sequence can go on; None if its outputs change as tokens are added."""
        operator = self.operator
        lasting = isinstance(operator, ToeplitzOperator) and operator.causal and not operator.depends_on_length
        return operator if lasting else None

    def extra_repr(self) -> str:
        return f"structure={self.structure}, norm_position={self.norm_position}"


class InnerResidual(nn.Module):
    """x + mixer(norm(x)), inside the residual of a block."""

    def __init__(self, norm: nn.Module, mixer: nn.Module):
        super().__init__()
        self.norm = norm
        self.mixer = mixer

    def forward(self, x: Tensor, mask: Mask = None, **state: State) -> Tensor:
        x, sequences = enter(x, mask)
        return x + self.mixer(self.norm(x, sequences), sequences, **state)
