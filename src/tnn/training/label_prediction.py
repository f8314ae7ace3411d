"""Labels of new texts: of a table, of one text, or of the lines of standard input."""

import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tnn.data.labelled_texts import Columns, TextEncoder, Texts, check_text
from tnn.data.labels import Kind
from tnn.data.tables import Row, open_tables, table_kind
from tnn.training.label_logits import label_logits
from tnn.training.scores import decide
from tnn.training.tasks.task import PredictionOptions
from tnn.training.text_source import source_kind

DIGITS = 6  # of a probability


class _Input(NamedTuple):
    row: Row  # what is printed with the prediction
    texts: Texts


def predict_labels(
    model: Any, tokenizer: Any, columns: Columns, source: str, options: PredictionOptions
) -> Iterator[Row]:
    """Rows with the columns of a table, or with `text`, and the prediction of the model, in the order of the source.

    `prediction` is a class, a list of those with a probability above one half, or a number. For classes there are
    also its `probability` (not of several) and the `probabilities` of all. They are those of
    `transformers.pipeline("text-classification")`. Texts are read and computed a batch at a time. Long ones are
    cut, and a warning after the last row tells how many; or read whole, as `options` says.

    >>> from pathlib import Path
    >>> from tnn.training import predict
    >>> next(predict(Path("runs/reviews"), "A fine film."))  # doctest: +SKIP
    {'text': 'A fine film.', 'prediction': 'good', 'probability': 0.98, 'probabilities': {'bad': 0.02, 'good': 0.98}}
    """
    inputs, encoder = _inputs(source, columns), TextEncoder(tokenizer, whole=options.whole)
    while batch := list(islice(inputs, options.batch_size)):
        predictions = predict_texts(model, encoder, [one.texts for one in batch], options.chunk)
        for one, prediction in zip(batch, predictions, strict=True):
            yield one.row | prediction
    if encoder.longer and not options.whole:
        warnings.warn(encoder.summary(), stacklevel=2)


def predict_texts(model: Any, encoder: TextEncoder, texts: list[Texts], chunk: int = 4096) -> list[Row]:
    """What the model says about each text, or pair of texts: the last columns of the rows of `predict_labels`.

    >>> from tnn import TNNConfig, TNNForSequenceClassification
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.labelled_texts import TextEncoder
    >>> from tnn.training.label_prediction import predict_texts
    >>> config = TNNConfig(vocab_size=260, hidden_size=8, num_hidden_layers=1, is_decoder=False, num_labels=2)
    >>> model = TNNForSequenceClassification(config).eval()
    >>> [list(row) for row in predict_texts(model, TextEncoder(byte_tokenizer()), [("A fine film.",)])]
    [['prediction', 'probability', 'probabilities']]
    """
    ids = [torch.from_numpy(row.astype(np.int64)) for row in encoder.encode(texts)]
    return [*_predictions(model.config, label_logits(model, ids, encoder, chunk))]


def _inputs(source: str, columns: Columns) -> Iterator[_Input]:
    kind = source_kind(source, lambda path: table_kind(path) is not None)
    if kind == "lines":
        return _of_lines(sys.stdin, columns)
    return _of_tables(source, columns) if kind == "file" else iter([_of_text(source, "the command line", columns)])


def _of_text(text: str, where: str, columns: Columns) -> _Input:
    if columns.pair is not None:
        raise ValueError(f"the model reads pairs of texts: give a table with columns {columns.text}, {columns.pair}")
    return _Input({"text": text}, (check_text(text, where),))


def _of_lines(lines: Iterable[str], columns: Columns) -> Iterator[_Input]:
    for number, line in enumerate(lines, start=1):
        yield _of_text(line.removesuffix("\n"), f"line {number} of standard input", columns)


def _of_tables(source: str, columns: Columns) -> Iterator[_Input]:
    for table in open_tables(source).values():
        columns.check_texts(table)
        for number, row in enumerate(table.rows(), start=1):
            texts = columns.texts_of(row, f"{table.name}, row {number}")
            yield _Input({name: row.get(name) for name in table.columns}, texts)


def _predictions(config: Any, logits: Tensor) -> Iterator[Row]:
    kind, names = _kind(config), class_names(config)
    if kind == "regression":
        yield from ({"prediction": number} for number in decide(kind, logits.numpy()).tolist())
        return
    probabilities = logits.softmax(-1) if kind == "single" else logits.sigmoid()
    for chosen, row in zip(decide(kind, logits.numpy()).tolist(), probabilities.tolist(), strict=True):
        by_name = {name: round(value, DIGITS) for name, value in zip(names, row, strict=True)}
        if kind == "single":
            yield {"prediction": names[chosen], "probability": by_name[names[chosen]], "probabilities": by_name}
        else:
            yield {"prediction": [names[k] for k, is_one in enumerate(chosen) if is_one], "probabilities": by_name}


def class_names(config: Any) -> list[str]:
    """In the order of their numbers."""
    return [config.id2label[number] for number in range(config.num_labels)]


def _kind(config: Any) -> Kind:
    if config.problem_type == "multi_label_classification":
        return "several"
    return "regression" if config.problem_type == "regression" or config.num_labels == 1 else "single"
