"""Texts as token ids: documents in pieces that fit into memory, or line by line."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tnn.data.corpus import Corpus
from tnn.data.tokenizers import SPECIAL, highest_id, is_byte_tokenizer

BATCH = 2**20  # characters per call of the tokenizer, which divides them among the cores by line or piece
PIECE, LONGEST_PIECE = 2**16, 2**20  # characters
BETWEEN_WORDS = re.compile(r".*\S(?= \S)", re.DOTALL)  # up to the last single space
AT_LEAST = re.compile(r".*\S(?=[ \t\r\n])|.+", re.DOTALL)  # up to the last white space, or all
Piece = TypeVar("Piece", str, str | None)
Stream = Iterator[str | None]  # lines, or pieces of documents; None stands for the </s> between two documents
Encode = Callable[[list[str | None]], tuple[np.ndarray, np.ndarray]]  # -> ids, where their lines end


def stream_of(corpus: Corpus, split: str) -> Stream:
    """What is encoded: the lines of a split, or its documents in pieces. Empty documents are left out."""
    if corpus.separate:
        yield from corpus.lines(split)
        return
    begun = False
    for document in corpus.documents(split):
        for number, piece in enumerate(_pieces(document)):
            if begun and number == 0:
                yield None
            begun = True
            yield piece


def _pieces(document: Iterable[str]) -> Iterator[str]:
    """A document in pieces that have the same tokens as the whole: they begin with a single space between two words.

    Byte-level tokenizers never join a word and the white space after it, and most others do not join it and a space. If
    a million characters have no such space, a piece begins with any white space; if they have none, anywhere.
    """
    held = ""
    for texts in batches(document, PIECE):
        searched = max(0, len(held) - 2)
        held += "".join(texts)
        cut = BETWEEN_WORDS.match(held, searched)
        if cut is None and len(held) >= LONGEST_PIECE:
            cut = AT_LEAST.match(held)
        if cut is not None:
            yield held[: cut.end()]
            held = held[cut.end() :]
    if held:
        yield held


def batches(texts: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Lists of texts, each with at least `size` characters except the last."""
    batch, held = [], 0
    for text in texts:
        batch.append(text)
        held += len(text or "")
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def plain_backend(tokenizer: Any) -> Any:
    """A copy of the tokenizer's backend that treats the names of special tokens as text."""
    from tokenizers import Tokenizer

    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer must have an end-of-text token, such as </s>")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    return backend


def encoder_of(tokenizer: Any, backend: Any, corpus: Corpus, as_bytes: bool) -> Encode:
    """How the stream of a corpus is encoded; `backend` is the `plain_backend` of the tokenizer."""
    eos = tokenizer.eos_token_id
    if corpus.separate:
        return _separate_bytes if as_bytes else _line_encoder(backend, eos, corpus.strip)
    size = highest_id(tokenizer) + 1
    line_ending = np.array([id_ == eos or "\n" in backend.decode([id_]) for id_ in range(size)])
    return _document_encoder(_bytes_of if as_bytes else partial(_ids_of, backend), eos, line_ending)


def _document_encoder(encode_all: Callable[[list[str]], list[np.ndarray]], eos: int, line_ending: np.ndarray) -> Encode:
    end = np.array([eos], id_type(len(line_ending)))

    def encode(pieces: list[str | None]) -> tuple[np.ndarray, np.ndarray]:
        parts = []
        for batch in batches(pieces, BATCH):
            encoded = iter(encode_all([piece for piece in batch if piece is not None]))
            parts.append(np.concatenate([end if piece is None else next(encoded) for piece in batch]))
        ids = np.concatenate(parts)
        return ids, np.union1d(np.flatnonzero(line_ending[ids]) + 1, len(ids))  # a shard ends a line too

    return encode


def _ids_of(backend: Any, texts: list[str]) -> list[np.ndarray]:
    return [np.array(e.ids, np.uint32) for e in backend.encode_batch_fast(texts, add_special_tokens=False)]


def _bytes_of(texts: list[str]) -> list[np.ndarray]:
    return [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) + len(SPECIAL) for text in texts]


def _line_encoder(backend: Any, eos: int, strip: bool) -> Encode:
    end, strip_line = np.array([eos]), str.strip if strip else _without_end

    def encode(lines: list[str | None]) -> tuple[np.ndarray, np.ndarray]:
        rows = []
        for batch in batches((strip_line(line) for line in lines if line is not None), BATCH):
            rows += [row for ids in _ids_of(backend, batch) for row in (ids, end)]
        return np.concatenate(rows), np.cumsum([len(row) for row in rows])[1::2]

    return encode


def _separate_bytes(lines: list[str | None]) -> tuple[np.ndarray, np.ndarray]:
    rows = _bytes_of([line for line in lines if line is not None])
    return np.concatenate(rows), np.cumsum([len(row) for row in rows])


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def encode_prompt(tokenizer: Any, text: str, *, separate: bool) -> list[int]:
    """The ids of a text that a model is to continue, as they were in training.

    >>> from tnn.data import train_bpe
    >>> from tnn.data.encoding import encode_prompt
    >>> tokenizer = train_bpe(["ab"], 260)
    >>> encode_prompt(tokenizer, "a\\nb", separate=False), encode_prompt(tokenizer, "a\\nb", separate=True)
    ([68, 202, 69], [68, 2, 69])
    """
    if not separate or is_byte_tokenizer(tokenizer):
        return _plain_ids(tokenizer, text)
    *lines, last = text.split("\n")
    ids = [token for line in lines for token in (*_plain_ids(tokenizer, _without_end(line)), tokenizer.eos_token_id)]
    return ids + _plain_ids(tokenizer, last)


def _plain_ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
