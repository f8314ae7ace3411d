"""Texts of any length through a model, a chunk at a time: memory does not grow, outputs are those of one pass.

A causal model carries its cache from chunk to chunk. A bidirectional one runs each chunk with the tokens around it that
can reach it, and drops what it computes for them.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_positive
from tnn._precision import compute_dtype
from tnn.layers import ToeplitzOperator
from tnn.mixers.convolution import ConvolutionOperator
from tnn.models.backbone import TNNModel
from tnn.models.cache import TNNCache
from tnn.models.heads import (
    TNNForCausalLM,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    TNNForTokenClassification,
)
from tnn.models.loss import CHUNK_ELEMENTS
from tnn.models.memory import SteadyMemory

OPERATORS = (ToeplitzOperator, ConvolutionOperator)  # along one axis
Ids = Tensor | Iterable[Tensor]


class StreamedLoss(NamedTuple):
    """Mean cross-entropy, in nats per token, over the `tokens` that were predicted."""

    loss: float
    tokens: int


def iterate_logits(model: Any, ids: Ids, chunk: int = 4096, *, halo: int | None = None) -> Iterator[Tensor]:
    """Logits (1, n, vocabulary), one chunk of tokens after the other; equal to those of one pass over the text.

    `ids` (length,) is the text, or an iterable of such tensors: a text that is read as it goes. Memory is that of one
    chunk and of the lags that a layer reaches back, or of all tokens in a causal layer that has no reach.

    `halo`, for bidirectional models: how many tokens on each side of a chunk are run with it. By default as many as can
    change an output, the sum over the layers of reach - 1, which makes it exact; fewer are cheaper and approximate.
    Chunks should be longer than that, or most of the work is for the halo.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.models.chunks import iterate_logits
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2)).eval()
    >>> [tuple(logits.shape) for logits in iterate_logits(model, torch.arange(100), chunk=64)]
    [(1, 64, 100), (1, 36, 100)]
    """
    head = _token_head(model)
    return _apply(head, iterate_hidden_states(model, ids, chunk, halo=halo))


def iterate_hidden_states(model: Any, ids: Ids, chunk: int = 4096, *, halo: int | None = None) -> Iterator[Tensor]:
    """The same of the last hidden states (1, n, hidden_size), for any text model, with or without a head.

    >>> import torch
    >>> from tnn import TNNConfig, TNNModel
    >>> from tnn.models.chunks import iterate_hidden_states
    >>> model = TNNModel(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, is_decoder=False)).eval()
    >>> [tuple(x.shape) for x in iterate_hidden_states(model, torch.arange(100), chunk=64)]
    [(1, 64, 16), (1, 36, 16)]
    """
    backbone = _checked_backbone(model)
    check_positive("chunk", chunk)
    if backbone.config.is_decoder:
        if halo is not None:
            raise ValueError(f"halo is for bidirectional models: a causal one carries its past along; got {halo}")
        return _carry(backbone, ids, chunk)
    if halo is None:
        halo = _exact_halo(backbone)
    elif halo < 0:
        raise ValueError(f"halo must be 0 or more; got {halo}")
    return _overlap(backbone, ids, chunk, halo)


def stream_loss(model: Any, ids: Ids, chunk: int = 4096) -> StreamedLoss:
    """Next-token cross-entropy over a whole text, each token but the first predicted from all before it.

    It does not depend on the chunks: the context continues across them. `ids` as in `iterate_logits`.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.models.chunks import stream_loss
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2)).eval()
    >>> stream_loss(model, torch.arange(100), chunk=64).tokens
    99
    """
    check_positive("chunk", chunk)
    cache = _checked_backbone(_checked_causal(model)).new_cache()
    return _mean_loss(model, _windows(ids, chunk, after=1), cache)


def stream_class_logits(model: Any, ids: Ids, chunk: int = 4096, *, halo: int | None = None) -> Tensor:
    """Logits (1, num_labels) of a classifier of sequences, for a text of any length; equal to those of one pass.

    The hidden states of a chunk are pooled and dropped. Arguments as in `iterate_logits`; the special tokens that the
    tokenizer puts around a text belong to `ids`.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForSequenceClassification
    >>> from tnn.models.chunks import stream_class_logits
    >>> config = TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, is_decoder=False, num_labels=3)
    >>> stream_class_logits(TNNForSequenceClassification(config).eval(), torch.arange(100), chunk=64).shape
    torch.Size([1, 3])
    """
    if not isinstance(model, TNNForSequenceClassification):
        raise TypeError(f"model must be a TNNForSequenceClassification; got {type(model).__name__}")
    pooled = _pool(iterate_hidden_states(model, ids, chunk, halo=halo), model.config.pooling)
    with torch.no_grad():
        logits: Tensor = model.classifier(pooled)
    return logits


@torch.no_grad()
def _pool(states: Iterator[Tensor], how: str) -> Tensor:
    """`tnn.models.classification.pool` of (1, n, d) that come in parts: (1, d). The sum is in float64."""
    hidden = next(states, None)
    if hidden is None:
        raise ValueError("a text must have at least 1 token; got an empty one")
    if how == "first":
        return hidden[:, 0]
    total, count = hidden.sum(1, dtype=torch.float64), hidden.shape[1]
    for hidden in states:
        if how == "mean":
            total += hidden.sum(1, dtype=torch.float64)
            count += hidden.shape[1]
    return hidden[:, -1] if how == "last" else (total / count).to(hidden.dtype)


@torch.no_grad()
def _carry(backbone: TNNModel, ids: Ids, chunk: int) -> Iterator[Tensor]:
    cache, memory = backbone.new_cache(), SteadyMemory()
    for _, tokens in _windows(ids, chunk):
        yield backbone(tokens.to(backbone.device)[None], past_key_values=cache).last_hidden_state
        memory.check()


@torch.no_grad()
def _overlap(backbone: TNNModel, ids: Ids, chunk: int, halo: int) -> Iterator[Tensor]:
    memory = SteadyMemory()
    for first, tokens in _windows(ids, chunk, before=halo, after=halo):
        left = min(first, halo)
        positions = torch.arange(first - left, first - left + len(tokens), device=backbone.device)
        hidden = backbone(tokens.to(backbone.device)[None], position_ids=positions[None]).last_hidden_state
        yield hidden[:, left : left + chunk]
        memory.check()


@torch.no_grad()
def _apply(head: Callable[[Tensor], Tensor], states: Iterator[Tensor]) -> Iterator[Tensor]:
    for hidden in states:
        yield head(hidden)


@torch.no_grad()
def _mean_loss(model: TNNForCausalLM, windows: Iterator[tuple[int, Tensor]], cache: TNNCache) -> StreamedLoss:
    """Each token of a window but its first is predicted from those before it, and from the cache."""
    total, predicted = 0.0, 0
    memory = SteadyMemory()
    for _, tokens in windows:
        if len(tokens) < 2:
            continue
        tokens = tokens.to(model.device)
        outputs = model.model(tokens[None, :-1], past_key_values=cache)
        total += _summed_loss(model, outputs.last_hidden_state[0], tokens[1:])
        predicted += len(tokens) - 1
        memory.check()
    if not predicted:
        raise ValueError("a text must have at least 2 tokens: each but the first is predicted")
    return StreamedLoss(total / predicted, predicted)


def _summed_loss(model: TNNForCausalLM, hidden: Tensor, targets: Tensor) -> float:
    """In float64, from the logits of a few rows at a time: with a large vocabulary they outweigh all else."""
    rows = max(1, CHUNK_ELEMENTS // model.config.vocab_size)
    total = 0.0
    for x, target in zip(hidden.split(rows), targets.split(rows), strict=True):
        losses = F.cross_entropy(model.token_logits(x).to(compute_dtype(x)), target, reduction="none")
        total += losses.sum(dtype=torch.float64).item()
    return total


def _windows(ids: Ids, step: int, before: int = 0, after: int = 0) -> Iterator[tuple[int, Tensor]]:
    """(first, tokens first - before .. first + step + after - 1), cut at the ends of the text; first = 0, step, ..."""
    pieces = _pieces(ids)
    held, start = torch.empty(0, dtype=torch.long), 0  # tokens from `start` on
    for first in count(0, step):
        wanted = max(0, first - before)
        held, start = held[wanted - start :], wanted
        end = first + step + after - start
        held = _read_until(end, held, pieces)
        if start + len(held) <= first:
            return
        yield first, held[:end]


def _read_until(size: int, held: Tensor, pieces: Iterator[Tensor]) -> Tensor:
    """What is held, with as many pieces behind it as make it that long."""
    parts, length = [held] if len(held) else [], len(held)
    while length < size and (piece := next(pieces, None)) is not None:
        parts.append(piece)
        length += len(piece)
    if len(parts) > 1:
        return torch.cat(parts)
    return parts[0] if parts else held  # a copy for each piece, not for each chunk


def _pieces(ids: Ids) -> Iterator[Tensor]:
    for piece in [ids] if isinstance(ids, Tensor) else ids:
        if not isinstance(piece, Tensor):
            raise TypeError(f"ids must be a tensor (length,) or an iterable of them; got {type(piece).__name__} in it")
        if piece.ndim != 1 or piece.is_floating_point():
            raise ValueError(f"ids must be integers of shape (length,); got {piece.dtype} of {tuple(piece.shape)}")
        yield piece.long()


def _checked_backbone(model: Any) -> TNNModel:
    backbone = model if isinstance(model, TNNModel) else getattr(model, "model", None)
    if not isinstance(backbone, TNNModel):
        raise TypeError(f"model must be one of the text models; got {type(model).__name__}")
    _check_evaluation(backbone)
    _check_layers(backbone)
    return backbone


def _check_layers(backbone: TNNModel) -> None:
    """A causal model carries its states from chunk to chunk; a bidirectional one must know its reach."""
    layers: Any = backbone.layers
    for name, layer in zip(backbone.config.layer_mixers, layers, strict=True):
        operator = layer.operator
        reaches = operator is not None and not operator.depends_on_length
        if not (None not in layer.state_owners if backbone.config.is_decoder else reaches):
            raise ValueError(f"mixer {name!r} cannot run in chunks: {_why(operator)}")


def _why(operator: Any) -> str:
    if operator is None or not operator.depends_on_length:
        return "it needs the whole text"
    return 'its coefficients depend on the whole length (with "tnn": rpe_input="normalized")'


def _checked_causal(model: Any) -> TNNForCausalLM:
    if not isinstance(model, TNNForCausalLM):
        raise TypeError(f"model must be a TNNForCausalLM, which predicts the next token; got {type(model).__name__}")
    _check_evaluation(model)
    return model


def _check_evaluation(model: TNNModel | TNNForCausalLM) -> None:
    if model.training:
        raise ValueError("model must be in evaluation mode, in which norms know one position only: call model.eval()")


def _token_head(model: Any) -> Callable[[Tensor], Tensor]:
    if isinstance(model, TNNForCausalLM | TNNForMaskedLM):
        return model.token_logits
    if isinstance(model, TNNForTokenClassification):
        return model.classifier
    raise TypeError(f"model must give logits for each token; got {type(model).__name__}")


def _exact_halo(backbone: TNNModel) -> int:
    """Over the operators and the short convolutions of all layers."""
    halo = 0
    for number, layer in enumerate(backbone.layers):
        for reach in [part.reach for part in layer.modules() if isinstance(part, OPERATORS)]:
            if reach is None:
                raise ValueError(
                    f"layer {number} has no bound on its lags, so no halo is exact: "
                    "use decay below 1 or max_lags, or give a halo to be approximate"
                )
            halo += reach - 1
    return halo
