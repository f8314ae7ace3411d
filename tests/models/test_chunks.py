"""Chunk by chunk, a text gives what it gives in one pass."""

import math
from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn import TNNConfig, TNNForSequenceClassification
from tnn.models.chunks import iterate_hidden_states, iterate_logits, stream_class_logits, stream_loss

LENGTH = 200
CHUNKS = (1, 3, 64, 65, 1000)
CAUSAL = {
    "decay": {"decay": 0.9},
    "short": {"decay": 0.5},  # forgets within the text
    "no decay": {"decay": 1.0},
    "learned decay": {"decay_mode": "learned"},
    "free": {"coefficients": "free", "max_lags": 20},
    "positions": {"decay": 0.9, "position_embedding": "sinusoidal"},
    "small embedding": {"decay": 0.9, "embedding_size": 5},
    "batch norm": {"decay": 0.9, "norm": "batch", "final_norm": "batch", "inner_norm": "layer"},
    "short convolution": {"decay": 0.9, "short_convolution": 4},
    "hybrid": {"decay": 0.9, "mixer": ["tnn", "attention"]},
}
BIDIRECTIONAL = {
    "decay": {"decay": 0.5},
    "max_lags": {"decay": 1.0, "max_lags": 9},
    "free": {"coefficients": "free", "max_lags": 20},
    "short convolution": {"decay": 0.5, "short_convolution": 4},
    "sinusoidal": {"decay": 0.5, "position_embedding": "sinusoidal"},
    "learned": {"decay": 0.5, "position_embedding": "learned", "max_position_embeddings": LENGTH},
    "batch norm": {"decay": 0.5, "norm": "batch", "final_norm": "batch"},
}


@pytest.fixture
def tiny(tiny):
    """Weights large enough for tokens to matter to each other, which those that training begins from are not."""
    return partial(tiny, initializer="torch")


@pytest.fixture
def ids():
    return torch.randint(3, 64, (LENGTH,))


def joined(chunks):
    return torch.cat(list(chunks), 1)


