"""The cache of a causal model: one state per layer, behind the interface that transformers' generate() uses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from transformers.cache_utils import Cache, CacheLayerMixin

from tnn.streaming import State


class TNNCacheLayer(CacheLayerMixin):
    """The state of one layer."""

    supports_early_init = False

    def __init__(self, state: State):
        super().__init__()
        self.state = state

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
    """What a causal model remembers of the tokens it has seen: tensors and numbers, without the model.

    It can be copied, pickled, and continued in another process with the same model. As a pytree, its leaves are tensors
    alone, so it can go into and come out of an exported graph.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2)).eval()
    >>> with torch.no_grad():
    ...     cache = model(torch.tensor([[5, 6, 7]])).past_key_values
    ...     logits = model(torch.tensor([[8]]), past_key_values=cache).logits   # of token 8, after 5, 6, 7
    >>> cache.get_seq_length()
    4
    """

    def __init__(self, states: list[State]):
        super().__init__(layers=[TNNCacheLayer(state) for state in states])

    @property
    def states(self) -> list[State]:
        """The state of each layer."""
        return [layer.state for layer in self.layers]

    def join(self, others: Sequence[TNNCache]) -> None:
        """Append the rows of other caches of the same model, whatever each has seen. The others stay as they are.

        Afterwards rows have different ages: give the model `position_ids` if it has position embeddings. All of the
        caches must have seen something, if it was only padding. ValueError if a layer has a state that needs rows of
        one age.
        """
        for state, *more in zip(self.states, *(other.states for other in others), strict=True):
            state.join(more)

    def rows(self, rows: Tensor) -> TNNCache:
        """A cache of these rows, in this order; this one stays as it is."""
        return TNNCache([state.rows(rows) for state in self.states])

    def unpad(self, length: int) -> None:
        """Keep the newest `length` inputs: whatever came before them was padding, in every row."""
        for state in self.states:
            state.unpad(length)

    @property
    def nbytes(self) -> int:
        """The memory of all tensors in it."""
        return sum(state.nbytes for state in self.states)

    def states_of(self, owners: list[Any]) -> list[State]:
        """The same, checked to belong to these owners: one mixer or operator per layer.

        States that come from a file, another process or a graph have no owner yet, and get theirs here.
        """
        states = self.states
        if len(states) != len(owners) or not all(s.fits(o) for s, o in zip(states, owners, strict=True)):
            raise ValueError("past_key_values belongs to another model; use a cache that this model has returned")
        for state, owner in zip(states, owners, strict=True):
            state.owner = owner
        return states


# --- as a pytree of tensors


def _named_values(cache: TNNCache) -> Iterator[tuple[str, Any]]:
    """Numbers become tensors, so that a graph is not made for one number of tokens alone."""
    for i, state in enumerate(cache.states):
        for path, value in pytree.tree_flatten_with_path(state.content())[0]:
            if isinstance(value, int | torch.SymInt):
                value = torch.scalar_tensor(value, dtype=torch.int64)  # type: ignore[arg-type]
            yield "_".join(["layer", str(i), *map(_key, path)]), value


def _key(entry: Any) -> str:
    """Of a dictionary or a named tuple."""
    return str(entry.key if isinstance(entry, pytree.MappingKey) else entry.name).strip("_")


def _flatten(cache: TNNCache) -> tuple[list[Any], list[Any]]:
    context = [(type(s), s.made_for, pytree.tree_structure(s.content())) for s in cache.states]
    return [value for _, value in _named_values(cache)], context


def _flatten_with_keys(cache: TNNCache) -> tuple[list[Any], list[Any]]:
    return [(pytree.MappingKey(name), value) for name, value in _named_values(cache)], _flatten(cache)[1]


def _unflatten(values: Iterable[Any], context: list[Any]) -> TNNCache:
    rest, states = iter(values), []
    for kind, made_for, spec in context:
        own = [_as_number(next(rest)) for _ in range(spec.num_leaves)]
        states.append(kind.from_content(pytree.tree_unflatten(own, spec), made_for))
    return TNNCache(states)


def _as_number(value: Any) -> Any:
    """Tensors without axes are numbers, except in a graph, which knows them later."""
    known = type(value) is Tensor and value.ndim == 0 and not torch.compiler.is_compiling()
    return int(value) if known else value


def _to_json(context: list[Any]) -> str:
    return json.dumps([[kind.__qualname__, made_for, pytree.treespec_dumps(spec)] for kind, made_for, spec in context])


def _from_json(text: str) -> list[Any]:
    """A file names a kind of state among those that have been imported; it cannot have anything imported."""
    known = {kind.__qualname__: kind for kind in _kinds(State)}
    return [(known[name], made_for, pytree.treespec_loads(spec)) for name, made_for, spec in json.loads(text)]


def _kinds(kind: type[State]) -> Iterator[type[State]]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _kinds(derived)


pytree.register_pytree_node(
    TNNCache,
    _flatten,
    _unflatten,
    serialized_type_name="tnn.TNNCache",
    to_dumpable_context=_to_json,
    from_dumpable_context=_from_json,
    flatten_with_keys_fn=_flatten_with_keys,
)

torch.serialization.add_safe_globals([TNNCache, TNNCacheLayer])
