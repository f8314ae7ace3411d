"""Tables of millions of rows are read as they go: what is kept of a row is a few numbers, or nothing."""

import tracemalloc
from datetime import datetime, timedelta

import pytest

from tnn.data import byte_tokenizer, encoding, open_corpus, tokenize
from tnn.data import corpus as corpus_module
from tnn.data import tokens as tokens_module
from tnn.data.labelled_texts import Columns, open_parts
from tnn.data.series import Columns as SeriesColumns
from tnn.data.series import read_series
from tnn.data.tables import open_tables

FEW, MANY = 2_000, 8_000


def bytes_per_row(tmp_path, header, row, read):
    """How much more memory is needed for MANY rows than for FEW, at its peak."""
    peaks = []
    for count in (FEW, FEW, MANY):  # the first time, modules are imported
        path = tmp_path / f"{count}.csv"
        path.write_text(f"{header}\n" + "".join(f"{row(number)}\n" for number in range(count)))
        tracemalloc.start()
        kept = read(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        del kept
    return (peaks[2] - peaks[1]) / (MANY - FEW)


@pytest.mark.slow
def test_a_series(tmp_path):
    def row(number):
        return f"{datetime(2024, 1, 1) + timedelta(minutes=number):%Y-%m-%d %H:%M},{number % 97}"

    columns = SeriesColumns(time="time")
    read = bytes_per_row(tmp_path, "time,load", row, lambda path: read_series(open_tables(path)[""], columns))
    assert read < 150  # 10 million rows in 1.5 GB


@pytest.mark.slow
def test_labelled_texts(tmp_path):
    def row(number):
        return f"a text of some words and the number {number},{'abc'[number % 3]}"

    assert bytes_per_row(tmp_path, "text,label", row, lambda path: open_parts(path, Columns())) < 150


@pytest.mark.slow
def test_texts(tmp_path, monkeypatch):
    """Of which a part of constant size is in memory."""
    for module, name, size in (
        (corpus_module, "SAMPLED", 1000),
        (tokens_module, "SHARD", 5000),
        (encoding, "BATCH", 1000),
    ):
        monkeypatch.setattr(module, name, size)

    def read(path):
        corpus, tokenizer = open_corpus(path, text_column="text"), byte_tokenizer()
        return tokenize(corpus, "train", tokenizer, tmp_path / str(tracemalloc.get_traced_memory()), progress=False)

    assert bytes_per_row(tmp_path, "text", lambda number: f"a text of some words and the number {number}", read) < 20
