"""Tokenizers for Long-Range Arena, which can be saved with a model: characters and ListOps tokens as in the paper's
code; bytes and words as in Skyformer's."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tnn.data.tokenizers import SPECIAL, byte_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

PAD, UNK, EOS = {"pad_token": "<pad>"}, {"unk_token": "<unk>"}, {"eos_token": "<eos>"}
CHARACTERS = 0x110000  # of Unicode
COUNTED_AT_ONCE = 1024  # texts
T = TypeVar("T")


def make_lra_tokenizer(
    tokens: str, length: int, texts: Iterable[str] = (), min_frequency: int = 1
) -> "PreTrainedTokenizerFast":
    """The tokenizer for the `tokens` of a flavour, which cuts to `length`; its vocabulary is learned from the texts.

    - "characters": those that occur at least `min_frequency` times in the texts;
    - "listops": split at spaces, without parentheses, X for the closing bracket;
    - "bytes": from id 1, after `<pad>`; nothing is learned;
    - "words": alphanumeric, so brackets are lost; they come after `<pad>` and `<unk>`.

    The first two start with `<pad>`, `<unk>` and `<eos>`, then the tokens by descending frequency, and end each text
    with `<eos>`.

    >>> from tnn.data.lra.vocabulary import make_lra_tokenizer
    >>> tokenizer = make_lra_tokenizer("characters", 4, ["abba", "cab"], min_frequency=2)
    >>> tokenizer("abcab", truncation=True)["input_ids"]
    [3, 4, 1, 2]
    >>> make_lra_tokenizer("listops", 2048, ["( ( [MAX 4 ) 7 ) ]"]).tokenize("[MAX 7 4 ]")
    ['[MAX', '7', '4', 'X']
    """
    make: Callable[..., PreTrainedTokenizerFast] = _MAKERS[tokens]
    return make(length, texts, min_frequency)


def _characters(length: int, texts: Iterable[str], min_frequency: int) -> "PreTrainedTokenizerFast":
    from tokenizers import Tokenizer, decoders, models

    counts = np.zeros(CHARACTERS, np.int64)
    for batch in in_batches(texts, COUNTED_AT_ONCE):
        codes = np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32)
        counts += np.bincount(codes, minlength=CHARACTERS)
    frequent = np.flatnonzero(counts >= min_frequency)
    by_frequency = frequent[np.argsort(-counts[frequent], kind="stable")]
    special = PAD | UNK | EOS
    vocabulary = _numbered([*special.values(), *map(chr, by_frequency)])
    backend = Tokenizer(models.BPE(vocabulary, [], unk_token=UNK["unk_token"]))  # no merges: one token per character
    backend.decoder = decoders.Fuse()
    return _wrap(backend, length, special)


def _bytes(length: int, texts: Iterable[str], min_frequency: int) -> "PreTrainedTokenizerFast":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = byte_tokenizer().convert_ids_to_tokens(range(len(SPECIAL), len(SPECIAL) + 256))
    backend = Tokenizer(models.BPE(_numbered([*PAD.values(), *names]), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return _wrap(backend, length, PAD)


def _listops(length: int, texts: Iterable[str], min_frequency: int) -> "PreTrainedTokenizerFast":
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    backend = Tokenizer(models.WordLevel({}, UNK["unk_token"]))
    changes = [normalizers.Replace(old, new) for old, new in (("(", ""), (")", ""), ("]", "X"))]
    backend.normalizer = normalizers.Sequence(changes)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrap(_learn_words(backend, texts, min_frequency, PAD | UNK | EOS), length, PAD | UNK | EOS)


def _words(length: int, texts: Iterable[str], min_frequency: int) -> "PreTrainedTokenizerFast":
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    backend = Tokenizer(models.WordLevel({}, UNK["unk_token"]))
    backend.normalizer = normalizers.Sequence([])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\W+"), "removed")
    return _wrap(_learn_words(backend, texts, min_frequency, PAD | UNK), length, PAD | UNK)


def _learn_words(
    backend: "Tokenizer", texts: Iterable[str], min_frequency: int, special: dict[str, str]
) -> "Tokenizer":
    """Give the backend the vocabulary of the texts, by descending frequency."""
    from tokenizers import models

    pieces = Counter(chain.from_iterable(map(split_words, texts)))  # there are few distinct ones: each is split once
    counts = Counter[str]()
    for piece, count in pieces.items():
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(piece)):
            counts[word] += count
    names = list(special.values())  # in a text, too, these words stand for the special tokens
    frequent = sorted((-n, word) for word, n in counts.items() if n >= min_frequency and word not in names)
    tokens = [*names, *(word for _, word in frequent)]
    backend.model = models.WordLevel(_numbered(tokens), UNK["unk_token"])
    return backend


def split_words(text: str) -> list[str]:
    """Pieces at whose borders "listops" and "words" always split; the tokenizers split further themselves."""
    return text.split(" ")


def _wrap(backend: "Tokenizer", length: int, special: dict[str, str]) -> "PreTrainedTokenizerFast":
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    if end := special.get("eos_token"):
        backend.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, backend.token_to_id(end))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=length,
        padding_side="right",
        split_special_tokens=True,  # the name of a special token in a text is treated as text
        clean_up_tokenization_spaces=False,
        **special,
    )


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last one may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


_MAKERS = {"characters": _characters, "bytes": _bytes, "listops": _listops, "words": _words}
