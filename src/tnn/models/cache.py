"""The cache of a causal model: one state per layer, behind the interface that transformers' generate() uses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from tnn.streaming import State, new_state


class TNNCacheLayer(CacheLayerMixin):
    """The state of one layer."""

    supports_early_init = False

    def __init__(self, owner: Any):
        super().__init__()
        self.state: State = new_state(owner)

    @property
    def is_croppable(self) -> bool:
        return self.state.croppable

    @property
    def batch_size(self) -> int:
        if self.state.batch_size is None:
            raise AttributeError("no batch yet")  # generate() asks whether there is one
        return self.state.batch_size

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise NotImplementedError("a TNN has no keys and values: its layers call the state")

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("a TNN has no keys and values: its layers call the state")

    def get_seq_length(self) -> int:
        return self.state.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.state.seen + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.state.reset()

    def crop(self, tokens_to_remove: int) -> None:
        """`tokens_to_remove` is negative, as transformers wants it."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes a negative number: how many tokens to remove; got {tokens_to_remove}")
        if tokens_to_remove < 0:
            self.state.crop(-tokens_to_remove)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.state.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.state.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.state.batch_size is not None:
            self.state.select(torch.arange(self.state.batch_size).repeat_interleave(repeats))

    def offload(self) -> None:
        """The state is small: it stays on its device."""

    def prefetch(self) -> None:
        """Nothing to do: it was not moved."""


class TNNCache(Cache):
    """What a causal model remembers of the tokens it has seen.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2)).eval()
    >>> with torch.no_grad():
    ...     cache = model(torch.tensor([[5, 6, 7]]), use_cache=True).past_key_values
    ...     logits = model(torch.tensor([[8]]), past_key_values=cache).logits   # of token 8, after 5, 6, 7
    >>> cache.get_seq_length()
    4
    """

    def __init__(self, owners: list[Any]):
        super().__init__(layers=[TNNCacheLayer(owner) for owner in owners])

    def states_of(self, owners: list[Any]) -> list[State]:
        """The state of each layer, checked to belong to these owners: one mixer or operator per layer."""
        states = [layer.state for layer in self.layers]
        if len(states) != len(owners) or any(s.owner is not o for s, o in zip(states, owners, strict=True)):
            raise ValueError("past_key_values belongs to another model; use a cache that this model has returned")
        return states
