"""Blocks, masks, the order of training examples, batches."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tnn.data import CausalBlocks, MaskedBlocks, ShuffledEpochs, Tokens, byte_tokenizer, collate

TOKENIZER = byte_tokenizer(mask=True)


def make_tokens(lengths, dtype=np.uint16):
    """Lines of these lengths, their end included; the ids differ."""
    ids = 4 + np.arange(sum(lengths)) % 256
    ends = np.cumsum(lengths)
    ids[ends - 1] = 2
    return Tokens(ids.astype(dtype), ends, words=1, bytes=1, vocab_size=261)


def plain(example):
    """The original tokens of a masked example."""
    return torch.where(example["labels"] == -100, example["input_ids"], example["labels"]).tolist()


@given(n=st.integers(1, 40), length=st.integers(1, 45), dtype=st.sampled_from([np.uint16, np.uint32]))
def test_causal_blocks_predict_each_token_once(n, length, dtype):
    tokens = make_tokens([n], dtype)
    blocks = [block["input_ids"] for block in CausalBlocks(tokens, length, eos=2)]
    assert [token for block in blocks for token in block[1:].tolist()] == tokens.ids.tolist()
    assert [int(block[0]) for block in blocks] == [2, *tokens.ids[length - 1 : n - 1 : length].tolist()]
    assert all(len(block) == length + 1 for block in blocks[:-1])
    assert all(block.dtype == torch.long for block in blocks)


def test_bad_blocks():
    empty = Tokens(np.array([], np.uint16), np.array([], np.int64), words=0, bytes=0, vocab_size=261)
    with pytest.raises(ValueError, match="the text has no tokens"):
        CausalBlocks(empty, 4, eos=2)
    with pytest.raises(ValueError, match="the text has no tokens"):
        MaskedBlocks(empty, 4, TOKENIZER, seed=0)
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        CausalBlocks(make_tokens([3]), 0, eos=2)
    with pytest.raises(ValueError, match="length must be at least 2, for <s> and a token; got 1"):
        MaskedBlocks(make_tokens([3]), 1, TOKENIZER, seed=0)
    with pytest.raises(ValueError, match="need a tokenizer with a mask token"):
        MaskedBlocks(make_tokens([3]), 4, byte_tokenizer(), seed=0)
    for dataset in (CausalBlocks(make_tokens([3]), 2, eos=2), MaskedBlocks(make_tokens([3]), 9, TOKENIZER, seed=0)):
        for index in (-1, len(dataset)):
            with pytest.raises(IndexError):
                dataset[index]


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=20), length=st.integers(2, 10))
def test_masked_blocks_hold_complete_lines(lengths, length):
    tokens = make_tokens(lengths)
    blocks = [plain(block) for block in MaskedBlocks(tokens, length, TOKENIZER, seed=1)]
    assert all(block[0] == 0 and 2 <= len(block) <= length for block in blocks)
    assert [token for block in blocks for token in block[1:]] == tokens.ids.tolist()
    expected, held = [], 0  # the same by counting lines, one after the other
    for line in lengths:
        while held + line > length - 1:
            if held:
                expected.append(held)
                held = 0
            elif line > length - 1:
                expected.append(length - 1)
                line -= length - 1
        held += line
    expected += [held] if held else []
    assert [len(block) - 1 for block in blocks] == expected


def test_a_cut_line_ends_where_the_next_begins():
    blocks = MaskedBlocks(make_tokens([9, 1, 4, 1]), 5, TOKENIZER, seed=0)
    assert [len(plain(block)) - 1 for block in blocks] == [4, 4, 2, 4, 1]


def test_the_statistics_of_masking():
    blocks = MaskedBlocks(make_tokens([50] * 4000), 101, TOKENIZER, seed=3)
    ids = torch.stack([blocks[i]["input_ids"] for i in range(len(blocks))])  # (2000, 101)
    labels = torch.stack([blocks[i]["labels"] for i in range(len(blocks))])
    selected = labels != -100
    assert {*selected.sum(dim=1).tolist()} == {15, 16}  # 15.15, rounded at random
    assert selected.float().mean() == pytest.approx(0.15, abs=0.001)
    assert selected.float().mean(dim=0).sub(0.15).abs().max() < 0.05  # anywhere: <s>, </s> and the last too
    before, after = labels[selected], ids[selected]
    masked, kept = after == 260, after == before
    assert masked.float().mean() == pytest.approx(0.8, abs=0.01)
    assert kept.float().mean() == pytest.approx(0.1, abs=0.01)
    random = after[~masked & ~kept]
    assert {*random.tolist()} == {*range(4, 260)}  # every token that is not special
    assert ids[~selected].max() < 260


@pytest.mark.parametrize("line", [1, 2, 3])
def test_the_shortest_block_has_something_to_predict(line):
    blocks = MaskedBlocks(make_tokens([line] * 50), line + 1, TOKENIZER, seed=0)
    assert all((block["labels"] != -100).sum() == 1 for block in blocks)


def test_masks_follow_from_seed_and_index():
    def labels(seed, index):
        return MaskedBlocks(make_tokens([30] * 4), 31, TOKENIZER, seed)[index]["labels"].tolist()

    assert labels(0, 1) == labels(0, 1)
    assert labels(0, 1) != labels(1, 1)
    blocks = MaskedBlocks(make_tokens([30] * 4), 31, TOKENIZER, seed=0)
    forwards = [blocks[i]["input_ids"].tolist() for i in range(4)]
    assert [blocks[i]["input_ids"].tolist() for i in reversed(range(4))] == forwards[::-1]


@given(n=st.integers(1, 9), epochs=st.integers(1, 4))
def test_each_epoch_has_all_examples(n, epochs):
    order = ShuffledEpochs(range(n), seed=5, count=n * epochs)
    seen = [order[i] for i in range(len(order))]
    assert all(sorted(seen[e * n : (e + 1) * n]) == list(range(n)) for e in range(epochs))
    assert [order[i] for i in reversed(range(len(order)))] == seen[::-1]  # in any order of access


def test_repeated_examples_follow_each_other():
    order = [ShuffledEpochs("abcdef", seed=0, count=12, repeats=3)[i] for i in range(12)]
    assert [order[i] == order[i + 1] == order[i + 2] for i in (0, 3, 6, 9)] == [True] * 4
    assert len(set(order[:6])) == 2  # of six in an epoch
    assert order[:6] != order[6:]


def test_orders_differ_by_epoch_and_seed():
    order, other = (list(ShuffledEpochs(range(100), seed, count=200)) for seed in (0, 1))
    assert order[:100] != order[100:] != other[100:]
    assert order[:100] != list(range(100))


def test_a_prefix_is_the_same_order():
    assert list(ShuffledEpochs(range(10), 0, count=25)) == list(ShuffledEpochs(range(10), 0, count=1000))[:25]


def test_a_long_training_needs_little_memory():
    order = ShuffledEpochs(range(1000), seed=0, count=50_000 * 512)
    assert len(order) == 25_600_000
    assert 0 <= order[25_599_999] < 1000
    assert order._permutation.size == 1000


def test_bad_orders():
    with pytest.raises(ValueError, match="the training set is empty"):
        ShuffledEpochs([], seed=0, count=1)
    with pytest.raises(ValueError, match="count must be at least 1; got 0"):
        ShuffledEpochs("abc", seed=0, count=0)
    with pytest.raises(IndexError, match="index 8 is not one of 0 to 7"):
        ShuffledEpochs("abc", seed=0, count=8)[8]


def test_masks_are_new_in_each_epoch():
    order = ShuffledEpochs(MaskedBlocks(make_tokens([30]), 31, TOKENIZER, seed=0), seed=0, count=3)
    examples = [order[i] for i in range(3)]
    assert plain(examples[0]) == plain(examples[1]) == plain(examples[2])
    assert len({tuple(example["labels"].tolist()) for example in examples}) == 3
    assert order[1]["input_ids"].tolist() == examples[1]["input_ids"].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_change_nothing(workers):
    order = ShuffledEpochs(MaskedBlocks(make_tokens([7, 9, 4, 11]), 12, TOKENIZER, seed=0), seed=0, count=10)
    context = "fork" if workers else None
    loader = DataLoader(order, 4, num_workers=workers, collate_fn=collate(1), multiprocessing_context=context)
    rows = [row[row != 1].tolist() for batch in loader for row in batch["input_ids"]]
    assert rows == [order[i]["input_ids"].tolist() for i in range(10)]


def test_datasets_can_be_pickled():
    order = ShuffledEpochs(MaskedBlocks(make_tokens([7, 9]), 12, TOKENIZER, seed=0), seed=0, count=5)
    copy, batch = pickle.loads(pickle.dumps(order)), pickle.loads(pickle.dumps(collate(1)))
    assert batch([copy[4]])["input_ids"].tolist() == collate(1)([order[4]])["input_ids"].tolist()


def test_a_batch_of_equal_blocks():
    batch = collate(1)([{"input_ids": torch.tensor([2, 5])}, {"input_ids": torch.tensor([5, 6])}])
    assert sorted(batch) == ["input_ids", "labels"]
    assert batch["labels"].tolist() == batch["input_ids"].tolist() == [[2, 5], [5, 6]]


def test_a_padded_batch():
    long = {
        "input_ids": torch.tensor([0, 1, 5]),
        "labels": torch.tensor([-100, 7, -100]),
    }  # an id equal to that of padding
    short = {"input_ids": torch.tensor([0]), "labels": torch.tensor([6])}
    batch = collate(1)([short, long])
    assert batch["input_ids"].tolist() == [[0, 1, 1], [0, 1, 5]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[6, -100, -100], [-100, 7, -100]]
    unlabelled = collate(1)([{"input_ids": example["input_ids"]} for example in (short, long)])
    assert unlabelled["labels"].tolist() == [[0, -100, -100], [0, 1, 5]]


@pytest.mark.parametrize(("labels", "dtype"), [([1, 0], torch.long), ([2.5, 0.0], torch.float32)])
def test_one_label_per_text(labels, dtype):
    batch = collate(1)([{"input_ids": [0, 2], "labels": labels[0]}, {"input_ids": [0], "labels": labels[1]}])
    assert (batch["labels"].tolist(), batch["labels"].dtype) == (labels, dtype)
    assert batch["input_ids"].tolist() == [[0, 2], [0, 1]]
