import math

import pytest

from tnn.training.recipe import load_recipe
from tnn.training.schedules import learning_rate


def rates(*changes, steps=100):
    return learning_rate(load_recipe("mini-alm", ["training.learning_rate=1", *changes]).training, steps)


def test_warm_up_is_a_straight_line():
    rate = rates("training.warmup_steps=10", "training.warmup_from=0.5")
    assert [rate(step) for step in (0, 5, 10)] == [0.5, 0.75, 1.0]


def test_inverse_square_root():
    rate = rates("training.schedule=inverse-sqrt", "training.warmup_steps=16")
    assert [rate(step) for step in (16, 64, 1600)] == [1.0, 0.5, 0.1]


@pytest.mark.parametrize("power", [1, 2])
def test_polynomial(power):
    rate = rates("training.schedule=polynomial", "training.warmup_steps=20", f"training.power={power}")
    assert [rate(step) for step in (20, 60, 100)] == [1.0, 0.5**power, 0.0]


def test_cosine_ends_at_the_final_rate():
    rate = rates("training.schedule=cosine", "training.warmup_steps=0", "training.final_learning_rate=0.2")
    assert rate(0) == 1
    assert math.isclose(rate(50), 0.6)
    assert math.isclose(rate(100), 0.2)


def test_schedules_may_be_shorter_than_the_run():
    """A cosine continues along its wave, as in the paper's Long-Range Arena runs; a line stays at its end."""
    rate = rates("training.schedule=cosine", "training.warmup_steps=20", "training.schedule_steps=60")
    assert [round(rate(step), 12) for step in (20, 40, 60, 80, 100)] == [1, 0.5, 0, 0.5, 1]
    rate = rates("training.schedule=polynomial", "training.warmup_steps=0", "training.schedule_steps=50")
    assert [rate(step) for step in (25, 50, 99)] == [0.5, 0, 0]


def test_constant():
    rate = rates("training.schedule=constant", "training.warmup_steps=4")
    assert [rate(step) for step in (2, 4, 99, 1000)] == [0.5, 1, 1, 1]


def test_warm_up_as_a_share_of_the_steps():
    rate = rates("training.warmup_steps=null", "training.warmup_ratio=0.06", "training.schedule=polynomial", steps=200)
    assert rate(6) == 0.5
    assert rate(12) == 1
