"""How decoders are timed."""

import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.training import speed
from tnn.training.speed import decoding_speed


def small(**changes):
    return TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, rpe_size=8, **changes)).eval()


@pytest.mark.parametrize(
    ("changes", "decoders"), [({}, ["exact", "recompute"]), ({"rpe_input": "normalized"}, ["recompute"])]
)
def test_only_decoders_that_the_model_has(changes, decoders):
    speeds = decoding_speed(small(**changes), [8, 16], new_tokens=2)
    assert [(row.decoder, row.context) for row in speeds] == [(name, n) for n in (8, 16) for name in decoders]
    assert all(row.tokens_per_second > 0 for row in speeds)


def test_the_clock_waits_for_the_device(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    speed._now(torch.device("cpu"))
    assert waited == []
    assert speed._now(torch.device("cuda", 1)) > 0
    assert waited == [torch.device("cuda", 1)]
