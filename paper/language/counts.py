"""N-gram counts: the perplexity of a model that knows only the last one or two tokens."""

from functools import partial

import numpy as np

from paper.harness.records import Records
from paper.harness.trial import Metrics, Options, Trial, TrialContext
from paper.language.trials import SCALES
from tnn.data import byte_tokenizer, open_corpus, tokenize
from tnn.data.tokens import cache_folder

NAMES = {2: "pairs", 3: "triples"}  # of neighbouring tokens
PRIOR = 5.0  # weight of the estimate from one token less, in occurrences


def count_trials(options: Options) -> list[Trial]:
    """Of bytes, so only at mini scale."""
    if options.scale != "mini":
        return []
    tokens = SCALES["mini"].test_tokens
    settings = {"corpus": "wikitext-2", "orders": list(NAMES), "prior": PRIOR, "tokens": tokens}
    return [Trial("alm", "counts", settings, partial(_count, max_tokens=tokens), "bytes", cost=100.0)]


def _count(context: TrialContext, max_tokens: int | None) -> Metrics:
    corpus, tokenizer = open_corpus(str(context.data / "wikitext-2")), byte_tokenizer()
    train, test = (tokenize(corpus, split, tokenizer, cache_folder()) for split in ("train", "test"))
    losses = count_losses(train.ids, test.ids[:max_tokens], train.vocab_size, max(NAMES))
    return {name: float(np.exp(losses[order - 1])) for order, name in NAMES.items()}


def count_losses(train: np.ndarray, test: np.ndarray, vocab_size: int, order: int) -> list[float]:
    """Nats per token of `test` by counts of 1, 2, ... `order` neighbours in `train`.

    Each estimate is smoothed with the one before: a context seen n times has weight n, the shorter one `PRIOR`.

    >>> import numpy as np
    >>> from paper.language.counts import count_losses
    >>> text = np.array([0, 1] * 500)
    >>> [round(loss, 2) for loss in count_losses(text, text, vocab_size=2, order=2)]
    [0.69, 0.01]
    """
    probability, losses = np.full(len(test), 1 / vocab_size), []
    for length in range(1, order + 1):
        context = _occurrences(_runs(train, length - 1, vocab_size), _runs(test, length - 1, vocab_size))
        together = _occurrences(_ends(train, length, vocab_size), _ends(test, length, vocab_size))
        probability = (together + PRIOR * probability) / (context + PRIOR)
        losses.append(float(-np.log(probability).mean()))
    return losses


def _runs(ids: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """One number for the `length` tokens before each token; zeros stand before the text."""
    return _ends(np.concatenate([[0], ids[:-1]]), length, vocab_size)


def _ends(ids: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """One number for the `length` tokens that end with each token."""
    padded = np.concatenate([np.zeros(length, np.int64), ids.astype(np.int64)])
    numbers = np.zeros(len(ids), np.int64)
    for back in range(length):
        numbers = numbers + padded[length - back : len(padded) - back] * vocab_size**back
    return numbers


def _occurrences(among: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How often each wanted number occurs in `among`."""
    values, counts = np.unique(among, return_counts=True)
    position = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[position] == wanted, counts[position], 0)


def about_counts(options: Options, records: Records) -> list[str]:
    """A note on the perplexity of counts, if it has been measured."""
    notes = []
    for trial in count_trials(options):
        if record := records.find(trial):
            pairs, triples = (record.metrics[name] for name in NAMES.values())
            notes.append(
                f"For comparison, counts of byte pairs have a perplexity of {pairs:.2f}, "
                f"counts of triples {triples:.2f}."
            )
    return notes
