"""Every backend against the dense Toeplitz product in float64."""

import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.ops import direct, native, strided, toeplitz_matmul, toeplitz_matrix
from tnn.ops.fft import circulant_column, fast_length

BACKENDS = ("auto", "dense", "fft", "banded", "native")
FAST_BACKENDS = ("auto", "fft", "banded", "native")
EDGE_LENGTHS = (1, 2, 3, 4, 5, 7, 31, 32, 33, 64, 97, 127, 128, 257)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}


def random_coefficients(lags, d, causal, dtype=torch.float64):
    return torch.randn(lags if causal else 2 * lags - 1, d, dtype=dtype)


def oracle(x, coefficients, causal):
    """The definition: sum_j t_{i-j} x_j by an explicit matrix in float64."""
    matrix = toeplitz_matrix(coefficients.double(), x.shape[-2], causal=causal)
    return torch.einsum("dij,...jd->...id", matrix, x.double())


def relative_error(y, reference):
    return ((y.double() - reference).abs().max() / reference.abs().max().clamp_min(1e-300)).item()


@st.composite
def problems(draw):
    n = draw(st.one_of(st.sampled_from(EDGE_LENGTHS), st.integers(1, 300)))
    lags = draw(st.one_of(st.just(n), st.integers(1, n), st.integers(1, 2 * n)))
    leading = draw(st.sampled_from([(), (1,), (3,), (2, 3), (2, 1, 2)]))
    d = draw(st.integers(1, 5))
    return n, lags, leading, d, draw(st.booleans()), draw(st.integers(0, 2**16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", BACKENDS)
@given(problem=problems())
def test_equals_dense_float64(backend, dtype, problem):
    n, lags, leading, d, causal, seed = problem
    torch.manual_seed(seed)
    x, coefficients = torch.randn(*leading, n, d, dtype=dtype), random_coefficients(lags, d, causal, dtype)
    y = toeplitz_matmul(x, coefficients, causal=causal, backend=backend)
    assert y.shape == x.shape
    assert y.dtype == dtype
    assert y.is_contiguous()
    assert relative_error(y, oracle(x, coefficients, causal)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(problem=problems())
def test_the_form_for_onnx_equals_dense_float64(dtype, problem):
    n, lags, leading, d, causal, seed = problem
    torch.manual_seed(seed)
    x, coefficients = torch.randn(*leading, n, d, dtype=dtype), random_coefficients(lags, d, causal, dtype)
    y = strided.convolve(x, coefficients, 0 if causal else lags - 1)
    assert y.shape == x.shape
    assert relative_error(y, oracle(x, coefficients, causal)) < TOLERANCE[dtype]


def check_fast_backends(x, coefficients, causal):
    """All of them, in float32 and float64, against one oracle: it takes most of the time."""
    reference = oracle(x, coefficients, causal)
    for dtype, tolerance in TOLERANCE.items():
        for backend in FAST_BACKENDS:
            y = toeplitz_matmul(x.to(dtype), coefficients.to(dtype), causal=causal, backend=backend)
            assert relative_error(y, reference) < tolerance, backend


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n", [509, 1021, 2048, 4093, 4099])
@pytest.mark.parametrize("fraction", [1, 0.4, 0.02])
def test_equals_dense_at_long_lengths(causal, n, fraction):
    lags = max(1, int(n * fraction))
    check_fast_backends(torch.randn(2, n, 2), random_coefficients(lags, 2, causal, torch.float32), causal)


def test_dense_float32_at_the_longest_length():
    x, coefficients = torch.randn(1, 4099, 1), random_coefficients(4099, 1, False, torch.float32)
    y = toeplitz_matmul(x, coefficients, backend="dense")
    assert relative_error(y, oracle(x, coefficients, False)) < TOLERANCE[torch.float32]


@given(problem=problems())
def test_matrix_entries_are_the_lags(problem):
    n, lags, _, d, causal, seed = problem
    n = min(n, 40)
    torch.manual_seed(seed)
    coefficients = random_coefficients(lags, d, causal)
    matrix = toeplitz_matrix(coefficients, n, causal=causal)
    assert matrix.shape == (d, n, n)
    for i in range(n):
        for j in range(n):
            index = i - j if causal else i - j + lags - 1
            known = 0 <= index < coefficients.shape[0]
            expected = coefficients[index] if known else torch.zeros(d, dtype=torch.float64)
            assert torch.equal(matrix[:, i, j], expected)


@given(n=st.integers(1, 40), extra=st.integers(0, 9), causal=st.booleans())
def test_circulant_embedding_of_the_theorem(n, extra, causal):
    """The leading block of the circulant matrix is T, and its free entry is c_n = t_0."""
    coefficients, size = random_coefficients(n, 1, causal), 2 * n + extra
    column = circulant_column(coefficients, 0 if causal else n - 1, n, size)[:, 0]
    assert column[n] == column[0]
    index = torch.arange(size)
    circulant = column[(index[:, None] - index) % size]
    assert torch.equal(circulant[:n, :n], toeplitz_matrix(coefficients, n, causal=causal)[0])


@given(minimum=st.integers(1, 100_000))
def test_fast_length_is_the_smallest_of_its_kind(minimum):
    def smooth(m):
        for prime in (2, 3, 5):
            while m % prime == 0:
                m //= prime
        return m == 1

    size = fast_length(minimum)
    assert size >= minimum
    assert size % 2 == 0
    assert smooth(size)
    assert not any(smooth(m) for m in range(minimum + minimum % 2, size, 2) if m > 0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("n", "lags"), [(1, 1), (2, 1), (3, 5), (7, 7), (11, 3)])
def test_first_and_second_derivatives(backend, causal, n, lags):
    x = torch.randn(2, n, 2, dtype=torch.float64, requires_grad=True)
    coefficients = random_coefficients(lags, 2, causal).requires_grad_()

    def product(x, coefficients):
        return toeplitz_matmul(x, coefficients, causal=causal, backend=backend)

    assert torch.autograd.gradcheck(product, (x, coefficients))
    assert torch.autograd.gradgradcheck(product, (x, coefficients))


def test_native_kernel_exists_if_it_can_be_built():
    """Otherwise the torch backends would answer all tests of "native" here."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    library, status = native.load()
    assert library is not None or compiler is None or native._disabled(), status


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n", "lags"), [(1, 1), (2, 1), (3, 5), (7, 7), (11, 3), (97, 97), (300, 20)])
def test_native_derivatives_in_the_dtype_that_it_serves(causal, n, lags):
    x, coefficients = torch.randn(2, n, 5), random_coefficients(lags, 5, causal, torch.float32)
    weights = torch.randn_like(x), torch.randn_like(x), torch.randn_like(coefficients)
    results = []
    for dtype, backend in ((torch.float32, "native"), (torch.float64, "dense")):
        inputs = [t.to(dtype).requires_grad_() for t in (x, coefficients)]
        weight, *directions = (t.to(dtype).requires_grad_() for t in weights)
        y = toeplitz_matmul(*inputs, causal=causal, backend=backend)
        first = torch.autograd.grad(y, inputs, weight, create_graph=True)
        results.append((*first, *torch.autograd.grad(first, (*inputs, weight), directions)))
    for derivative, expected in zip(*results, strict=True):
        assert derivative.dtype == torch.float32
        assert relative_error(derivative, expected) < 1e-5


@settings(max_examples=16)
@given(n=st.integers(300, 4099), share=st.floats(0, 1), causal=st.booleans(), seed=st.integers(0, 2**16))
def test_equals_dense_float64_at_any_length(n, share, causal, seed):
    torch.manual_seed(seed)
    lags = max(1, round(share * n))
    check_fast_backends(torch.randn(n, 1), random_coefficients(lags, 1, causal, torch.float32), causal)


@pytest.mark.parametrize("backend", FAST_BACKENDS)
@pytest.mark.parametrize(("rows", "n", "d", "lags"), [(3, 2100, 40, 100), (3, 2100, 40, 2100), (9, 2100, 17, 700)])
def test_products_of_several_tiles(backend, rows, n, d, lags):
    """Large enough for the product to be split by rows and by channels, with a remainder in both."""
    x, coefficients, weight = torch.randn(rows, n, d), torch.randn(2 * lags - 1, d), torch.randn(rows, n, d)
    results = []
    for dtype, name in ((torch.float32, backend), (torch.float64, "fft")):
        inputs = [t.to(dtype).requires_grad_() for t in (x, coefficients)]
        y = toeplitz_matmul(*inputs, backend=name)
        results.append((y, *torch.autograd.grad(y, inputs, weight.to(dtype))))
    for result, expected in zip(*results, strict=True):
        assert relative_error(result, expected) < 2e-6


@pytest.mark.parametrize("backend", FAST_BACKENDS)
@given(problem=problems())
def test_gradients_equal_those_of_the_dense_product(backend, problem):
    n, lags, leading, d, causal, seed = problem
    torch.manual_seed(seed)
    x, coefficients = torch.randn(*leading, n, d), random_coefficients(lags, d, causal, torch.float32)
    weight = torch.randn_like(x)
    results = []
    for dtype, name in ((torch.float32, backend), (torch.float64, "dense")):
        inputs = [t.to(dtype).requires_grad_() for t in (x, coefficients)]
        y = toeplitz_matmul(*inputs, causal=causal, backend=name)
        results.append(torch.autograd.grad((y * weight.to(dtype)).sum(), inputs))
    typical = (x.norm() * weight.norm() / x.numel() ** 0.5).item()  # a single sum over everything may cancel
    for gradient, reference in zip(*results, strict=True):
        assert (gradient - reference).abs().max() < 2e-6 * max(reference.abs().max().item(), typical)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [2, 3, 50, 301])
def test_causal_outputs_do_not_see_later_inputs(backend, n):
    x = torch.randn(1, n, 2, requires_grad=True)
    coefficients = torch.randn(n, 2)
    i = n // 2
    y = toeplitz_matmul(x, coefficients, causal=True, backend=backend)
    (gradient,) = torch.autograd.grad(y[:, i].sum(), x)
    scale = gradient.abs().max()
    assert scale > 0
    later = gradient[:, i + 1 :].abs()
    assert (later == 0).all() if backend == "dense" else (later < 1e-6 * scale).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(backend, dtype):
    x, coefficients = torch.randn(2, 100, 3).to(dtype), torch.randn(100, 3).to(dtype)
    y = toeplitz_matmul(x, coefficients, causal=True, backend=backend)
    assert y.dtype == dtype
    reference = toeplitz_matmul(x.float(), coefficients.float(), causal=True, backend=backend)
    assert torch.equal(y, reference.to(dtype))


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_does_not_lower_the_precision(backend):
    x, coefficients = torch.randn(2, 50, 3, requires_grad=True), torch.randn(50, 3, requires_grad=True)
    plain = toeplitz_matmul(x, coefficients, causal=True, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = toeplitz_matmul(x, coefficients, causal=True, backend=backend)
    assert torch.equal(plain, cast)
    for one, other in zip(*(torch.autograd.grad(y.sum(), (x, coefficients)) for y in (plain, cast)), strict=True):
        assert torch.equal(one, other)


def test_mixed_precision_takes_the_wider_type_and_returns_that_of_x():
    x, coefficients = torch.randn(20, 3), random_coefficients(20, 3, True)
    y = toeplitz_matmul(x, coefficients, causal=True, backend="fft")
    assert y.dtype == torch.float32
    assert torch.equal(y, toeplitz_matmul(x.double(), coefficients, causal=True, backend="fft").float())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [5, 64, 200])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_value_stays_in_its_row_and_channel(backend, n, bad):
    x, coefficients = torch.randn(3, n, 4, requires_grad=True), torch.randn(2 * n - 1, 4, requires_grad=True)
    clean = toeplitz_matmul(x, coefficients, backend=backend)
    broken = x.detach().clone()
    broken[1, 2, 3] = bad
    y = toeplitz_matmul(broken, coefficients, backend=backend)
    others = torch.ones_like(y, dtype=torch.bool)
    others[1, :, 3] = False
    assert torch.equal(y[others], clean[others])
    assert not y[1, :, 3].isfinite().all()

    weight = torch.ones_like(y)
    weight[1, 2, 3] = bad
    clean_grads = torch.autograd.grad(clean.sum(), (x, coefficients))
    grads = torch.autograd.grad(
        clean_again := toeplitz_matmul(x, coefficients, backend=backend), (x, coefficients), weight
    )
    assert clean_again.isfinite().all()
    assert torch.equal(grads[0][others], clean_grads[0][others])
    assert torch.equal(grads[1][:, :3], clean_grads[1][:, :3])


@given(n=st.integers(1, 60), lags=st.integers(1, 60), future=st.integers(0, 59))
def test_direct_sum_for_few_lags(n, lags, future):
    """The depthwise convolution that "auto" uses for few lags."""
    future = min(future, lags - 1)
    x, kernel = torch.randn(2, n, 3), torch.randn(lags, 3)
    y = direct.convolve(x, kernel, future)
    expected = torch.zeros(2, n, 3, dtype=torch.float64)
    for i in range(n):
        for m in range(lags):
            j = i - (m - future)
            if 0 <= j < n:
                expected[:, i] += kernel[m].double() * x[:, j].double()
    assert torch.allclose(y.double(), expected, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_inputs(backend):
    base, coefficients = torch.randn(2, 6, 40, 3), torch.randn(79, 3)
    view = base.permute(1, 0, 2, 3)[..., ::2, :]
    assert torch.equal(
        toeplitz_matmul(view, coefficients, backend=backend),
        toeplitz_matmul(view.contiguous(), coefficients, backend=backend),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_batch(backend):
    coefficients = torch.randn(9, 3, requires_grad=True)
    y = toeplitz_matmul(torch.randn(0, 5, 3), coefficients, backend=backend)
    assert y.shape == (0, 5, 3)
    y.sum().backward()
    assert torch.equal(coefficients.grad, torch.zeros(9, 3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_meta_device_gives_shapes(backend):
    x, coefficients = torch.empty(2, 7, 3, device="meta"), torch.empty(7, 3, device="meta")
    assert toeplitz_matmul(x, coefficients, causal=True, backend=backend).shape == (2, 7, 3)


FLOAT, GOOD = torch.randn(2, 5, 3), torch.randn(9, 3)
BAD_INPUT = [
    (torch.randn(3), GOOD, {}, ValueError, r"x must have shape \(..., length, channels\); got \(3,\)"),
    (torch.randn(2, 5, 4), GOOD, {}, ValueError, r"x must have 3 channels .* got shape \(2, 5, 4\)"),
    (torch.randn(2, 0, 3), GOOD, {}, ValueError, "x must hold at least one position"),
    (FLOAT.int(), GOOD, {}, TypeError, "x must be float64, .* got torch.int32"),
    (FLOAT.to(torch.complex64), GOOD, {}, TypeError, "x must be float64, .* got torch.complex64"),
    (FLOAT.tolist(), GOOD, {}, TypeError, "x must be a torch.Tensor; got list"),
    (FLOAT, GOOD.int(), {}, TypeError, "coefficients must be float64, .* got torch.int32"),
    (FLOAT, torch.randn(9), {}, ValueError, r"coefficients must have shape \(2 \* lags - 1, channels\); got \(9,\)"),
    (FLOAT, torch.randn(8, 3), {}, ValueError, "odd number of rows, .* got 8"),
    (FLOAT, torch.randn(0, 3), {"causal": True}, ValueError, "at least lag 0"),
    (FLOAT, GOOD, {"backend": "magic"}, ValueError, "backend must be one of 'auto', 'dense', .* got 'magic'"),
    (FLOAT, GOOD.to("meta"), {}, ValueError, "must share a device; got cpu and meta"),
]


@pytest.mark.parametrize(("x", "coefficients", "options", "error", "message"), BAD_INPUT)
def test_bad_input_is_named(x, coefficients, options, error, message):
    with pytest.raises(error, match=message):
        toeplitz_matmul(x, coefficients, **options)


@pytest.mark.parametrize("n", [0, -1])
def test_matrix_needs_a_length(n):
    with pytest.raises(ValueError, match="n must be at least 1"):
        toeplitz_matrix(GOOD, n)
