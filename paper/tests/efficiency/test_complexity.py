from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from paper import published
from paper.efficiency.complexity import (
    COMPLEXITY_EXPERIMENT,
    FUSED,
    LAYERS,
    LENGTHS,
    THEORY,
    find_exponents,
    layer_step,
    make_layer,
    theoretical_exponent,
)
from paper.harness.trial import Options

GROWTHS = {"n": lambda n: n, "n log n": lambda n: n * torch.tensor(n).log().item(), "n^2": lambda n: n**2}


@pytest.fixture
def add(records, record):
    """Records a layer as if it had been measured."""

    def make(row, time, space, lengths=LENGTHS, ended=None):
        (trial,) = COMPLEXITY_EXPERIMENT.plan(Options(methods=(row,)))
        seconds, megabytes = ([1e-6 * GROWTHS[growth](n) for n in lengths] for growth in (time, space))
        made = record(trial, lengths=lengths, seconds=seconds, megabytes=megabytes, ended=ended)
        records.add(replace(made, machine={"device": "cpu", "threads": 2}))

    return make


def in_theory(formula):
    return "n^2" if "n^2" in formula else "n log n" if "log" in formula else "n"


@pytest.mark.parametrize("row", LAYERS)
def test_layers(row):
    layer = make_layer(row, channels=16, length=40)
    x = torch.randn(1, 40, 16)
    assert layer(x).shape == x.shape
    layer_step(row, 16, 40)()


def test_there_is_a_layer_for_each_column_of_the_paper():
    assert set(LAYERS) == {*published.COMPLEXITY, FUSED} == set(THEORY)


def test_attention_with_its_matrix_is_the_same_function():
    layer, x = make_layer("attention", 16, 40), torch.randn(1, 40, 16)
    fused = layer(x)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(layer(x), fused)


def test_theoretical_exponent():
    assert theoretical_exponent("n d^2", (512, 1024)) == pytest.approx(1)
    assert theoretical_exponent("n^2 d", (512, 1024)) == pytest.approx(2)
    assert theoretical_exponent("n d log n", (512, 1024)) == pytest.approx(1 + torch.tensor(10 / 9).log2().item())


def test_exponents_are_those_of_the_longer_half():
    found = find_exponents("n d log n", LENGTHS, (1.0, 1.0, 1.0, 1.0, 4.0, 16.0))
    assert found[:2] == pytest.approx((1.11, 2), abs=0.01)
    assert found.steps == pytest.approx((0, 0, 0, 2, 2))
    assert found.is_quadratic
    assert not found.agrees
    assert find_exponents("n d", LENGTHS, (5.0, 5.0, 5.0, 1.0, 2.0, 4.0))[:2] == pytest.approx((1, 1))
    assert find_exponents("n d", LENGTHS[:2], (1.0, 2.0)) is None


def test_numbers_as_in_theory_hold(add, records):
    for row, formulas in THEORY.items():
        add(row, *map(in_theory, formulas))
    outcome = COMPLEXITY_EXPERIMENT.conclude(Options(), records)
    assert [claim.verdict for claim in outcome.claims] == ["holds"] * 5
    lines = {line[0]: line[1:] for line in outcome.tables[0].rows}
    assert lines["tnn"] == ("n d log n", "1.11", "1.11", "n d", "1.00", "1.00", "16,384")
    assert lines["attention"][2] == lines["attention"][5] == "2.00"
    assert len(outcome.figure().axes) == 2


def test_others_do_not(add, records):
    add("tnn", "n^2", "n^2")
    add("attention", "n", "n", lengths=LENGTHS[:3], ended="memory")
    assert COMPLEXITY_EXPERIMENT.conclude(Options(), records).claims[1].verdict == "not measured"  # the MLP is missing
    add("mlp", "n", "n")
    outcome = COMPLEXITY_EXPERIMENT.conclude(Options(), records)
    assert [claim.verdict for claim in outcome.claims] == ["does not hold"] * 4 + ["holds in part"]
    assert (
        outcome.claims[-1].evidence == "above it: in time tnn 2.00 instead of 1.11; in memory tnn 2.00 instead of 1.00"
    )
    assert outcome.claims[3].checked.endswith("attention 1.00, 1.00; mlp 1.00, 1.00, 1.00, 1.00, 1.00.")
    assert outcome.claims[-1].checked.endswith(
        "tnn 2.00, 2.00, 2.00, 2.00, 2.00 in time, tnn 2.00, 2.00, 2.00, 2.00, 2.00 in memory."
    )
    lines = {line[0]: line[1:] for line in outcome.tables[1].rows}
    assert lines["attention"][2:] == ("2.0", "(memory)", "(memory)", "(memory)")


def test_nothing_measured(records):
    outcome = COMPLEXITY_EXPERIMENT.conclude(Options("paper"), records)
    assert {claim.verdict for claim in outcome.claims} == {"not measured"}
    assert {trial.settings["channels"] for trial in COMPLEXITY_EXPERIMENT.plan(Options("paper"))} == {512}
