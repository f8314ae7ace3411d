import pytest
import torch
from hypothesis import settings

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
