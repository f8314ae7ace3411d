"""Fingerprints of data and tokenizer: whether a run that is resumed sees what it saw before."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

SAMPLES = 64  # examples of each set, where nothing better is known


def fingerprint(*values: Any) -> str:
    """A hash of arrays, tensors, and lists and dictionaries of them. A path counts as its name, size and time.

    >>> import numpy as np
    >>> from tnn.training.fingerprints import fingerprint
    >>> fingerprint(np.arange(3), ["a"]) == fingerprint(np.arange(3), ["a"]) != fingerprint(np.arange(4), ["a"])
    True
    """
    digest = hashlib.sha256()
    _add(digest, values)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    match value:
        case Tensor():
            _add(digest, value.numpy())
        case np.ndarray():
            digest.update(f"array {value.dtype} {value.shape} ".encode())
            digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        case Path():
            status = value.stat()
            digest.update(f"file {value} {status.st_size} {status.st_mtime_ns} ".encode())
        case Mapping():
            _add(digest, list(value.items()))
        case list() | tuple():
            digest.update(f"list {len(value)} ".encode())
            for item in value:
                _add(digest, item)
        case _:
            digest.update(f"{type(value).__name__} {value!r} ".encode())


def sample_examples(dataset: Any) -> list[Any]:
    """The number of examples, and some of them."""
    places = range(0, len(dataset), max(1, len(dataset) // SAMPLES))
    return [len(dataset), *(dataset[place] for place in places)]


def tokenizer_fingerprint(processor: Any) -> str | None:
    """Of what a tokenizer does; None for anything else."""
    if not isinstance(processor, PreTrainedTokenizerBase):
        return None
    backend = getattr(processor, "backend_tokenizer", None)
    rules = "" if backend is None else json.dumps(json.loads(backend.to_str()), sort_keys=True)
    return fingerprint(sorted(processor.get_vocab().items()), rules)
