import os
import random

import pytest
import torch
from hypothesis import settings

WORDS = "a toeplitz matrix has the same entry along each diagonal so few numbers describe all of it".split()  # noqa: SIM905

# One profile for every property: the same examples each run, and no deadline, for machines are noisy.
settings.register_profile("tnn", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("tnn")

if "PYTEST_XDIST_WORKER" in os.environ:  # one worker per core: more threads would only compete
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start


def pytest_collection_modifyitems(items):
    """Slow tests first, so that no worker is left with a long one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Tokens are not kept in the home folder, nor shared between workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TNN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def one_thread():
    """For tiny models: a second thread only costs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def corpus(tmp_path):
    """A folder with train, validation and test texts of a few thousand bytes."""
    generator = random.Random(0)
    (tmp_path / "corpus").mkdir()
    for split, lines in (("train", 120), ("valid", 20), ("test", 20)):
        text = "".join(" ".join(generator.choices(WORDS, k=8)) + "\n" for _ in range(lines))
        (tmp_path / "corpus" / f"{split}.txt").write_text(text)
    return tmp_path / "corpus"
