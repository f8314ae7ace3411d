"""Perplexity: what one plain loop over the text gives."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from tnn import TNNConfig, TNNForCausalLM, TNNForMaskedLM
from tnn.data import byte_tokenizer
from tnn.data.blocks import MaskedBlocks
from tnn.data.tokens import Tokens
from tnn.training.perplexity import Perplexity, block_perplexity, masked_perplexity, stream_perplexity

EOS, VOCABULARY, LENGTH = 2, 261, 200
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2}


def causal(**changes):
    return TNNForCausalLM(TNNConfig(**(SMALL | {"decay": 0.9, "initializer": "torch"} | changes))).eval()


def masked():
    return TNNForMaskedLM(TNNConfig(**SMALL, is_decoder=False, initializer="torch")).eval()


def make_tokens(count=LENGTH, vocab_size=VOCABULARY):
    ids = torch.randint(4, 200, (count,)).numpy().astype(np.uint16)
    return Tokens(ids, line_ends=np.array([50, count]), words=40, bytes=3 * count, vocab_size=vocab_size)


@pytest.fixture
def tokens():
    return make_tokens()


def plain_loss(model, ids, length):
    """Nats per token: one block after the other, in float64, from all logits."""
    stream = torch.cat([torch.tensor([EOS]), torch.from_numpy(ids.astype(np.int64))])
    total = 0.0
    for first in range(0, len(ids), length):
        block = stream[first : first + length + 1]
        with torch.no_grad():
            logits = model(input_ids=block[None, :-1]).logits[0].double()
        total += F.cross_entropy(logits, block[1:], reduction="sum").item()
    return total / len(ids)


@pytest.mark.parametrize("length", [1, 7, 50, 64, LENGTH, 1000])
def test_blocks(tokens, length):
    model = causal()
    result = block_perplexity(model, tokens, length, EOS, batch_tokens=128)
    assert (result.length, result.tokens) == (length, LENGTH)  # each token once, however they are cut
    assert result.loss == pytest.approx(plain_loss(model, tokens.ids, length), rel=1e-6)
    assert result.per_token == pytest.approx(math.exp(result.loss))


def test_a_model_with_a_small_embedding(tokens):
    model = causal(embedding_size=5)
    result = block_perplexity(model, tokens, 50, EOS)
    assert result.loss == pytest.approx(plain_loss(model, tokens.ids, 50), rel=1e-6)


def test_the_batch_does_not_matter(tokens):
    model = causal().double()
    losses = [block_perplexity(model, tokens, 32, EOS, batch_tokens=n).loss for n in (1, 64, 100, 16_384)]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-12)


def test_logits_of_a_few_rows_at_a_time(tokens, monkeypatch):
    model = causal()
    expected = block_perplexity(model, tokens, 64, EOS)
    monkeypatch.setattr("tnn.training.perplexity.CHUNK_ELEMENTS", 7 * VOCABULARY)
    assert block_perplexity(model, tokens, 64, EOS).loss == pytest.approx(expected.loss, rel=1e-6)


def test_any_model_of_transformers(tokens):
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    model = GPT2LMHeadModel(config).eval()
    result = block_perplexity(model, tokens, 64, EOS, batch_tokens=128)
    assert result.loss == pytest.approx(plain_loss(model, tokens.ids, 64), rel=1e-6)


def test_a_model_that_knows_nothing(tokens):
    model = causal(tie_word_embeddings=False)
    torch.nn.init.zeros_(model.lm_head.weight)
    assert block_perplexity(model, tokens, 64, EOS).per_token == pytest.approx(VOCABULARY, rel=1e-6)


def test_words_and_bytes(tokens):
    result = block_perplexity(causal(), tokens, 64, EOS)
    nats = result.loss * LENGTH
    assert result.per_word == pytest.approx(math.exp(nats / 40))
    assert result.per_byte == pytest.approx(math.exp(nats / 600))
    assert result.bits_per_byte == pytest.approx(nats / 600 / math.log(2))


def test_a_part_of_the_text(tokens):
    model = causal()
    result = block_perplexity(model, tokens, 64, EOS, max_tokens=150)
    assert result.tokens == 150
    assert result.loss == pytest.approx(plain_loss(model, tokens.ids[:150], 64), rel=1e-6)
    assert (result.per_word, result.per_byte, result.bits_per_byte) == (None, None, None)  # its words are not known
    assert "per word" not in result.to_text()
    assert block_perplexity(model, tokens, 64, EOS, max_tokens=10**9).words == 40


def test_a_part_of_a_text_of_bytes(tokens):
    of_bytes = Tokens(tokens.ids, tokens.line_ends, words=40, bytes=LENGTH, vocab_size=260)
    result = block_perplexity(causal(), of_bytes, 64, EOS, max_tokens=150)
    assert (result.words, result.bytes) == (None, 150)
    assert result.per_byte == pytest.approx(result.per_token)


@pytest.mark.parametrize("chunk", [7, 4096])
def test_a_stream_is_one_block(tokens, chunk, monkeypatch):
    monkeypatch.setattr("tnn.training.perplexity.PIECE", 30)
    model = causal()
    result = stream_perplexity(model, tokens, EOS, chunk=chunk)
    assert (result.length, result.tokens, result.words, result.bytes) == (None, LENGTH, 40, 600)
    assert result.loss == pytest.approx(plain_loss(model, tokens.ids, LENGTH), rel=1e-6)
    part = stream_perplexity(model, tokens, EOS, chunk=chunk, max_tokens=100)
    assert (part.tokens, part.words) == (100, None)
    assert part.loss == pytest.approx(plain_loss(model, tokens.ids[:100], LENGTH), rel=1e-6)


@pytest.mark.parametrize("batch_tokens", [1, 100, 16_384])
def test_masked(tokens, batch_tokens):
    model, tokenizer = masked(), byte_tokenizer(mask=True)
    total, count = 0.0, 0
    blocks = MaskedBlocks(tokens, 60, tokenizer, 3)
    for item in (blocks[i] for i in range(len(blocks))):
        with torch.no_grad():
            logits = model(item["input_ids"][None]).logits[0]
        total += F.cross_entropy(logits.double(), item["labels"], reduction="sum").item()
        count += int((item["labels"] != -100).sum())
    result = masked_perplexity(model, tokens, 60, tokenizer, seed=3, batch_tokens=batch_tokens)
    assert result.tokens == count
    assert result.loss == pytest.approx(total / count, rel=1e-6)
    assert (result.length, result.per_word, result.per_byte) == (60, None, None)


def test_masked_is_deterministic(tokens):
    def loss(seed):
        return masked_perplexity(model, tokens, 60, byte_tokenizer(mask=True), seed).loss

    model = masked()
    assert loss(0) == loss(0) != loss(1)


def test_no_bar_where_nobody_looks(tokens, capfd):
    block_perplexity(causal(), tokens, 64, EOS)
    assert capfd.readouterr() == ("", "")


def test_infinite_and_undefined():
    assert Perplexity(512, 1e4, 10, words=1).per_token == math.inf
    assert "inf per token" in Perplexity(512, 1e4, 10, words=1).to_text()
    assert math.isnan(Perplexity(512, math.nan, 10).per_token)


MISTAKES = {
    "length": ({"length": 0}, "length must be at least 1; got 0"),
    "batch": ({"batch_tokens": 0}, "batch_tokens must be at least 1; got 0"),
    "part": ({"max_tokens": 0}, "max_tokens must be at least 1; got 0"),
    "vocabulary": ({"tokens": make_tokens(vocab_size=50_264)}, "vocabulary of 50,264 tokens and the model one of 261"),
    "empty": ({"tokens": make_tokens(0)}, "the text has no tokens"),
}


@pytest.mark.parametrize(("changes", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(tokens, changes, message):
    with pytest.raises(ValueError, match=message):
        block_perplexity(**({"model": causal(), "tokens": tokens, "length": 64, "eos": EOS} | changes))


def test_training_mode_is_refused(tokens):
    for evaluate in (block_perplexity, stream_perplexity):
        options = {"length": 64} if evaluate is block_perplexity else {}
        with pytest.raises(ValueError, match="must be in evaluation mode"):
            evaluate(causal().train(), tokens, eos=EOS, **options)
