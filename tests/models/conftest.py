import logging

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tnn import (
    TNNConfig,
    TNNForCausalLM,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    TNNForSequencePairClassification,
    TNNForTokenClassification,
)

HEADS = {
    "causal": TNNForCausalLM,
    "masked": TNNForMaskedLM,
    "sequence": TNNForSequenceClassification,
    "pair": TNNForSequencePairClassification,
    "token": TNNForTokenClassification,
}
VOCABULARY = 64


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture
def tiny():
    """tiny(head, **changes): a small model of that head, in evaluation mode."""

    def make(head, **changes):
        defaults = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8}
        defaults |= {"rpe_num_layers": 2, "is_decoder": head == "causal", "num_labels": 3}
        defaults |= {"initializer": "torch"}  # N(0, 0.02) would make mixing too weak for mistakes to show
        return HEADS[head](TNNConfig(**(defaults | changes))).eval()

    return make


@pytest.fixture
def inputs_for():
    """inputs_for(head, batch, n): token ids and labels of the kind the head wants."""

    def make(head, batch=2, n=10):
        ids = torch.randint(3, VOCABULARY, (batch, n))
        inputs = {"input_ids": ids}
        if head == "pair":
            inputs["pair_input_ids"] = torch.randint(3, VOCABULARY, (batch, n + 3))
        if head in ("sequence", "pair"):
            inputs["labels"] = torch.randint(0, 3, (batch,))
        elif head == "token":
            inputs["labels"] = torch.randint(0, 3, (batch, n))
        else:
            inputs["labels"] = ids.clone()
        return inputs

    return make


@pytest.fixture
def tokenizer():
    """Words w3 .. w63 beside the special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<s>", "<pad>", "</s>", "<mask>"] + [f"w{i}" for i in range(4, VOCABULARY)]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="</s>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **special)


@pytest.fixture(autouse=True)
def _quiet_transformers():
    logging.getLogger("transformers").setLevel(logging.ERROR)
