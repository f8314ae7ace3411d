"""The memory that a text of any length takes while it is written."""

from typing import Any, NamedTuple

import torch

from tnn.mixers.linear_attention import RunningSums
from tnn.streaming import History, Recurrence
from tnn.streaming.history import SPARE


class StateSize(NamedTuple):
    """`nbytes` of the state of a text, at most; or per token of it, if it `grows` with the text."""

    nbytes: int
    grows: bool


@torch.inference_mode()
def state_size(model: Any) -> StateSize:
    """From what each layer keeps: sums of constant size, inputs up to its reach, or all inputs.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.serving.state_size import state_size
    >>> config = TNNConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, decay=0.9)
    >>> state_size(TNNForCausalLM(config).eval())
    StateSize(nbytes=39168, grows=False)
    """
    sizes = []
    for length in (64, 128):  # whole blocks
        cache = model.model.new_cache()
        ids = torch.zeros(1, length, dtype=torch.long, device=model.device)
        model.model(ids, past_key_values=cache)
        model.model(ids[:, :1], past_key_values=cache)
        sizes.append(cache.nbytes)
    states = cache.states
    if any(not isinstance(s, Recurrence | RunningSums) and getattr(s.owner, "reach", None) is None for s in states):
        return StateSize((sizes[1] - sizes[0]) // 64, grows=True)
    more = 0
    for state in states:
        if isinstance(state, History) and (reach := state.owner.reach) is not None:
            past = state.content()["_past"]  # (1, 129 or fewer, channels)
            more += max(0, reach - 1 + SPARE - 128) * past.shape[2] * past.element_size()
    return StateSize(sizes[1] + more, grows=False)
