"""Data for the models: text corpora, tokenizers and blocks of tokens; images; GLUE; Long-Range Arena."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes, public_names

if TYPE_CHECKING:
    from tnn.data import arrays, augmentation, glue, images, lra
    from tnn.data.blocks import CausalBlocks, MaskedBlocks, ShuffledEpochs, collate
    from tnn.data.corpus import Corpus, open_corpus
    from tnn.data.tokenizers import byte_tokenizer, gpt2_tokenizer, make_tokenizer, train_bpe
    from tnn.data.tokens import Tokens, tokenize

__all__ = [
    "CausalBlocks",
    "Corpus",
    "MaskedBlocks",
    "ShuffledEpochs",
    "Tokens",
    "arrays",
    "augmentation",
    "byte_tokenizer",
    "collate",
    "glue",
    "gpt2_tokenizer",
    "images",
    "lra",
    "make_tokenizer",
    "open_corpus",
    "tokenize",
    "train_bpe",
]

# Lazy: most of it needs torch, which the tokenizers and the generators of Long-Range Arena do without.
_HOMES = {
    "CausalBlocks": "tnn.data.blocks",
    "Corpus": "tnn.data.corpus",
    "MaskedBlocks": "tnn.data.blocks",
    "ShuffledEpochs": "tnn.data.blocks",
    "Tokens": "tnn.data.tokens",
    "arrays": "",
    "augmentation": "",
    "byte_tokenizer": "tnn.data.tokenizers",
    "collate": "tnn.data.blocks",
    "glue": "",
    "gpt2_tokenizer": "tnn.data.tokenizers",
    "images": "",
    "lra": "",
    "make_tokenizer": "tnn.data.tokenizers",
    "open_corpus": "tnn.data.corpus",
    "tokenize": "tnn.data.tokens",
    "train_bpe": "tnn.data.tokenizers",
}
__getattr__ = lazy_attributes(__name__, _HOMES)
__dir__ = public_names(__name__)
