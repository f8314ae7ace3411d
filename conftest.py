import random

import pytest
import torch
from hypothesis import settings

WORDS = "a toeplitz matrix has the same entry along each diagonal so few numbers describe all of it".split()  # noqa: SIM905

# One profile for every property: the same examples each run, and no deadline, for machines are noisy.
settings.register_profile("tnn", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("tnn")


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
