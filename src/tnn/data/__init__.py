"""Texts for the models."""

from tnn.data.tokenizers import byte_tokenizer

__all__ = ["byte_tokenizer"]
