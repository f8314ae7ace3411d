"""A gate times a second factor: values and gradients against torch's single steps in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from tnn.layers import GatedLinearUnit
from tnn.layers.activation import ACTIVATIONS, gated
from tnn.layers.decay import Decay

PRECISION = {torch.float32: 2e-6, torch.float64: 1e-12}


@given(
    shape=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    scale=st.sampled_from([1e-6, 1.0, 30.0, 1e3]),
    name=st.sampled_from(["silu", "relu"]),
    dtype=st.sampled_from(list(PRECISION)),
    seed=st.integers(0, 2**16),
)
def test_values_and_gradients_are_those_of_the_steps(shape, scale, name, dtype, seed):
    torch.manual_seed(seed)
    a, b = (scale * torch.randn(shape)).to(dtype).requires_grad_(), torch.randn(shape).to(dtype).requires_grad_()
    grad = torch.randn(shape).to(dtype)
    exact = [t.detach().double().requires_grad_() for t in (a, b)]
    expected = ACTIVATIONS[name](exact[0]) * exact[1]
    results = gated(name, a, b), *torch.autograd.grad(gated(name, a, b), (a, b), grad)
    for result, wanted in zip(results, (expected, *torch.autograd.grad(expected, exact, grad.double())), strict=True):
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), wanted, rtol=PRECISION[dtype], atol=PRECISION[dtype])


def test_far_from_zero_silu_is_the_identity_or_zero():
    gate = torch.tensor([-1e30, -200.0, -88.0, -87.0, -86.0, 0.0, 86.0, 88.0, 200.0, 1e30] * 3, requires_grad=True)
    y = gated("silu", gate, torch.ones(len(gate)))
    torch.testing.assert_close(y, F.silu(gate), rtol=1e-6, atol=1e-35)
    (slope,) = torch.autograd.grad(y.sum(), gate)
    assert slope.isfinite().all()
    assert gated("silu", torch.tensor([math.inf]), torch.ones(1)) == math.inf


def test_a_nan_stays_where_it_is():
    gate = torch.randn(37)
    gate[5] = torch.nan
    gate.requires_grad_()
    y = gated("silu", gate, torch.ones(37))
    y.sum().backward()
    for result in (y, gate.grad):
        assert result.isnan().nonzero().tolist() == [[5]]


def test_gradients_of_first_and_second_order():
    a, b = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert gradcheck(lambda a, b: gated("silu", a, b), (a, b))
    assert gradgradcheck(lambda a, b: gated("silu", a, b), (a, b))


def test_second_order_in_float32():
    results = []
    for dtype in (torch.float64, torch.float32):
        torch.manual_seed(0)
        a, b = torch.randn(3, 33).to(dtype).requires_grad_(), torch.randn(3, 33).to(dtype)
        (first,) = torch.autograd.grad(gated("silu", a, b).pow(2).sum(), a, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), a)[0].double())
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_any_strides_broadcasts_and_half_types():
    a, b = torch.randn(5, 24, 3).transpose(1, 2), torch.randn(24, 5, 3).permute(1, 2, 0)
    for x, y in ((a, b), (a[:, :, ::2], b[:, :, ::2]), (a, b[:1, :, :1])):
        torch.testing.assert_close(gated("silu", x, y), F.silu(x) * y)
    assert gated("silu", a.bfloat16(), b.bfloat16()).dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, at the first forward derivative
def test_transforms_agree_with_the_gradient():
    a, b = torch.randn(4, 3), torch.randn(3)
    expected = torch.stack([torch.autograd.functional.jacobian(lambda x: F.silu(x) * b, row) for row in a])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(torch.func.vmap(jacobian(lambda x: gated("silu", x, b)))(a), expected)
    leaves = [torch.randn(3, 7, requires_grad=True) for _ in range(2)]
    y, grads = gated("silu", *leaves), torch.randn(5, 3, 7)
    batched = torch.autograd.grad(y, leaves, grads, is_grads_batched=True, retain_graph=True)
    for number, grad in enumerate(grads):
        for one, many in zip(torch.autograd.grad(y, leaves, grad, retain_graph=True), batched, strict=True):
            torch.testing.assert_close(many[number], one)


def test_dropout_of_a_glu_is_of_the_gate_alone():
    glu = GatedLinearUnit(8, dropout=0.5)
    x = torch.randn(2, 5, 8)
    torch.manual_seed(1)
    y = glu(x)
    torch.manual_seed(1)
    gate = F.dropout(F.silu(glu.gate_proj(x)), 0.5)
    torch.testing.assert_close(y, glu.out_proj(gate * glu.value_proj(x)))
    glu.eval()
    torch.testing.assert_close(glu(x), glu.out_proj(F.silu(glu.gate_proj(x)) * glu.value_proj(x)))


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize(("decay", "mode"), [([0.3, 0.99], "learned"), ([0.3, 0.99], "fixed"), (0.5, "fixed")])
def test_decays_have_no_subnormal_numbers(dtype, decay, mode):
    """Processors take a hundred times as long for those; what is cut is far below the precision."""
    lags = torch.arange(2000, dtype=dtype)
    module = Decay(5, decay, mode).to(dtype)
    powers = module(lags)
    normal = powers.detach()[powers.detach() != 0]
    assert normal.min() >= torch.finfo(dtype).tiny ** 0.81
    rate = powers[1].detach().double()
    torch.testing.assert_close(powers.detach().double(), rate ** lags[:, None].double(), rtol=1e-3, atol=1e-29)
    if mode == "learned":
        powers.sum().backward()
        assert module.logit.grad.isfinite().all()
