"""The paper's norm, alone and with a gate: values and gradients against its single steps in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from tnn.layers import SimpleRMSNorm
from tnn.layers.norm import simple_rms_norm
from tnn.ops import native

EPS = 1e-8
PRECISION = {torch.float32: 2e-6, torch.float64: 1e-12}


def by_steps(x, gate=None, eps=EPS, silu=False):
    y = x / (x.square().mean(-1, keepdim=True).sqrt() + eps)
    return y if gate is None else y * (F.silu(gate) if silu else gate)


def same(y, expected, size, dtype):
    assert y.dtype == dtype
    assert (y.double() - expected).abs().max() <= PRECISION[dtype] * size


@given(
    shape=st.lists(st.integers(1, 5), max_size=3),
    channels=st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 65, 127, 256])),
    scale=st.sampled_from([1e-8, 1e-3, 1.0, 1e4]),
    eps=st.sampled_from([EPS, 0.1]),
    gated=st.booleans(),
    silu=st.booleans(),
    dtype=st.sampled_from(list(PRECISION)),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_those_of_the_steps(shape, channels, scale, eps, gated, silu, dtype, seed):
    torch.manual_seed(seed)
    tensors = [scale * torch.randn(*shape, channels), torch.randn(*shape, channels)][: 1 + gated]
    grad = torch.randn(*shape, channels)
    tensors = [t.to(dtype).requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    expected = by_steps(*exact[:1], *(exact[1:] or [None]), eps, silu)
    y = simple_rms_norm(tensors[0], eps, tensors[1] if gated else None, silu=silu)
    same(y, expected, expected.abs().max(), dtype)
    from_x, *from_gate = torch.autograd.grad(y, tensors, grad.to(dtype))
    expected_x, *expected_gate = torch.autograd.grad(expected, exact, grad.double())
    largest = (grad.abs() * (tensors[1].abs() if gated else 1)).max() * channels**0.5  # of what is subtracted
    same(from_x, expected_x, largest / (exact[0].square().mean(-1).sqrt().min() + eps), dtype)
    if gated:
        same(from_gate[0], expected_gate[0], expected_gate[0].abs().max(), dtype)


@pytest.mark.parametrize("gated", [False, True])
def test_gradients_of_first_and_second_order(gated):
    tensors = [torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(1 + gated)]

    for silu in (False, True):

        def norm(x, gate=None, silu=silu):
            return simple_rms_norm(x, EPS, gate, silu=silu)

        assert gradcheck(norm, tensors)
        assert gradgradcheck(norm, tensors)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("wanted", ["x", "gate"])
def test_second_order_in_float32(gated, wanted):
    """Where the native norm computes the values: the gradient of a gradient must not take them for constants."""
    if wanted == "gate" and not gated:
        pytest.skip("there is no gate")
    results = []
    for norm, dtype in ((by_steps, torch.float64), (lambda x, gate: simple_rms_norm(x, EPS, gate), torch.float32)):
        torch.manual_seed(0)
        x, gate = torch.randn(3, 33).to(dtype), torch.randn(3, 33).to(dtype) if gated else None
        leaf = (x if wanted == "x" else gate).requires_grad_()
        (first,) = torch.autograd.grad(norm(x, gate).pow(3).sum(), leaf, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), leaf)[0].double())
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4 * float(results[0].abs().max()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, at the first forward derivative
def test_forward_mode_and_transforms_agree_with_the_gradient():
    x = torch.randn(4, 3)
    expected = torch.stack([torch.autograd.functional.jacobian(simple_rms_norm, row) for row in x])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(torch.func.vmap(jacobian(simple_rms_norm))(x), expected)


@pytest.mark.parametrize("gated", [False, True])
def test_many_gradients_at_once(gated):
    """torch maps the backward pass over a batch of gradients, which have no memory of their own."""
    tensors = [torch.randn(3, 7, requires_grad=True) for _ in range(1 + gated)]
    y = simple_rms_norm(tensors[0], EPS, tensors[1] if gated else None)
    grads = torch.randn(5, *y.shape)
    batched = torch.autograd.grad(y, tensors, grads, is_grads_batched=True, retain_graph=True)
    for number, grad in enumerate(grads):
        for one, many in zip(torch.autograd.grad(y, tensors, grad, retain_graph=True), batched, strict=True):
            torch.testing.assert_close(many[number], one)


def test_a_row_of_zeros_stays_zero_and_its_gradient_is_finite():
    x = torch.zeros(2, 19, requires_grad=True)
    y = simple_rms_norm(x)
    y.backward(torch.full_like(x, 1e-3))
    assert not y.any()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1e5))


def test_a_nan_stays_in_its_row():
    x = torch.randn(4, 37, requires_grad=True)
    with torch.no_grad():
        x[1, 5] = torch.nan
    y = simple_rms_norm(x)
    y.sum().backward()
    for result in (y, x.grad):
        assert result[1].isnan().all()
        assert result[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    x = (300 * torch.randn(2, 5, 64)).to(dtype).requires_grad_()  # its squares are too large for float16
    y = SimpleRMSNorm()(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(y, by_steps(x.float()).to(dtype))


def test_training_and_evaluation_give_the_same_bits():
    x = torch.randn(4, 65)
    assert torch.equal(simple_rms_norm(x.clone().requires_grad_()), simple_rms_norm(x))


def test_any_strides_and_no_rows():
    x, gate = torch.randn(5, 24, 3).transpose(1, 2), torch.randn(24, 5, 3).permute(1, 2, 0)
    for a, b in ((x, gate), (x[:, :, ::2], gate[:, :, ::2]), (x[:1].expand(4, -1, -1), gate[:4])):
        torch.testing.assert_close(simple_rms_norm(a, EPS, b), by_steps(a, b))
    torch.testing.assert_close(simple_rms_norm(x, EPS, gate[:1, :, :1]), by_steps(x, gate[:1, :, :1]))
    assert simple_rms_norm(x[:0], EPS, gate[:0]).shape == (0, 3, 24)


@pytest.mark.skipif(native.load()[0] is None, reason=f"native kernel: {native.load()[1]}")
def test_threads_share_the_rows():
    x = torch.randn(301, 511)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(simple_rms_norm(x))
    torch.set_num_threads(before)
    assert all(torch.equal(results[0], result) for result in results)
    torch.testing.assert_close(results[0], by_steps(x))


def test_fake_tensors_have_a_shape():
    with torch._subclasses.FakeTensorMode():
        assert simple_rms_norm(torch.randn(2, 3, 8)).shape == (2, 3, 8)
