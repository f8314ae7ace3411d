"""Section 3.4 of the paper: a convolution and a state-space model are Toeplitz operators; section 3.3: so is ALiBi."""

import math

import pytest
import torch
import torch.nn.functional as F

from tnn.ops import from_conv1d, from_state_space, toeplitz_matmul, toeplitz_matrix


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_depthwise_convolution_with_same_padding(size, n):
    layer = torch.nn.Conv1d(4, 4, size, padding="valid", groups=4, bias=False)
    x = torch.randn(2, n, 4)
    past = (size - 1) // 2  # where padding="same" puts its zeros; asked for explicitly, torch warns on even sizes
    expected = layer(F.pad(x.mT, (past, size - 1 - past))).mT
    y = toeplitz_matmul(x, from_conv1d(layer.weight))
    assert torch.allclose(y, expected, atol=1e-5)
    if size % 2:
        assert torch.equal(expected, F.conv1d(x.mT, layer.weight, padding="same", groups=4).mT)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("backend", ["dense", "fft", "banded"])
def test_causal_convolution(size, backend):
    layer = torch.nn.Conv1d(4, 4, size, groups=4, bias=False)
    x = torch.randn(2, 40, 4)
    expected = layer(F.pad(x.mT, (size - 1, 0))).mT
    y = toeplitz_matmul(x, from_conv1d(layer.weight, causal=True), causal=True, backend=backend)
    assert torch.allclose(y, expected, atol=1e-5)


def test_full_convolution_by_a_zero_padded_input():
    """The form of the paper: h * x has n + m - 1 entries, T acts on x followed by m - 1 zeros."""
    h, x = torch.randn(5), torch.randn(12)
    y = toeplitz_matmul(F.pad(x, (0, 4))[:, None], h[:, None], causal=True)
    expected = [sum(h[k] * x[i - k] for k in range(5) if 0 <= i - k < 12) for i in range(16)]
    assert torch.allclose(y[:, 0], torch.stack(expected), atol=1e-5)


def random_stable_system(d, h, dtype=torch.float32):
    A = torch.randn(d, h, h, dtype=dtype) / h**0.5
    A = 0.95 * A / torch.linalg.eigvals(A).abs().amax(-1)[:, None, None]
    return A, torch.randn(d, h, 1, dtype=dtype), torch.randn(d, 1, h, dtype=dtype)


@pytest.mark.parametrize("length", [1, 2, 3, 50, 257])
def test_state_space_recurrence(length):
    A, B, C = random_stable_system(d=6, h=4, dtype=torch.float64)
    x = torch.randn(3, length, 6, dtype=torch.float64)
    state, outputs = torch.zeros(3, 6, 4, 1, dtype=torch.float64), []
    for i in range(length):
        state = A @ state + B * x[:, i, :, None, None]
        outputs.append((C @ state)[..., 0, 0])
    expected = torch.stack(outputs, dim=1)
    for dtype in (torch.float64, torch.float32):
        kernel = from_state_space(A.to(dtype), B.to(dtype), C.to(dtype), length)
        assert kernel.shape == (length, 6)
        y = toeplitz_matmul(x.to(dtype), kernel, causal=True)
        assert (y - expected).abs().max() / expected.abs().max() < 1e-5


def test_state_space_is_differentiable_and_takes_one_system():
    A, B, C = (t[0].double().requires_grad_() for t in random_stable_system(d=1, h=3))
    assert from_state_space(A, B, C, 7).shape == (7, 1)
    assert torch.autograd.gradcheck(lambda *system: from_state_space(*system, 7), (A, B, C))


def test_autocast_does_not_lower_the_precision_of_a_state_space():
    A, B, C = random_stable_system(d=2, h=3)
    expected = from_state_space(A, B, C, 50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(from_state_space(A, B, C, 50), expected)


def test_alibi_is_a_decayed_toeplitz_matrix_inside_the_softmax():
    """exp(s_ij + m |i-j|) = exp(s_ij) * lambda^|i-j| with lambda = exp(m)."""
    n, heads = 9, 8
    slope = -(2.0 ** -torch.arange(1, heads + 1, dtype=torch.float64))  # (heads,)
    scores = torch.randn(heads, n, n, dtype=torch.float64)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    biased = torch.softmax(scores + slope[:, None, None] * lag.abs(), dim=-1)

    decay = torch.exp(slope)
    lags = torch.arange(1 - n, n).abs()[:, None]
    matrix = toeplitz_matrix(decay**lags, n)  # (heads, n, n): lambda^|i-j|
    weighted = scores.exp() * matrix
    assert torch.allclose(biased, weighted / weighted.sum(-1, keepdim=True), atol=1e-12)
    assert math.isclose(matrix[0, 0, 1].item(), math.exp(-0.5))


@pytest.mark.parametrize("shape", [(4, 4, 3), (4, 3), (4, 1, 0)])
def test_convolution_must_be_depthwise(shape):
    with pytest.raises(ValueError, match=r"weight must have the shape \(channels, 1, kernel_size\) .* got"):
        from_conv1d(torch.randn(shape))


def test_state_space_shapes_must_fit():
    with pytest.raises(ValueError, match=r"A, B, C must end in \(h, h\), \(h, 1\), \(1, h\)"):
        from_state_space(torch.randn(3, 3), torch.randn(4, 1), torch.randn(1, 3), 5)
    with pytest.raises(ValueError, match="A must be a matrix"):
        from_state_space(torch.randn(3), torch.randn(3, 1), torch.randn(1, 3), 5)
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        from_state_space(torch.randn(3, 3), torch.randn(3, 1), torch.randn(1, 3), 0)
    with pytest.raises(ValueError, match="same number of channels; got 5, 1, 1"):
        from_state_space(torch.randn(5, 3, 3), torch.randn(1, 3, 1), torch.randn(1, 1, 3), 1)
    with pytest.raises(ValueError, match="A, B, C must share a device; got meta, cpu, cpu"):
        from_state_space(torch.randn(3, 3, device="meta"), torch.randn(3, 1), torch.randn(1, 3), 5)
    with pytest.raises(TypeError, match="B must be float64"):
        from_state_space(torch.randn(3, 3), torch.ones(3, 1, dtype=torch.int64), torch.randn(1, 3), 5)
