"""Texts of Long-Range Arena as token ids, all in one array."""

from collections.abc import Callable, Iterable
from copy import copy
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from tnn.data.lra.sources import Row
from tnn.data.lra.vocabulary import split_words
from tnn.data.tokenizers import highest_id

PREFIXES = ("", "pair_")  # of the keys of the first and the second text
PROBE = "The cat sat (on [MAX 4 7 ] ), the mat."


class TextSet(Dataset[dict[str, Tensor]]):
    """`input_ids` and `labels`, for pairs also `pair_input_ids`; texts are tokenised in advance and cut to `length`.

    With `padded`, all are padded with 0 to this length, and have an attention mask that is 0 there. The tokenizer must
    be one of `make_lra_tokenizer`: of characters or bytes, or, with `words`, one whose tokens never contain a space.

    >>> from tnn.data.lra.sources import Row
    >>> from tnn.data.lra.texts import TextSet
    >>> from tnn.data.lra.vocabulary import make_lra_tokenizer
    >>> dataset = TextSet([Row(("ab",), 1)], make_lra_tokenizer("characters", 4, ["aab"]), length=4)
    >>> dataset[0]
    {'input_ids': tensor([3, 4, 2]), 'labels': tensor(1)}
    """

    def __init__(
        self, rows: Iterable[Row], tokenizer: Any, length: int, padded: int | None = None, words: bool = False
    ) -> None:
        encode, dtype = _encoder(tokenizer, length, words), np.min_scalar_type(highest_id(tokenizer))
        ids, counts, labels = bytearray(), [], []
        self.texts = 1  # per row
        for row in rows:
            self.texts = len(row.texts)
            for text in row.texts:
                text_ids = np.fromiter(encode(text), dtype)
                ids += text_ids.tobytes()
                counts.append(len(text_ids))
            labels.append(row.label)
        self.ids: NDArray[Any] = np.frombuffer(ids, dtype)  # of all texts
        self.ends = np.cumsum(counts, dtype=np.int64)  # of each text in `ids`
        self.labels = np.array(labels, np.int64)
        self.longest = max(counts, default=0)
        self.padded = padded

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not one of 0 to {len(self) - 1}")
        item = {}
        for place, prefix in enumerate(PREFIXES[: self.texts]):
            ids = self._text(index * self.texts + place)
            if self.padded is not None:
                ids = pad(ids, (0, self.padded - len(ids)))
                item[f"{prefix}attention_mask"] = (ids != 0).long()
            item[f"{prefix}input_ids"] = ids
        return item | {"labels": torch.tensor(self.labels[index])}

    def select(self, rows: NDArray[np.int64]) -> "TextSet":
        """A set of these rows, in this order."""
        chosen = copy(self)
        texts = (rows[:, None] * self.texts + np.arange(self.texts)).flatten()
        starts = np.concatenate([[0], self.ends[:-1]])[texts]
        parts = [self.ids[start:end] for start, end in zip(starts, self.ends[texts], strict=True)]
        chosen.ids = np.concatenate([self.ids[:0], *parts])
        chosen.ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        chosen.labels = self.labels[rows]
        chosen.longest = max((len(part) for part in parts), default=0)
        return chosen

    def _text(self, number: int) -> Tensor:
        start = self.ends[number - 1] if number else 0
        return torch.from_numpy(self.ids[start : self.ends[number]].astype(np.int64))


def _encoder(tokenizer: Any, length: int, words: bool) -> Callable[[str], Iterable[int]]:
    """A function from a text to at most `length` ids. Each distinct piece is tokenised once, then looked up."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True  # the name of a special token is treated as text
    end = backend.encode("").ids
    look_up, pieces = _PieceIds(backend).__getitem__, split_words if words else iter

    def encode(text: str) -> Iterable[int]:
        ids = chain.from_iterable(map(look_up, pieces(text)))
        return chain(islice(ids, length - len(end)), end)

    if [*chain.from_iterable(map(look_up, pieces(PROBE))), *end] != backend.encode(PROBE).ids:
        unit = "words" if words else "characters or bytes"
        raise ValueError(f"the tokenizer must be one of make_lra_tokenizer, with {unit} as tokens; got another one")
    return encode


class _PieceIds(dict[str, list[int]]):
    """A cache: the ids of pieces of texts."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.backend = backend

    def __missing__(self, piece: str) -> list[int]:
        self[piece] = self.backend.encode(piece, add_special_tokens=False).ids
        return self[piece]
