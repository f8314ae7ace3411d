"""Outputs of a classifier for texts in tokens: those of usual length in a batch, longer ones in chunks."""

from collections.abc import Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from tnn.data.blocks import collate
from tnn.data.labelled_texts import TextEncoder
from tnn.models.chunks import stream_class_logits


@torch.inference_mode()
def label_logits(model: Any, texts: Sequence[Tensor], encoder: TextEncoder, chunk: int) -> Tensor:
    """(texts, labels), on the CPU. What a text gets does not depend on the others, nor on `chunk`, up to rounding.

    Texts are what the encoder made. If it reads them whole, those longer than its `length` are computed one by one,
    `chunk` tokens at a time.

    >>> from tnn import TNNConfig, TNNForSequenceClassification
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.labelled_texts import TextEncoder, text_tokenizer
    >>> from tnn.training.label_logits import label_logits
    >>> config = TNNConfig(vocab_size=260, hidden_size=16, num_hidden_layers=2, is_decoder=False, num_labels=3)
    >>> encoder = TextEncoder(text_tokenizer(byte_tokenizer(), length=8), whole=True)
    >>> texts = [torch.from_numpy(ids).long() for ids in encoder.encode([("short",), ("a long one",)])]
    >>> label_logits(TNNForSequenceClassification(config).eval(), texts, encoder, chunk=64).shape
    torch.Size([2, 3])
    """
    longest = (encoder.length or chunk) if encoder.whole else None
    is_long = [longest is not None and len(ids) > longest for ids in texts]
    batch = [number for number, long in enumerate(is_long) if not long]
    logits = torch.empty(len(texts), model.config.num_labels)
    if batch:
        inputs = collate(encoder.pad_id)([{"input_ids": texts[number]} for number in batch])
        del inputs["labels"]
        logits[batch] = model(**{key: value.to(model.device) for key, value in inputs.items()}).logits.float().cpu()
    for number in compress(range(len(texts)), is_long):
        logits[number] = stream_class_logits(model, texts[number], chunk)[0].float().cpu()
    if not logits.isfinite().all():  # argmax would take a class for it
        raise ArithmeticError("outputs of the model are NaN or infinite")
    return logits
