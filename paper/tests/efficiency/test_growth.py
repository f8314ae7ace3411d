from functools import partial

import pytest

from paper.efficiency.complexity import layer_step
from paper.efficiency.growth import Growth, collect_growth, exponent, measure_growth, typical
from paper.harness.trial import Trial


def test_exponent():
    lengths = [100, 200, 400]
    assert exponent(lengths, [7.0, 14.0, 28.0]) == pytest.approx(1)
    assert exponent(lengths, [3.0, 12.0, 48.0]) == pytest.approx(2)
    assert exponent([100], [7.0]) is None
    assert exponent([100, 200], [0.0, 1.0]) is None


def test_typical_is_the_median_as_far_as_all_got():
    runs = [
        Growth((1, 2, 3), (1.0, 2.0, 3.0), (10.0, 20.0, 30.0)),
        Growth((1, 2), (5.0, 6.0), (50.0, 60.0), "time"),
        Growth((1, 2, 3), (3.0, 4.0, 5.0), (20.0, 30.0, 40.0)),
    ]
    assert typical(runs) == Growth((1, 2), (3.0, 4.0), (20.0, 30.0), "time")


def test_growth_at_a_length():
    growth = Growth((64, 128), (1.0, 2.0), (10.0, 20.0), "time")
    assert growth.at(128) == (2.0, 20.0)
    assert growth.at(256) is None


def test_collect_growth_reads_what_was_recorded(records, record):
    trials = [Trial("speed", "tnn", {}, lambda context: {}, seed=seed) for seed in range(3)]
    for trial, seconds in zip(trials[:2], (1.0, 3.0), strict=True):
        records.add(record(trial, lengths=[64], seconds=[seconds], megabytes=[10.0], ended="memory", exponent=None))
    assert collect_growth(trials, records) == {"tnn": Growth((64,), (2.0,), (10.0,), "memory")}


@pytest.mark.slow
def test_memory_is_seen_and_running_out_of_it_is_an_outcome():
    found = measure_growth(partial(layer_step, "attention", 16), [64, 2048, 2_000_000], steps=1, limit=600)
    assert found.lengths == (64, 2048)
    assert found.ended == "memory"
    matrix = 2048**2 * 4 / 2**20
    assert 2 * matrix < found.megabytes[1] < 12 * matrix
    assert found.megabytes[0] < matrix
    assert 0 < found.seconds[0] < found.seconds[1]


@pytest.mark.slow
def test_a_length_does_not_pay_for_the_one_before():
    found = measure_growth(partial(layer_step, "attention", 16), [2048, 64], steps=3, limit=600)
    assert found.megabytes[1] < found.megabytes[0] / 8  # 1/1,000 in theory; freed blocks of 2,048 would be half


def test_time_runs_out():
    assert measure_growth(partial(layer_step, "fft", 16), [64], steps=1, limit=0) == Growth((), (), (), "time")


@pytest.mark.slow
def test_an_error_is_no_outcome():
    with pytest.raises(RuntimeError, match="KeyError: 'no such layer'"):
        measure_growth(partial(layer_step, "no such layer", 16), [64], steps=1, limit=600)
