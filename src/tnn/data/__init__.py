"""Texts for the models: tokenizers, corpora, ids on disk, blocks."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes
from tnn.data.tokenizers import byte_tokenizer, gpt2_tokenizer, make_tokenizer, train_bpe

if TYPE_CHECKING:
    from tnn.data.blocks import CausalBlocks, MaskedBlocks, ShuffledEpochs, collate
    from tnn.data.corpus import Corpus, open_corpus
    from tnn.data.tokens import Tokens, tokenize

__all__ = [
    "CausalBlocks",
    "Corpus",
    "MaskedBlocks",
    "ShuffledEpochs",
    "Tokens",
    "byte_tokenizer",
    "collate",
    "gpt2_tokenizer",
    "make_tokenizer",
    "open_corpus",
    "tokenize",
    "train_bpe",
]

HOMES = {
    "CausalBlocks": "tnn.data.blocks",
    "Corpus": "tnn.data.corpus",
    "MaskedBlocks": "tnn.data.blocks",
    "ShuffledEpochs": "tnn.data.blocks",
    "Tokens": "tnn.data.tokens",
    "collate": "tnn.data.blocks",
    "open_corpus": "tnn.data.corpus",
    "tokenize": "tnn.data.tokens",
}
__getattr__ = lazy_attributes(__name__, HOMES)
