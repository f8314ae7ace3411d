"""What classifiers of texts and of tokens share: their tokenizer, and the configuration of a preset for it."""

from collections.abc import Iterable
from typing import Any

from tnn import models
from tnn.data.tokenizers import highest_id, load_tokenizer, make_tokenizer, train_bpe
from tnn.models.loading import read_config
from tnn.training.tasks.setup import checked_model_folder, preset_config


def choose_tokenizer(spec: str | None, start_from: str | None, texts: Iterable[str]) -> Any:
    """That of `data.tokenizer`: bpe:SIZE is trained on the texts; None is that of the model to start from, or bytes.

    >>> from tnn.training.tasks.text_models import choose_tokenizer
    >>> len(choose_tokenizer(None, None, []))
    260
    """
    if spec is None and start_from is not None:
        folder = checked_model_folder(start_from)
        return load_tokenizer(folder, read_config(folder).vocab_size)
    if spec is None or not spec.startswith("bpe:"):
        return make_tokenizer(spec or "bytes")
    size = spec.removeprefix("bpe:")
    if not size.isdecimal():
        raise ValueError(f"data.tokenizer must be bpe:SIZE, such as bpe:8000; got {spec!r}")
    return train_bpe(texts, int(size))


def text_preset(preset: str, tokenizer: Any, fields: dict[str, Any]) -> Any:
    """The configuration of a preset with the vocabulary of a tokenizer.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.training.tasks.text_models import text_preset
    >>> text_preset("tnn-mini", byte_tokenizer(), {"num_labels": 3}).vocab_size
    260
    """
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    size = highest_id(tokenizer) + 1
    config = preset_config(preset, models.TNNConfig, "a text model", {"vocab_size": size, **special, **fields})
    if size > config.vocab_size:
        got = f"{config.vocab_size:,}, and the tokenizer has {size:,} tokens"
        raise ValueError(f"the tokenizer does not fit the model: its vocabulary is {got}")
    return config
