"""What all token mixers of the comparison share: how they meet padding, and parts of a sequence."""

from typing import Any, Self

from torch import Tensor, nn

from tnn._checks import check_positive, check_sequence
from tnn.layers.sequences import Mask, Sequences, State, enter


class Mixer(nn.Module):
    """A map of whole sequences, written in `mix`; what is padded or packed is mixed as if each sequence were alone.

    `faithful` gives the published port of a method with its defects; one that all of them but softmax attention share
    is to take padding for tokens.
    """

    bare = False  # stands in its block without a norm and a residual
    remembers = False  # something of one call in the next one
    ignores_mask = False

    def __init__(self, hidden_size: int, *, causal: bool = False, faithful: bool = False):
        super().__init__()
        check_positive("hidden_size", hidden_size)
        self.hidden_size = hidden_size
        self.causal = causal
        self.faithful = faithful
        self.ignores_mask = faithful

    @property
    def stateful(self) -> Any:
        """What has a state from which a sequence can go on: a mixer with `new_state`, or an operator; None: nothing."""
        return None

    def new_state(self) -> Any:
        """An empty state, where `stateful` is the mixer itself."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Mask = None, state: State | None = None) -> Tensor:
        """x (..., n, hidden_size), mask (..., n) true at real positions -> (..., n, hidden_size)."""
        check_sequence("x", x, self.hidden_size)
        x, sequences = enter(x, mask)
        if state is not None:
            return self.go_on(x, sequences, state)
        if x.numel() == 0:
            return x
        if sequences is None or self.ignores_mask:
            return self.mix(x)
        return self.mix_masked(x, sequences)

    def mix(self, x: Tensor) -> Tensor:
        """x (..., n, hidden_size), all of them real."""
        raise NotImplementedError

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        """The same for each sequence alone: all of a length at once. A method that can mask overrides it."""
        return sequences.apply(self.mix, x, needs_length=True)

    def go_on(self, x: Tensor, sequences: Sequences | None, state: State) -> Tensor:
        """The outputs of x, the next part of a sequence, of which `state` remembers the rest."""
        return state(x, sequences)

    def unused_parameters(self) -> list[nn.Parameter]:
        """What a published port has without using it, and its tables count."""
        return []

    def train(self, mode: bool = True) -> Self:
        """Freezes what is unused again, for transformers makes all that it loads trainable.

        Training on several devices waits for the gradient of whatever is.
        """
        for parameter in self.unused_parameters():
            parameter.requires_grad_(False)
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"causal={self.causal}" + (", faithful" if self.faithful else "")


class XavierLinear(nn.Linear):
    """A dense layer that starts uniform by the sum of its sides; its bias as torch's, or 0."""

    def __init__(self, in_features: int, out_features: int, *, gain: float = 1.0, zero_bias: bool = False):
        self.gain, self.zero_bias = gain, zero_bias  # before the constructor of Linear, which draws the weights
        super().__init__(in_features, out_features)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.xavier_uniform_(self.weight, gain=self.gain)
        if self.zero_bias:
            nn.init.zeros_(self.bias)
