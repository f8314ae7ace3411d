"""The native kernel: what the tests for all backends (test_matmul.py, test_graphs.py) do not cover."""

import _ctypes
import shutil
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tnn.layers.norm import simple_rms_norm
from tnn.ops import backends, dense, native, toeplitz_matmul

pytestmark = pytest.mark.skipif(native.load()[0] is None, reason=f"native kernel: {native.load()[1]}")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def reload(monkeypatch):
    """Loads the library again with other environment variables, as a new process would."""

    def load(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        native.load.cache_clear()
        return native.load()[1]

    yield load
    native.load.cache_clear()


def relative_error(y, expected):
    return ((y.double() - expected).abs().max() / expected.abs().max().clamp_min(1e-300)).item()


@given(
    rows=st.integers(1, 3),
    n=st.one_of(st.integers(1, 40), st.integers(41, 400)),
    d=st.one_of(st.integers(1, 17), st.sampled_from([31, 32, 33, 48])),
    past=st.floats(0, 1),
    future=st.floats(0, 1),
    seed=st.integers(0, 2**16),
)
def test_any_lags_and_any_number_of_channels(rows, n, d, past, future, seed):
    """Kernels with different numbers of past and future lags, remainders of vector lanes, one frame and several."""
    torch.manual_seed(seed)
    past, future = round(past * (n - 1)), round(future * (n - 1))
    lags = past + future + 1
    x, g, kernel = torch.randn(rows, n, d), torch.randn(rows, n, d), torch.randn(lags, d)
    expected = dense.convolve(x.double(), kernel.double(), future)
    assert relative_error(native.convolve(x, kernel, future), expected) < 2e-6
    typical = (x.double().norm(dim=(0, 1)) * g.double().norm(dim=(0, 1)) / (rows * n) ** 0.5).max()
    expected = dense.correlate(x.double(), g.double(), lags, future)
    error = (native.correlate(x, g, lags, future) - expected).abs().max()
    assert error < 2e-6 * max(expected.abs().max(), typical)


@pytest.mark.parametrize("lags", [9, 30])  # term by term, and by a transform
def test_strided_input_is_read_in_place(lags):
    base = torch.randn(3, 50, 2, 24)
    for x in (
        base[:, :, 1],
        base[:, ::3, 0],
        base[::2, :, 0, 5:],
        base[:, :, 0].transpose(0, 1),
        base[:1, :, 0].expand(4, -1, -1),
    ):
        kernel = torch.randn(min(lags, x.shape[1]), x.shape[2])
        assert torch.equal(native.convolve(x, kernel, 2), native.convolve(x.contiguous(), kernel, 2))
        g = torch.randn_like(x)
        strided, contiguous = (native.correlate(each, g, len(kernel), 2) for each in (x, x.contiguous()))
        assert torch.equal(strided, contiguous)


@pytest.mark.parametrize("future", [0, 2])
def test_long_sums_of_few_lags_keep_their_digits(future):
    """All terms have one sign: in float32, a sum of 200,000 terms one after the other would lose three digits."""
    x, g = torch.rand(8, 25_000, 5), torch.rand(8, 25_000, 5)
    expected = dense_correlate_of_few_lags(x.double(), g.double(), 4, future)
    assert relative_error(native.correlate(x, g, 4, future), expected) < 1e-5


def dense_correlate_of_few_lags(x, g, lags, future):
    n = x.shape[1]
    sums = []
    for lag in range(-future, lags - future):
        later, earlier = (g, x) if lag >= 0 else (x, g)
        sums.append((later[:, abs(lag) :] * earlier[:, : n - abs(lag)]).sum((0, 1)))
    return torch.stack(sums)


@pytest.mark.parametrize(
    ("rows", "n", "d", "lags"), [(2, 700, 200, 50), (1, 5000, 16, 100), (8, 128, 96, 128), (4, 700, 200, 5)]
)
def test_results_do_not_depend_on_the_number_of_threads(threads, rows, n, d, lags):
    x, g, kernel = torch.randn(rows, n, d), torch.randn(rows, n, d), torch.randn(lags, d)
    results = []
    for count in (1, 2, 3, 8, 2):
        threads(count)
        results.append((native.convolve(x, kernel, 0), native.correlate(x, g, lags, 0)))
    for y, c in results[1:]:
        assert torch.equal(y, results[0][0])
        assert torch.equal(c, results[0][1])


def test_calls_from_several_python_threads():
    problems = [(torch.randn(2, 300 + 50 * i, 40), torch.randn(100 + i, 40)) for i in range(8)]
    expected = [native.convolve(x, kernel, 0) for x, kernel in problems]
    wrong = []

    def work(index):
        x, kernel = problems[index]
        wrong.extend(index for _ in range(20) if not torch.equal(native.convolve(x, kernel, 0), expected[index]))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


FORK = """
import os, sys, torch
from tnn.ops import native
torch.set_num_threads(2)
x, kernel = torch.randn(4, 512, 256), torch.randn(512, 256)
expected = native.convolve(x, kernel, 0)          # starts the threads of the parent
child = os.fork()
if child == 0:
    y = native.convolve(x, kernel, 0)
    torch.set_num_threads(1)                       # torch.equal would wait for threads that the child does not have
    os._exit(0 if torch.equal(y, expected) else 1)
_, status = os.waitpid(child, 0)
assert torch.equal(native.convolve(x, kernel, 0), expected)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
def test_works_in_a_forked_child():
    """In a separate process: this one has threads and should not be forked."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["portable", "avx2", "avx512"])
def test_every_instruction_set_of_this_processor(tmp_path, reload, name):
    copy = shutil.copy(native.load()[0]._name, tmp_path / f"{name}.so")  # a library chooses only once, so load a copy
    status = reload(TNN_NATIVE_ISA=name, TNN_NATIVE_LIBRARY=str(copy))
    if status != f"available ({name})":
        pytest.skip(f"this processor has no {name}")
    assert native.load()[0]._name == str(copy)
    for n, d, lags, future in [(1, 1, 1, 0), (2, 5, 3, 1), (97, 33, 50, 20), (300, 16, 299, 0), (1000, 7, 11, 10)]:
        x, g, kernel = torch.randn(2, n, d), torch.randn(2, n, d), torch.randn(lags, d)
        for result, expected in (
            (native.convolve(x, kernel, future), dense.convolve(x.double(), kernel.double(), future)),
            (native.correlate(x, g, lags, future), dense.correlate(x.double(), g.double(), lags, future)),
        ):
            assert (result - expected).abs().max() < 5e-6 * max(expected.abs().max(), n**0.5)
        check_norm(x, g)
        check_silu_product(x, g)


def check_norm(x, grad):
    """Alone, with a gate and with the SiLU of a gate, and the gradients of all."""
    gate = torch.randn_like(x)
    for gates, silu in (((), False), ((gate,), False), ((gate,), True)):
        exact = [t.double().requires_grad_() for t in (x, *gates)]
        factor = 1 if not gates else F.silu(exact[1]) if silu else exact[1]
        expected = exact[0] / (exact[0].square().mean(-1, keepdim=True).sqrt() + 1e-8) * factor
        results = (native.rms_norm(x, *(gates or (None,)), 1e-8, silu=silu),)
        results += native.rms_norm_gradient(grad, x, *(gates or (None,)), 1e-8, silu=silu)[: len(exact)]
        of_all = (expected, *torch.autograd.grad(expected, exact, grad.double()))
        for result, expected in zip(results, of_all, strict=True):
            assert (result - expected).abs().max() < 5e-6 * expected.abs().max().clamp_min(x.shape[-1])


def check_silu_product(a, grad):
    b = torch.randn_like(a)
    exact = [t.double().requires_grad_() for t in (a, b)]
    expected = F.silu(exact[0]) * exact[1]
    results = native.silu_product(a, b), *native.silu_product_gradient(grad, a, b)
    for result, wanted in zip(results, (expected, *torch.autograd.grad(expected, exact, grad.double())), strict=True):
        torch.testing.assert_close(result.double(), wanted, rtol=2e-6, atol=2e-6)


def test_can_be_switched_off(reload):
    before = native.load()[1]
    assert reload(TNN_DISABLE_NATIVE="1") == backends()["native"] == "switched off by TNN_DISABLE_NATIVE"
    y = toeplitz_matmul(torch.ones(3, 2), torch.ones(3, 2), causal=True, backend="native")
    assert torch.allclose(y[:, 0], torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(simple_rms_norm(torch.tensor([[3.0, 4.0]])), torch.tensor([[3.0, 4.0]]) / 12.5**0.5)
    with pytest.raises(RuntimeError, match="native Toeplitz kernel: switched off by TNN_DISABLE_NATIVE"):
        native.convolve(torch.ones(1, 3, 2), torch.ones(3, 2), 0)
    assert reload(TNN_DISABLE_NATIVE="0") == backends()["native"] == before


def test_a_library_of_other_sources_is_not_used(reload):
    other = _ctypes.__file__  # any library but ours
    assert reload(TNN_NATIVE_LIBRARY=other) == f"{other} was built from other sources: install the package again"
    torch.testing.assert_close(toeplitz_matmul(torch.ones(2, 1), torch.ones(2, 1), causal=True)[1], torch.tensor([2.0]))


def test_a_missing_library_is_logged_once_and_replaced(tmp_path, reload, caplog):
    reload(TNN_NATIVE_LIBRARY=str(tmp_path / "nothing.so"))
    for backend in ("auto", "native"):
        y = toeplitz_matmul(torch.ones(300, 2), torch.ones(300, 2), causal=True, backend=backend)
        assert torch.allclose(y[:, 0], torch.arange(1.0, 301), atol=1e-3)
    (record,) = caplog.records
    assert record.getMessage().startswith("native Toeplitz kernel: could not be loaded")
    assert record.getMessage().endswith("; the torch backends are used")


@pytest.mark.parametrize("backend", ["auto", "native"])
def test_other_problems_are_left_to_the_torch_backends(backend):
    x, k = torch.randn(2, 40, 3, dtype=torch.float64), torch.randn(40, 3, dtype=torch.float64)
    y = toeplitz_matmul(x, k, causal=True, backend=backend)
    assert relative_error(y, dense.convolve(x, k, 0)) < 1e-12
    n = native.MAX_LAGS + 1
    x, k = torch.randn(n, 1), torch.randn(n, 1)
    y = toeplitz_matmul(x, k, causal=True, backend=backend)
    assert relative_error(y, toeplitz_matmul(x.double(), k.double(), causal=True)) < 2e-6


def test_large_outputs():
    """Above the size from which memory is requested in large pages, with frames of several lengths."""
    for n, lags in ((9000, 300), (9000, 9000)):
        x, kernel = torch.randn(1, n, 260), torch.randn(lags, 260)
        expected = toeplitz_matmul(x.double(), kernel.double(), causal=True, backend="fft")
        assert relative_error(native.convolve(x, kernel, 0), expected) < 2e-6
