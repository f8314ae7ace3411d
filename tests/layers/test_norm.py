"""The norms: the gradient of the paper's norm against that of its single steps."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from tnn.layers import SimpleRMSNorm
from tnn.layers.norm import simple_rms_norm

EPS = 1e-8


def by_steps(x: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


@given(
    shape=st.lists(st.integers(1, 5), max_size=3),
    channels=st.sampled_from([1, 2, 3, 7, 64]),
    scale=st.sampled_from([1e-8, 1e-3, 1.0, 1e4]),
    eps=st.sampled_from([EPS, 0.1]),
)
def test_gradient_is_that_of_the_steps(shape, channels, scale, eps):
    x = (scale * torch.randn(*shape, channels, dtype=torch.float64)).requires_grad_()
    grad = torch.randn_like(x)
    expected = torch.autograd.grad(by_steps(x, eps), x, grad)[0]
    y = simple_rms_norm(x, eps)
    torch.testing.assert_close(y, by_steps(x, eps), rtol=1e-12, atol=0)
    size = float(
        (grad / (x.detach().square().mean(-1, keepdim=True).sqrt() + eps)).abs().max()
    )  # of what is subtracted
    torch.testing.assert_close(torch.autograd.grad(y, x, grad)[0], expected, rtol=1e-9, atol=1e-12 * size)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_gradients_of_first_and_second_order(channels):
    x = torch.randn(3, channels, dtype=torch.float64, requires_grad=True)
    assert gradcheck(simple_rms_norm, x)
    assert gradgradcheck(simple_rms_norm, x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, at the first forward derivative
def test_forward_mode_and_transforms_agree_with_the_gradient():
    x = torch.randn(4, 3, dtype=torch.float64)
    expected = torch.stack([torch.autograd.functional.jacobian(simple_rms_norm, row) for row in x])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(torch.func.vmap(jacobian(simple_rms_norm))(x), expected)


def test_a_row_of_zeros_stays_zero_and_its_gradient_is_finite():
    x = torch.zeros(2, 3, requires_grad=True)
    y = simple_rms_norm(x)
    y.backward(torch.full_like(x, 1e-3))
    assert not y.any()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1e5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    x = (300 * torch.randn(2, 5, 64)).to(dtype).requires_grad_()  # its squares are too large for float16
    y = SimpleRMSNorm()(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(y, by_steps(x.float()).to(dtype))


def test_training_and_evaluation_give_the_same_bits():
    x = torch.randn(4, 64)
    assert torch.equal(simple_rms_norm(x.clone().requires_grad_()), simple_rms_norm(x))
