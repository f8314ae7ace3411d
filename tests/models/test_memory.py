import pytest

from tnn.models import memory
from tnn.models.memory import SteadyMemory


@pytest.fixture
def trims(monkeypatch):
    """Sizes that the process has, one after the other, and the calls that gave memory back."""
    calls = []

    def run(*sizes):
        left = list(sizes)
        monkeypatch.setattr(memory, "_resident_pages", lambda: left.pop(0))
        monkeypatch.setattr(memory, "_trim", lambda: calls.append(len(left)))
        steady = SteadyMemory()
        while left:
            steady.check()
        return len(calls)

    return run


def test_nothing_is_done_while_the_process_does_not_grow(trims):
    assert trims(100, 101, 99, 102) == 0


def test_memory_is_given_back_once_it_has_grown(trims):
    assert trims(100, 110, 95, 102) == 1


def test_what_is_in_use_counts_as_the_new_size(trims):
    assert trims(100, 200, 200, 202) == 1


def test_real_calls_work_here():
    assert memory._resident_pages() >= 0
    memory._trim()
