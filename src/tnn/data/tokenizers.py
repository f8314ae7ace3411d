"""Tokenizers: one token a byte, which needs no files; and the ids of a text file, read as it goes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
BYTE_VOCABULARY = len(SPECIAL) + 256
FILES = (
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "*.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
)
PIECE = 2**16  # characters tokenised at a time


def byte_tokenizer(mask: bool = False) -> "PreTrainedTokenizerFast":
    """One token a byte of the UTF-8 text: byte b is id 4 + b, after `<s>`, `<pad>`, `</s>` and `<unk>`.

    Any text comes back as it was, the names of special tokens in it included, and no special token is added. With
    `mask`, `<mask>` is id 260, and the names of special tokens in a text stand for these tokens.

    >>> from tnn.data import byte_tokenizer
    >>> tokenizer = byte_tokenizer()
    >>> tokenizer("hé")["input_ids"]
    [108, 199, 173]
    >>> tokenizer.decode([108, 199, 173])
    'hé'
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = SPECIAL | ({"mask_token": "<mask>"} if mask else {})
    tokens = [*SPECIAL.values(), *_byte_characters(), *(["<mask>"] if mask else [])]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="left",
        split_special_tokens=not mask,
        clean_up_tokenization_spaces=False,
        **special,
    )


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies: itself if it can be seen."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [b for b in range(256) if b not in visible]
    return [chr(b) if b in visible else chr(256 + hidden.index(b)) for b in range(256)]


def load_tokenizer(folder: Path, vocab_size: int) -> "PreTrainedTokenizerBase":
    """The tokenizer of a model's folder; without any files there, that of bytes if the vocabulary has its size.

    >>> from pathlib import Path
    >>> from tnn.data.tokenizers import load_tokenizer
    >>> len(load_tokenizer(Path("no-such-folder"), vocab_size=260))
    260
    """
    from transformers import AutoTokenizer

    if tokenizer_files(folder):
        return AutoTokenizer.from_pretrained(folder)
    if vocab_size != BYTE_VOCABULARY:
        raise ValueError(
            f"{folder} has no tokenizer files, and a vocabulary of {vocab_size}; "
            f"only with {BYTE_VOCABULARY} tokens are they taken for bytes"
        )
    return byte_tokenizer()


def tokenizer_files(folder: Path) -> list[Path]:
    """What a tokenizer's save_pretrained has written into a folder.

    >>> from pathlib import Path
    >>> from tnn.data.tokenizers import tokenizer_files
    >>> tokenizer_files(Path("no-such-folder"))
    []
    """
    return sorted({path for pattern in FILES for path in folder.glob(pattern) if path.is_file()})


def read_ids(path: Path, tokenizer: Any) -> "Iterator[Tensor]":
    """The ids of a UTF-8 text file, piece by piece: it is never held whole.

    Pieces are lines, except with tokens that are bytes, which can be cut anywhere.

    >>> from pathlib import Path
    >>> from tnn.data.tokenizers import byte_tokenizer, read_ids
    >>> for ids in read_ids(Path("war-and-peace.txt"), byte_tokenizer()): ...  # doctest: +SKIP
    """
    import torch

    with path.open(encoding="utf-8", newline="") as file:  # line ends as they are
        for text in iter(lambda: file.read(PIECE), "") if is_byte_tokenizer(tokenizer) else file:
            yield torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=torch.long)


def is_byte_tokenizer(tokenizer: Any) -> bool:
    """Whether it is `byte_tokenizer()`, maybe saved and loaded.

    >>> from tnn.data.tokenizers import byte_tokenizer, is_byte_tokenizer
    >>> is_byte_tokenizer(byte_tokenizer())
    True
    """
    return tokenizer.split_special_tokens and tokenizer.get_vocab() == byte_tokenizer().get_vocab()
