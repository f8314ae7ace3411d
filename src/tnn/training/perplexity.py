"""Perplexity of language models: in blocks (the protocol of the paper), in one stream, or at masked tokens.

In blocks and in a stream every token of a text is predicted exactly once. So the same sum of losses gives the
perplexity per token, per word and per byte.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from tnn import models
from tnn._checks import check_positive
from tnn._precision import compute_dtype
from tnn.data.blocks import CausalBlocks, MaskedBlocks, collate
from tnn.models.loss import CHUNK_ELEMENTS, IGNORED

if TYPE_CHECKING:
    from tnn.data.tokens import Tokens

PIECE = 2**16  # tokens of a stream that are read from disk at once


@dataclass(frozen=True)
class Perplexity:
    """The mean loss, in nats per token, over `tokens` predictions in blocks of `length` (None: one stream).

    `words` and `bytes` are those of the predicted text. They are None if they are not known, for instance when only a
    part of a text was read. So are the properties that need them.

    >>> from math import log
    >>> from tnn.training.perplexity import Perplexity
    >>> perplexity = Perplexity(length=512, loss=log(20), tokens=100, words=50, bytes=400)
    >>> round(perplexity.per_token, 6), round(perplexity.per_word, 6), round(perplexity.bits_per_byte, 6)
    (20.0, 400.0, 1.080482)
    """

    length: int | None
    loss: float
    tokens: int
    words: int | None = None
    bytes: int | None = None

    @property
    def per_token(self) -> float:
        return from_loss(self.loss)

    @property
    def per_word(self) -> float | None:
        return from_loss(self.loss * self.tokens / self.words) if self.words else None

    @property
    def per_byte(self) -> float | None:
        return from_loss(self.loss * self.tokens / self.bytes) if self.bytes else None

    @property
    def bits_per_byte(self) -> float | None:
        return self.loss * self.tokens / self.bytes / math.log(2) if self.bytes else None

    def to_text(self) -> str:
        """All that is known, one number per line.

        >>> from tnn.training.perplexity import Perplexity
        >>> print(Perplexity(length=512, loss=0.5, tokens=4000, bytes=4000).to_text())
        tokens         4,000 predicted
        loss           0.5000 nats per token
        perplexity     1.6487 per token
                       1.6487 per byte
        bits per byte  0.7213
        """
        lines = [("tokens", f"{self.tokens:,} predicted"), ("loss", f"{self.loss:.4f} nats per token")]
        lines.append(("perplexity", f"{format_ppl(self.per_token)} per token"))
        if self.per_word is not None:
            lines.append(("", f"{format_ppl(self.per_word)} per word"))
        if self.per_byte is not None:
            lines += [("", f"{format_ppl(self.per_byte)} per byte"), ("bits per byte", f"{self.bits_per_byte:.4f}")]
        return "\n".join(f"{name:13}  {value}" for name, value in lines)


def format_ppl(perplexity: float, digits: int = 4) -> str:
    """With a fixed number of digits, or with an exponent from a million on.

    >>> from tnn.training.perplexity import format_ppl
    >>> format_ppl(24.67), format_ppl(1.34e9, 2)
    ('24.6700', '1.34e+09')
    """
    return f"{perplexity:.{digits}{'f' if perplexity < 1e6 else 'e'}}"


def from_loss(loss: float) -> float:
    """exp(loss), or infinity if that is too large for a float.

    >>> from tnn.training.perplexity import from_loss
    >>> from_loss(0.0), from_loss(1000.0)
    (1.0, inf)
    """
    return math.exp(loss) if not loss > 700 else math.inf


def block_perplexity(
    model: Any,
    tokens: "Tokens",
    length: int,
    eos: int,
    *,
    batch_tokens: int = 16_384,
    max_tokens: int | None = None,
) -> Perplexity:
    """The paper's protocol: consecutive blocks of `length` tokens, each evaluated by itself.

    The first token of a block is predicted from the last token of the block before, that of the text from `eos`.

    Args:
        model: any causal language model of transformers, in evaluation mode.
        tokens: the text.
        length: tokens per block.
        eos: the token that stands before the text.
        batch_tokens: how many tokens are computed at once, but at least one block; fewer if the memory of the device is
            too small. The result does not depend on it.
        max_tokens: read only the beginning of the text.

    >>> from tnn.training.perplexity import block_perplexity
    >>> print(block_perplexity(model, tokens, length=512, eos=2).to_text())  # doctest: +SKIP
    """
    _check(model, tokens, batch_tokens=batch_tokens, max_tokens=max_tokens)
    count = _tokens_read(tokens, max_tokens)
    blocks = CausalBlocks(tokens, length, eos)
    total = 0.0
    with torch.no_grad(), _bar(count) as bar:
        for ids in _causal_batches(blocks, length, count, batch_tokens):  # (batch, <= length + 1)
            total += _loss_within_memory(model, ids)
            bar.update(ids[:, 1:].numel())
    return Perplexity(length, total / count, count, *_words_and_bytes(tokens, count))


def _loss_within_memory(model: Any, ids: Tensor) -> float:
    """The summed loss of all blocks; half of them at a time if they do not fit into the memory of the device."""
    try:
        return _summed_loss(model, {"input_ids": ids[:, :-1]}, ids[:, 1:])
    except torch.OutOfMemoryError:
        if len(ids) == 1:
            raise
    return sum(_loss_within_memory(model, half) for half in ids.chunk(2))


def stream_perplexity(
    model: Any, tokens: "Tokens", eos: int, *, chunk: int = 4096, max_tokens: int | None = None
) -> Perplexity:
    """The text as one sequence: each token is predicted from all before it, the first one from `eos`.

    Args:
        model: a TNNForCausalLM in evaluation mode. Its cache carries the context.
        tokens: the text.
        eos: the token that stands before the text.
        chunk: how many tokens are computed at once. The result does not depend on it.
        max_tokens: read only the beginning of the text.

    >>> from tnn.training.perplexity import stream_perplexity
    >>> print(stream_perplexity(model, tokens, eos=2).to_text())  # doctest: +SKIP
    """
    _check(model, tokens, max_tokens=max_tokens)
    count = _tokens_read(tokens, max_tokens)

    def pieces() -> Iterator[Tensor]:
        yield torch.tensor([eos])
        for first in range(0, count, PIECE):
            piece = tokens.ids[first : min(first + PIECE, count)]
            yield torch.from_numpy(piece.astype(np.int64))
            bar.update(len(piece))

    with _bar(count) as bar:
        measured = models.stream_loss(model, pieces(), chunk)
    return Perplexity(None, measured.loss, measured.tokens, *_words_and_bytes(tokens, count))


def masked_perplexity(
    model: Any, tokens: "Tokens", length: int, tokenizer: Any, seed: int = 0, *, batch_tokens: int = 16_384
) -> Perplexity:
    """The perplexity of a masked language model at the tokens that `MaskedBlocks` selects; `seed` decides which.

    It cannot be compared with the perplexity of a causal model.

    Args:
        model: a masked language model of transformers, in evaluation mode.
        tokens: the text.
        length: tokens per block.
        tokenizer: with a mask token.
        seed: of the masks.
        batch_tokens: how many tokens are computed at once. The result does not depend on it.

    >>> from tnn.training.perplexity import masked_perplexity
    >>> print(masked_perplexity(model, tokens, 512, tokenizer).to_text())  # doctest: +SKIP
    """
    _check(model, tokens, batch_tokens=batch_tokens)
    blocks = MaskedBlocks(tokens, length, tokenizer, seed)
    join, size = collate(tokenizer.pad_token_id), max(1, batch_tokens // length)
    total, count = 0.0, 0
    with torch.no_grad(), _bar(len(blocks), "block") as bar:
        for first in range(0, len(blocks), size):
            batch = join([blocks[i] for i in range(first, min(first + size, len(blocks)))])
            targets = batch.pop("labels")
            total += _summed_loss(model, batch, targets)
            count += int((targets != IGNORED).sum())
            bar.update(len(targets))
    return Perplexity(length, total / count, count)


def _causal_batches(blocks: CausalBlocks, length: int, count: int, batch_tokens: int) -> Iterator[Tensor]:
    """Batches of full blocks, then the rest of `count` tokens by itself: nothing is padded."""
    full, rest = divmod(count, length)
    size = max(1, batch_tokens // length)
    for first in range(0, full, size):
        yield torch.stack([blocks[i]["input_ids"] for i in range(first, min(first + size, full))])
    if rest:
        yield blocks[full]["input_ids"][None, : rest + 1]


def _summed_loss(model: Any, inputs: dict[str, Tensor], targets: Tensor) -> float:
    """Over the targets that are not ignored, in float64. If possible, logits are computed for a few rows at a time."""
    targets = targets.to(model.device)
    inputs = {name: value.to(model.device) for name, value in inputs.items()}
    wanted = targets != IGNORED
    features, head = _features_and_head(model, inputs)
    rows = max(1, CHUNK_ELEMENTS // model.config.vocab_size)
    total = 0.0
    for x, target in zip(features[wanted].split(rows), targets[wanted].split(rows), strict=True):
        losses = F.cross_entropy(head(x).to(compute_dtype(x)), target, reduction="none")
        total += losses.sum(dtype=torch.float64).item()
    return total


def _features_and_head(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Features (batch, n, d), and a function from rows of them to logits: all logits may not fit into memory."""
    if isinstance(model, models.TNNForCausalLM):
        return model.model(**inputs, use_cache=False).last_hidden_state, model.token_logits
    if isinstance(model, models.TNNForMaskedLM):
        return model.model(**inputs).last_hidden_state, model.token_logits
    return model(**inputs).logits, lambda x: x


def _tokens_read(tokens: "Tokens", max_tokens: int | None) -> int:
    return len(tokens.ids) if max_tokens is None else min(len(tokens.ids), max_tokens)


def _words_and_bytes(tokens: "Tokens", count: int) -> tuple[int | None, int | None]:
    """Of the first `count` tokens. Those of a part are known only if tokens are bytes."""
    if count == len(tokens.ids):
        return tokens.words, tokens.bytes
    return None, count if tokens.bytes == len(tokens.ids) else None


def _check(model: Any, tokens: "Tokens", **sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None:
            check_positive(name, size)
    if model.training:
        raise ValueError("model must be in evaluation mode, without dropout: call model.eval()")
    if tokens.vocab_size > (known := model.config.vocab_size):
        raise ValueError(
            f"the text has a vocabulary of {tokens.vocab_size:,} tokens and the model one of {known:,}: "
            "it must be tokenized with the model's tokenizer"
        )
    if len(tokens.ids) == 0:
        raise ValueError("the text has no tokens: there is nothing to predict")


def _bar(total: int, unit: str = "token") -> "tqdm[Any]":
    """A progress bar on stderr, if that is a terminal."""
    return tqdm(total=total, unit=unit, unit_scale=True, leave=False, disable=None)
