"""Training examples from a text: blocks for causal and masked language models, their order, their batches."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from tnn._checks import check_positive
from tnn.data.tokens import Tokens

SELECTED = 0.15  # share of all tokens that the model predicts
MASKED, RANDOM = 0.8, 0.1  # shares of the selected tokens: replaced by <mask>, by a random token
IGNORED = -100  # the label that losses ignore
Example = dict[str, Tensor]


class CausalBlocks(Dataset[Example]):
    """A text in blocks of `length` tokens, whatever its lines; the last block may be shorter.

    An example has one more token in front: the last one of the previous block, or `eos` for the first block. Models
    shift the labels themselves, so each token of the text is predicted exactly once.

    >>> import numpy as np
    >>> from tnn.data import CausalBlocks, Tokens
    >>> text = Tokens(np.arange(4, 11), np.array([7]), words=1, bytes=7, vocab_size=260)
    >>> [block["input_ids"].tolist() for block in CausalBlocks(text, length=3, eos=2)]
    [[2, 4, 5, 6], [6, 7, 8, 9], [9, 10]]
    """

    def __init__(self, tokens: Tokens, length: int, eos: int) -> None:
        check_positive("length", length)
        _check_text(tokens)
        self.tokens, self.length, self.eos = tokens, length, eos

    def __len__(self) -> int:
        return -(-len(self.tokens.ids) // self.length)

    def __getitem__(self, index: int) -> Example:
        _check_index(index, len(self))
        start = index * self.length
        before = [self.tokens.ids[start - 1]] if index else [self.eos]
        block = np.concatenate([before, self.tokens.ids[start : start + self.length]])  # (<= length + 1,)
        return {"input_ids": torch.from_numpy(block.astype(np.int64))}


class MaskedBlocks(Dataset[Example]):
    """Complete lines in blocks of at most `length` tokens, starting with `<s>`; 15% of the tokens are to be predicted.

    A block holds as many lines as fit, each with its line end or `</s>`; a longer line is cut. In each block 15% of
    the tokens are selected (rounded up or down at random, at least one). As in fairseq, `<s>` and `</s>` can be
    selected too. Of the selected tokens 80% become `<mask>`, 10% a random token that is not special, and 10% stay.
    Labels are the selected tokens, and -100 elsewhere.

    The selection depends only on `seed` and the index, so every evaluation is the same; see `draw` for training.

    >>> import numpy as np
    >>> from tnn.data import MaskedBlocks, Tokens, byte_tokenizer
    >>> text = Tokens(np.array([100, 101, 2, 102, 2, 103, 2]), np.array([3, 5, 7]), words=6, bytes=7, vocab_size=261)
    >>> blocks = MaskedBlocks(text, length=6, tokenizer=byte_tokenizer(mask=True), seed=0)
    >>> [len(block["input_ids"]) for block in blocks]
    [6, 3]
    """

    def __init__(self, tokens: Tokens, length: int, tokenizer: Any, seed: int) -> None:
        if length < 2:
            raise ValueError(f"length must be at least 2, for <s> and a token; got {length}")
        if tokenizer.mask_token_id is None:
            raise ValueError("masked blocks need a tokenizer with a mask token")
        _check_text(tokens)
        self.tokens, self.seed = tokens, seed
        self.bos, self.mask = tokenizer.bos_token_id, tokenizer.mask_token_id
        self.ordinary = np.setdiff1d(list(tokenizer.get_vocab().values()), tokenizer.all_special_ids)
        self.ends = _pack(np.asarray(tokens.line_ends), length - 1)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Example:
        return self.draw(index, index)

    def draw(self, index: int, number: int) -> Example:
        """Block `index`, masked as training example `number`: each epoch masks it differently."""
        _check_index(index, len(self))
        start = self.ends[index - 1] if index else 0
        ids = np.concatenate([[self.bos], self.tokens.ids[start : self.ends[index]]]).astype(np.int64)
        generator = np.random.default_rng([self.seed, number])
        count = max(1, int(SELECTED * len(ids) + generator.random()))
        places = generator.choice(len(ids), count, replace=False)
        labels = np.full_like(ids, IGNORED)
        labels[places] = ids[places]
        choice = generator.random(count)
        ids[places[choice < MASKED]] = self.mask
        changed = places[(choice >= MASKED) & (choice < MASKED + RANDOM)]
        ids[changed] = generator.choice(self.ordinary, len(changed))
        return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def _pack(line_ends: np.ndarray, capacity: int) -> np.ndarray:
    """The ends of blocks of at most `capacity` tokens: the last line end that fits, or inside a longer line."""
    ends, start, last = [], 0, int(line_ends[-1])
    while start < last:
        fitting = int(np.searchsorted(line_ends, start + capacity, side="right"))
        end = int(line_ends[fitting - 1]) if fitting else 0
        start = end if end > start else start + capacity
        ends.append(start)
    return np.array(ends)


class ShuffledEpochs(Dataset[Any]):
    """The `count` examples of a training run: epoch after epoch of the data set, each in a different random order.

    Example i depends only on `seed` and i. So an interrupted run resumes exactly, with any number of processes. A data
    set with a method `draw(index, number)`, like `MaskedBlocks`, also gets i, as `number`. With `repeats`, each example
    is taken that many times in a row, and an epoch has accordingly fewer different ones.

    >>> from tnn.data import ShuffledEpochs
    >>> examples = ShuffledEpochs("abc", seed=0, count=8)
    >>> sorted(examples[i] for i in range(3)), sorted(examples[i] for i in range(3, 6)), len(examples)
    (['a', 'b', 'c'], ['a', 'b', 'c'], 8)
    """

    def __init__(self, dataset: Any, seed: int, count: int, repeats: int = 1) -> None:
        check_positive("count", count)
        check_positive("repeats", repeats)
        if len(dataset) == 0:
            raise ValueError("the training set is empty")
        self.dataset, self.seed, self.count, self.repeats = dataset, seed, count, repeats
        self._epoch, self._permutation = -1, np.empty(0, np.int64)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        _check_index(index, self.count)
        epoch, place = divmod(index, len(self.dataset))
        if epoch != self._epoch:
            self._permutation = np.random.default_rng([self.seed, epoch]).permutation(len(self.dataset))
            self._epoch = epoch
        position = int(self._permutation[place // self.repeats])
        return self.dataset.draw(position, index) if hasattr(self.dataset, "draw") else self.dataset[position]


def collate(pad_id: int) -> Callable[[list[Mapping[str, Any]]], Example]:
    """A collate function: pads ids on the right, adds labels, and an attention mask if anything is padded.

    Examples without labels get their ids as labels. Padding has the label -100.

    >>> import torch
    >>> from tnn.data import collate
    >>> collate(pad_id=1)([{"input_ids": torch.tensor([5, 6, 7])}, {"input_ids": torch.tensor([8])}])["labels"].tolist()
    [[5, 6, 7], [8, -100, -100]]
    """
    return partial(_collate, pad_id)


def _collate(pad_id: int, examples: list[Mapping[str, Any]]) -> Example:
    ids = [torch.as_tensor(example["input_ids"]) for example in examples]
    labels = [torch.as_tensor(example.get("labels", example["input_ids"])) for example in examples]
    batch = {"input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_id)}  # (batch, length)
    if len({len(row) for row in ids}) > 1:
        batch["attention_mask"] = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    if labels[0].ndim == 0:  # one label per text
        return batch | {"labels": torch.stack(labels)}
    return batch | {"labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED)}


def _check_text(tokens: Tokens) -> None:
    if len(tokens.ids) == 0:
        raise ValueError("the text has no tokens, so there are no blocks")


def _check_index(index: int, length: int) -> None:
    if not 0 <= index < length:
        raise IndexError(f"index {index} is not one of 0 to {length - 1}")
