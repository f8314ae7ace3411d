"""The decoding speed of a causal model on this machine."""

from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tnn._checks import LARGEST, check_positive
from tnn._machine import physical_memory


class Speed(NamedTuple):
    """Tokens per second of one decoder after a context."""

    decoder: str
    context: int  # tokens before the measured ones
    tokens_per_second: float


def decoding_speed(model: Any, contexts: list[int], new_tokens: int = 64, state_space: Any = None) -> list[Speed]:
    """The speed of each decoder at each context, from the median time per token.

    Args:
        model: a TNNForCausalLM in evaluation mode. Without a cache it has no exact decoder.
        contexts: numbers of tokens before the measured ones.
        new_tokens: how many tokens are measured. Recomputing is measured at most three times.
        state_space: the model after its conversion to a state space, if there is one.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.training.speed import decoding_speed
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, decay=0.9)).eval()
    >>> [speed.decoder for speed in decoding_speed(model, [16], new_tokens=3)]
    ['exact', 'recompute']
    """
    check_positive("new_tokens", new_tokens)
    for context in contexts:
        check_positive("contexts", context, at_most=_most_tokens(model.config))
    exact = model if model.model.can_cache else None
    models = {"exact": exact, "state-space": state_space, "recompute": model}
    if model.config.coefficients == "poles":
        models = {"state-space": model, "recompute": model}
    speeds = []
    for context in contexts:
        ids = torch.randint(0, model.config.vocab_size, (1, context), generator=torch.Generator().manual_seed(0))
        for decoder, network in models.items():
            if network is not None:
                measure = _recompute if decoder == "recompute" else _step
                seconds = measure(network, ids.to(model.device), new_tokens)
                speeds.append(Speed(decoder, context, 1 / median(seconds)))
    return speeds


def _most_tokens(config: Any) -> int:
    """As many as have their hidden states of a layer in memory, and a few copies of them."""
    return min(LARGEST, (physical_memory() or LARGEST) // (16 * config.hidden_size))


@torch.inference_mode()
def _step(model: Any, ids: Tensor, new_tokens: int) -> list[float]:
    """Seconds per new token, after the context has been read."""
    cache = model(ids, use_cache=True).past_key_values
    times, token = [], ids[:, -1:]
    for _ in range(new_tokens):
        start = _now(model.device)
        token = model(token, past_key_values=cache).logits[:, -1].argmax(-1, keepdim=True)
        times.append(_now(model.device) - start)
    return times


@torch.inference_mode()
def _recompute(model: Any, ids: Tensor, new_tokens: int) -> list[float]:
    """Seconds of passes over the context: each new token takes one."""
    times = []
    for _ in range(min(3, new_tokens)):
        start = _now(model.device)
        model(ids, use_cache=False, logits_to_keep=1)
        times.append(_now(model.device) - start)
    return times


def _now(device: torch.device) -> float:
    """The time when the device has finished its work: a GPU continues after a call has returned."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return perf_counter()


def to_table(speeds: list[Speed]) -> str:
    """One row per context, one column per decoder.

    >>> from tnn.training.speed import Speed, to_table
    >>> print(to_table([Speed("exact", 512, 123.4), Speed("recompute", 512, 5.67)]))
    context  exact  recompute
        512  123.4        5.7
    """
    names = list(dict.fromkeys(speed.decoder for speed in speeds))
    rows = {context: {} for context in dict.fromkeys(speed.context for speed in speeds)}  # type: dict[int, dict[str, float]]
    for speed in speeds:
        rows[speed.context][speed.decoder] = speed.tokens_per_second
    lines = ["context  " + "  ".join(names)]
    for context, values in rows.items():
        cells = (f"{values[name]:{len(name)}.1f}" for name in names)
        lines.append(f"{context:7,}  " + "  ".join(cells))
    return "\n".join(lines)
