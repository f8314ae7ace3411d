import pytest
import torch

from paper.efficiency.speed import ROWS
from paper.efficiency.steps import block_parameters, configuration, training_step


@pytest.mark.parametrize("method", ROWS)
def test_models_are_of_like_size(method):
    assert block_parameters(method) == pytest.approx(750_000, rel=0.08)


def test_tables_are_as_long_as_the_input():
    assert configuration("gmlp", 300).mixer_options == {"expansion": 5, "max_length": 300}
    assert configuration("s4", 300).mixer_options == {"state_size": 16}
    assert configuration("gmlp", 200).mixer_options["max_length"] == 200  # and leaves the others alone


def test_a_step_trains(monkeypatch):
    optimizers = []
    make = torch.optim.AdamW
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **k: optimizers.append(make(*a, **k)) or optimizers[-1])
    step = training_step("tnn", 2, 20)
    parameters = optimizers[0].param_groups[0]["params"]
    before = [p.detach().clone() for p in parameters]
    step()
    assert all(p.grad is not None for p in parameters)
    assert sum(not torch.equal(p, old) for p, old in zip(parameters, before, strict=True)) > len(parameters) / 2
