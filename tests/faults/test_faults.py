"""Runs that are killed, damaged or starved continue to the same weights, or are refused. `make faults` does more."""

import pytest

from tests.faults import lab as faults
from tests.faults.lab import EQUAL, REFUSED, Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory, one_thread):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # for the processes that are started
        yield Lab(tmp_path_factory.mktemp("lab"))


@pytest.mark.slow
def test_killed_at_any_time(lab):
    assert faults.kill_at_any_time(lab)[0] == EQUAL


@pytest.mark.slow
def test_killed_while_saving(lab):
    assert faults.kill_while_saving(lab)[0] == EQUAL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.safetensors", "bit-flipped"),
        ("optimizer.pt", "truncated"),
        ("rng_state.pth", "deleted"),
        ("trainer_state.json", "bit-flipped"),
    ],
)
def test_a_damaged_checkpoint(lab, name, kind):
    assert faults.damage(lab, name, kind, 10) == (EQUAL, True)


@pytest.mark.slow
def test_all_checkpoints_damaged(lab):
    assert faults.damage(lab, "rng_state.pth", "bit-flipped", *faults.newest_steps(lab)) == (REFUSED, True)


@pytest.mark.slow
def test_a_full_disk(lab):
    assert faults.full_disk(lab) == (EQUAL, True)


@pytest.mark.slow
def test_two_processes(lab):
    assert faults.two_processes(lab) == (EQUAL, True)


@pytest.mark.slow
def test_a_clock_that_was_set_back(lab):
    assert faults.clock_back(lab) == (EQUAL, True)
