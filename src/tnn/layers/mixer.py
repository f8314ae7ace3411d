"""The base class of all token mixers: how they treat padding, packed documents and sequences that arrive in parts."""

from __future__ import annotations

from inspect import signature
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from tnn._checks import check_positive, check_sequence
from tnn.layers.sequences import Mask, Sequences, resolve_mask
from tnn.layers.state import State


class Mixer(nn.Module):
    """Maps sequences to sequences; a subclass writes `mix`. Padded and packed sequences are mixed one by one.

    A subclass takes `hidden_size`, `causal` and its own options as keyword arguments. To generate with a cache, a
    causal mixer also needs a state: it overrides `state_owner` and `new_state`. Register a mixer of your own with
    `tnn.mixers.register_mixer`, and it works in every model, recipe and table.

    `as_published` selects the published implementation of a method with its defects; a defect that all of them but
    softmax attention share is that they treat padding as tokens.

    >>> import torch
    >>> from tnn.mixers import Mixer
    >>> class Mean(Mixer):
    ...     def mix(self, x):
    ...         return x.mean(-2, keepdim=True).expand_as(x)
    >>> mask = torch.tensor([[1, 1, 0]])                                 # the padding does not change the mean
    >>> Mean(2)(torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]]), mask)[0, 0]
    tensor([2., 3.])
    """

    has_causal_form: ClassVar[bool] = True
    takes_grids: ClassVar[bool] = False  # accepts `dims=2`: x (..., height, width, hidden_size)
    owns_residual = False  # stands in its block without a norm and a residual connection
    keeps_memory = False  # keeps inputs of one call for the next one, besides a state
    ignores_mask = False

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False):
        super().__init__()
        self._check_form(hidden_size, causal)
        self.hidden_size = hidden_size
        self.causal = causal
        self.as_published = as_published
        self.ignores_mask = as_published

    @classmethod
    def check_options(cls, hidden_size: int, *args: Any, **options: Any) -> None:
        """Check the values of the constructor's arguments without building anything; raises what it would raise.

        A subclass checks its own options and passes the others to `super().check_options`.
        """
        cls._check_form(hidden_size, options.get("causal", False))

    @classmethod
    def _check_form(cls, hidden_size: int, causal: bool) -> None:
        check_positive("hidden_size", hidden_size)
        if causal and not cls.has_causal_form:
            raise ValueError(f"{cls.__name__} is bidirectional only; got causal=True")

    @classmethod
    def option_names(cls) -> list[str]:
        """The options of the constructor, besides `hidden_size` and `causal`."""
        return [name for name in signature(cls).parameters if name not in ("hidden_size", "causal")]

    @classmethod
    def config_options(cls, config: Any, layer: int) -> dict[str, Any]:
        """The options that a model's configuration has fields for; its `mixer_options` are added to them."""
        if "num_heads" not in cls.option_names():
            return {}
        check_heads("num_attention_heads", config.hidden_size, config.num_attention_heads)
        return {"num_heads": config.num_attention_heads}

    @property
    def state_owner(self) -> Any:
        """The module that has a state for sequences in parts: this mixer, or an operator in it; None: nothing has."""
        return None

    @property
    def state_owners(self) -> list[Any]:
        """All modules with a state. If there are several, `forward` takes a tuple of their states, in this order."""
        return [self.state_owner]

    def new_state(self) -> State:
        """An empty state, if `state_owner` is this mixer."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Mask = None, state: State | None = None) -> Tensor:
        """x (..., n, hidden_size), mask (..., n) true at real positions -> (..., n, hidden_size).

        With a `state`, x is the next part of a sequence.
        """
        check_sequence("x", x, self.hidden_size)
        x, sequences = resolve_mask(x, mask)
        if state is not None:
            return self.forward_from_state(x, sequences, state)
        if x.numel() == 0:
            return x
        if sequences is None or self.ignores_mask:
            return self.mix(x)
        return self.mix_masked(x, sequences)

    def mix(self, x: Tensor) -> Tensor:
        """x (..., n, hidden_size), without padding."""
        raise NotImplementedError

    def mix_masked(self, x: Tensor, sequences: Sequences) -> Tensor:
        """Each sequence alone, sequences of equal length together. A mixer that can apply a mask overrides it."""
        return sequences.apply(self.mix, x, needs_length=True)

    def forward_from_state(self, x: Tensor, sequences: Sequences | None, state: State) -> Tensor:
        """The outputs of x, the next part of a sequence whose earlier parts `state` has seen."""
        return state(x, None if self.ignores_mask else sequences)

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        """Parameters (by name inside this mixer) with their own "weight_decay" or "learning_rate" in training."""
        return {}

    def unused_parameters(self) -> list[nn.Parameter]:
        """Parameters that a published implementation has, and its tables count, without using them."""
        return []

    def train(self, mode: bool = True) -> Self:
        """Also freezes the unused parameters again: transformers makes every loaded parameter trainable, and training
        on several devices waits for the gradient of each.
        """
        for parameter in self.unused_parameters():
            parameter.requires_grad_(False)
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, causal={self.causal}" + (", as_published" if self.as_published else "")


def check_heads(name: str, hidden_size: int, num_heads: int) -> None:
    check_positive("hidden_size", hidden_size)
    check_positive(name, num_heads)
    if hidden_size % num_heads:
        raise ValueError(f"{name} must divide hidden_size {hidden_size}; got {num_heads}")
