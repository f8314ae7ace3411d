"""The table of ranks: one line per kernel, aligned, and a line that says what the numbers mean."""

import re

import pytest
import torch

import tnn
from tnn.training.ranks import rank_table
from tnn.training.tasks.setup import model_at_start

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "rpe_size": 4, "rpe_num_layers": 1}
IMAGE = SIZES | {"image_size": 12, "patch_size": 2}


def last_lag(model, *length):
    return int(rank_table(model, *length).rpartition(" ")[2])


def test_lines_are_aligned():
    options = {"coefficients": "free", "max_lags": 200, "decay": 1.0}
    model = tnn.TNNModel(tnn.TNNConfig(vocab_size=20, **SIZES | {"hidden_size": 128}, **options))
    head, *lines, meaning = rank_table(model).splitlines()
    assert re.fullmatch(r"layer 1 +384 +-( +\d{3}/\d{3}/\d{3}){3}", lines[0])
    assert {len(head), *map(len, lines)} == {len(head)}
    assert "10%, 1%, 0.1%" in meaning


def test_layers_without_a_kernel():
    model = tnn.TNNModel(tnn.TNNConfig(vocab_size=20, **SIZES, mixer="transformer"))
    assert rank_table(model).splitlines()[1] == "layer 1, transformer  no Toeplitz kernel"


def test_the_lags_that_occur():
    assert last_lag(tnn.TNNModel(tnn.TNNConfig(vocab_size=20, **SIZES))) == 511
    grid = tnn.TNNImageModel(tnn.TNNImageConfig(**IMAGE))
    assert last_lag(grid) == 5
    assert last_lag(grid, 9) == 8
    assert last_lag(tnn.TNNImageModel(tnn.TNNImageConfig(**IMAGE, dims=1))) == 35
    assert [line[:22] for line in rank_table(grid).splitlines()[1:3]] == [
        "layer 1, along columns",
        "layer 1, along rows   ",
    ]


@pytest.mark.parametrize("preset", ["mini-lra", "mini-image"])
def test_a_preset_starts_from_the_same_weights(preset):
    state = torch.get_rng_state()
    first, second = (model_at_start(preset) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)  # the caller's numbers are left alone
    assert not first.training
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