def one_pass(model, ids):
    with torch.no_grad():
        return model(ids[None]).logits


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", CAUSAL.values(), ids=CAUSAL)
def test_causal(tiny, ids, changes):
    model = tiny("causal", **changes)
    expected = one_pass(model, ids)
    for chunk in CHUNKS:
        found = list(iterate_logits(model, ids, chunk))
        assert [x.shape[1] for x in found[:-1]] == [chunk] * ((LENGTH - 1) // chunk)
        assert_same(joined(found), expected)


def test_state_space(tiny, ids):
    model = tiny("causal", decay=0.9).to_state_space(1e-2)
    for chunk in CHUNKS:
        torch.testing.assert_close(joined(iterate_logits(model, ids, chunk)), one_pass(model, ids), atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["masked", "token"])
@pytest.mark.parametrize("changes", BIDIRECTIONAL.values(), ids=BIDIRECTIONAL)
def test_bidirectional(tiny, ids, head, changes):
    model = tiny(head, **changes)
    expected = one_pass(model, ids)
    for chunk in CHUNKS:
        assert_same(joined(iterate_logits(model, ids, chunk)), expected)


def test_the_halo_is_no_longer_than_needed(tiny, ids):
    """One token less, and coefficients of size 1 make a difference."""
    model = tiny("masked", coefficients="free", max_lags=20, decay_mode="none")
    expected = one_pass(model, ids)
    assert_same(joined(iterate_logits(model, ids, 50, halo=2 * 19)), expected)
    nearly = joined(iterate_logits(model, ids, 50, halo=2 * 19 - 1))
    wrong = (nearly - expected).abs().amax((0, 2)) > 1e-4
    assert set(wrong.nonzero().flatten().tolist()) <= {49, 50, 99, 100, 149, 150}
    assert wrong.any()


def test_context_matters(tiny, ids):
    """So that the comparisons here compare something."""
    causal, masked = tiny("causal", decay=0.5), tiny("masked", decay=0.5)
    alone = torch.cat([one_pass(causal, part) for part in ids.split(50)], 1)
    assert (alone - one_pass(causal, ids)).abs().max() > 1e-2
    alone = joined(iterate_logits(masked, ids, 50, halo=0))
    assert alone.shape == one_pass(masked, ids).shape
    assert (alone - one_pass(masked, ids)).abs().max() > 1e-2


def test_a_causal_classifier_of_tokens(tiny, ids):
    model = tiny("token", is_decoder=True, decay=0.9)
    assert_same(joined(iterate_logits(model, ids, 64)), one_pass(model, ids))


@pytest.mark.parametrize("head", ["causal", "masked"])
def test_hidden_states(tiny, ids, head):
    model = tiny(head, decay=0.5)
    with torch.no_grad():
        expected = model.model(ids[None]).last_hidden_state
    assert_same(joined(iterate_hidden_states(model, ids, 64)), expected)
    assert_same(joined(iterate_hidden_states(model.model, ids, 64)), expected)


@pytest.mark.parametrize("head", ["causal", "masked"])
@pytest.mark.parametrize("sizes", [[LENGTH], [1] * LENGTH, [0, 63, 0, 1, 2, 134, 0]], ids=["one", "single", "mixed"])
def test_a_text_in_pieces(tiny, ids, head, sizes):
    model = tiny(head, decay=0.5)
    found = list(iterate_logits(model, iter(ids.split(sizes)), 64))
    assert [x.shape[1] for x in found] == [64, 64, 64, 8]
    assert_same(joined(found), one_pass(model, ids))


def test_a_text_is_read_as_it_goes(tiny, ids):
    read = []

    def pieces():
        for i, piece in enumerate(ids.split(10)):
            read.append(i)
            yield piece

    chunks = iterate_logits(tiny("causal", decay=0.5), pieces(), 10)
    assert not read
    next(chunks)
    assert read == [0]
    next(chunks)
    assert read == [0, 1]


def test_memory_does_not_grow(tiny):
    """What the cache holds after a long text is bounded by the reach."""
    model = tiny("causal", decay=0.5)
    reach = model.model.layers[0].operator.reach
    cache = model.model.new_cache()
    with torch.no_grad():
        for _ in range(20):
            model.model(torch.randint(3, 64, (1, 100)), past_key_values=cache)
    assert all(layer.state._past.shape[1] < reach + 200 for layer in cache.layers)


def test_an_empty_text(tiny):
    assert list(iterate_logits(tiny("causal"), torch.empty(0, dtype=torch.long))) == []


@pytest.mark.parametrize("changes", [CAUSAL[name] for name in ("decay", "no decay", "small embedding")])
def test_stream_loss(tiny, ids, changes):
    model = tiny("causal", **changes)
    expected = F.cross_entropy(one_pass(model, ids)[0, :-1], ids[1:]).item()
    for chunk in (*CHUNKS, LENGTH - 1, LENGTH):
        for text in (ids, iter(ids.split(7))):
            found = stream_loss(model, text, chunk)
            assert found.tokens == LENGTH - 1
            assert math.exp(found.loss) == pytest.approx(math.exp(expected), rel=1e-5)


def test_the_loss_of_few_rows_at_a_time(tiny, ids, monkeypatch):
    model = tiny("causal", decay=0.9)
    expected = stream_loss(model, ids)
    monkeypatch.setattr("tnn.models.chunks.CHUNK_ELEMENTS", 7 * 64)
    assert stream_loss(model, ids).loss == pytest.approx(expected.loss, rel=1e-6)


@pytest.mark.parametrize(
    ("head", "changes", "options", "message"),
    [
        ("causal", {}, {"chunk": 0}, "chunk must be at least 1; got 0"),
        ("causal", {}, {"halo": 4}, "halo is for bidirectional models"),
        ("masked", {"decay": 0.5}, {"halo": -1}, "halo must be 0 or more; got -1"),
        ("masked", {"decay": 1.0}, {}, "layer 0 has no bound on its lags"),
        ("causal", {"rpe_input": "normalized"}, {}, "mixer 'tnn' cannot run in chunks: .*rpe_input=\"normalized\""),
        ("masked", {"rpe_input": "normalized"}, {"halo": 9}, "mixer 'tnn' cannot run in chunks: "),
        ("causal", {"mixer": "cosformer"}, {}, "mixer 'cosformer' cannot run in chunks: it needs the whole text"),
        ("masked", {"mixer": "attention"}, {"halo": 9}, "mixer 'attention' cannot run in chunks: it needs the whole"),
        ("sequence", {}, {}, "logits for each token; got TNNForSequenceClassification"),
    ],
)
def test_what_cannot_run_in_chunks(tiny, ids, head, changes, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        iterate_logits(tiny(head, **changes), ids, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (torch.zeros(1, 5, dtype=torch.long), r"integers of shape \(length,\); got torch.int64 of \(1, 5\)"),
        ([torch.zeros(5)], "got torch.float32"),
        ([5, 6], "iterable of them; got int in it"),
    ],
    ids=["batch", "floats", "numbers"],
)
def test_what_is_no_text(tiny, text, message):
    with pytest.raises((ValueError, TypeError), match=message):
        list(iterate_logits(tiny("causal"), text))


def test_losses_refuse(tiny, ids):
    model = tiny("causal")
    with pytest.raises(ValueError, match="at least 2 tokens"):
        stream_loss(model, ids[:1])
    with pytest.raises(ValueError, match="at least 2 tokens"):
        stream_loss(model, [])
    with pytest.raises(TypeError, match="got TNNForMaskedLM"):
        stream_loss(tiny("masked"), ids)
    with pytest.raises(ValueError, match="cannot run in chunks"):
        stream_loss(tiny("causal", rpe_input="normalized"), ids)
    with pytest.raises(ValueError, match="evaluation mode"):
        stream_loss(model.train(), ids)


# --- one answer per text


@cache
def classifier(pooling, is_decoder, dtype, variant="decay"):
    changes = (CAUSAL if is_decoder else BIDIRECTIONAL)[variant]
    sizes = {"vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2}
    torch.manual_seed(0)
    config = TNNConfig(
        **{**sizes, "is_decoder": is_decoder, "pooling": pooling, "num_labels": 3, "initializer": "torch", **changes}
    )
    return TNNForSequenceClassification(config).eval().to(dtype)


POOLINGS = ("mean", "first", "last")
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("is_decoder", [True, False], ids=["causal", "bidirectional"])
@settings(max_examples=30)
@given(
    pooling=st.sampled_from(POOLINGS),
    n=st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 31, 63, 64, 65, 97]),
    chunk=st.sampled_from([1, 2, 3, 8, 13, 64, 65, 1000]),
    seed=st.integers(0, 9),
    special=st.booleans(),
)
def test_one_answer_for_a_text(is_decoder, dtype, pooling, n, chunk, seed, special):
    model = classifier(pooling, is_decoder, dtype)
    ids = torch.randint(3, 64, (n,), generator=torch.Generator().manual_seed(seed))
    if special:  # <s> text <pad> text </s>, as far as there is room
        ids = torch.cat([torch.tensor([0]), ids, torch.tensor([1]), ids.flip(0), torch.tensor([2])])
    found = stream_class_logits(model, ids, chunk)
    torch.testing.assert_close(found, one_pass(model, ids), atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
    assert found.shape == (1, 3)
    assert not found.requires_grad


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(
    ("is_decoder", "variant"),
    [*((True, name) for name in CAUSAL), *((False, name) for name in BIDIRECTIONAL)],
)
def test_one_answer_of_every_kind_of_model(pooling, is_decoder, variant):
    model = classifier(pooling, is_decoder, torch.float64, variant)
    ids = torch.randint(3, 64, (LENGTH,), generator=torch.Generator().manual_seed(1))
    tolerance = TOLERANCES[torch.float32 if variant == "batch norm" else torch.float64]
    for text in (ids, iter(ids.split(7))):
        torch.testing.assert_close(
            stream_class_logits(model, text, 64), one_pass(model, ids), atol=tolerance, rtol=tolerance
        )


def test_every_token_counts_in_the_answer():
    """So that the comparisons above compare something."""
    ids = torch.randint(3, 64, (LENGTH,), generator=torch.Generator().manual_seed(1))
    for pooling, place in (("mean", 0), ("mean", LENGTH - 1), ("first", 1), ("last", LENGTH - 2)):
        model = classifier(pooling, pooling == "last", torch.float64)
        other = ids.clone()
        other[place] = 3 if ids[place] != 3 else 4
        assert not torch.allclose(stream_class_logits(model, ids, 64), stream_class_logits(model, other, 64))


def test_the_first_position_needs_the_first_chunk_only():
    read = []

    def pieces():
        for number in range(100):
            read.append(number)
            yield torch.full((10,), 5)

    stream_class_logits(classifier("first", True, torch.float64), pieces(), 10)
    assert len(read) <= 2


@pytest.mark.parametrize(
    ("head", "changes", "ids", "message"),
    [
        ("token", {}, torch.arange(3, 9), "must be a TNNForSequenceClassification; got TNNForTokenClassification"),
        ("sequence", {"decay": 0.5}, torch.empty(0, dtype=torch.long), "at least 1 token; got an empty one"),
        ("sequence", {"decay": 1.0}, torch.arange(3, 9), "layer 0 has no bound on its lags"),
        ("sequence", {"mixer": "attention"}, torch.arange(3, 9), "mixer 'attention' cannot run in chunks"),
    ],
)
def test_no_answer(tiny, head, changes, ids, message):
    with pytest.raises((TypeError, ValueError), match=message):
        stream_class_logits(tiny(head, **changes), ids)
