"""torch.func and forward mode: the product against the dense matrix, which is made of torch's own operations."""

from functools import partial

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

from tnn.layers import TNNBlock
from tnn.ops import toeplitz_matmul, toeplitz_matrix

# Warnings of torch when it first loads its decompositions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SHAPES = [(1, 1), (1, 3), (2, 1), (2, 2), (3, 5), (7, 3), (7, 7), (7, 9)]
problems = pytest.mark.parametrize(("n", "lags"), SHAPES)
directions = pytest.mark.parametrize("causal", [True, False])


def dense(x, coefficients, causal):
    return torch.einsum("dij,...jd->...id", toeplitz_matrix(coefficients, x.shape[-2], causal=causal), x)


def pair(n, lags, causal, leading=(2,), mapped=()):
    coefficients = torch.randn(*mapped, lags if causal else 2 * lags - 1, 3, dtype=torch.float64)
    return torch.randn(*leading, n, 3, dtype=torch.float64), coefficients


def scalar(product, x, coefficients):
    """Not linear in either argument, and not the same in all channels."""
    y = product(x, coefficients)
    return (y.square() * torch.arange(1, 4)).sum() + y.prod(-1).sum() ** 2


def same(transform, causal, backend="auto"):
    """`transform` gives the same for the product and for the dense one."""
    results = tree_leaves(transform(partial(toeplitz_matmul, causal=causal, backend=backend)))
    expected = tree_leaves(transform(partial(dense, causal=causal)))
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


DERIVATIVES = {
    "grad": lambda f: grad(f, (0, 1)),
    "jacrev": lambda f: jacrev(f, (0, 1)),
    "jacfwd": lambda f: jacfwd(f, (0, 1)),
    "hessian": lambda f: hessian(f, (0, 1)),
    "reverse over reverse": lambda f: jacrev(jacrev(f, (0, 1)), (0, 1)),
    "reverse over forward": lambda f: jacrev(jacfwd(f, (0, 1)), (0, 1)),
    "forward over forward": lambda f: jacfwd(jacfwd(f, (0, 1)), (0, 1)),
}


@pytest.mark.slow
@problems
@directions
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives(derivative, causal, n, lags):
    x, coefficients = pair(n, lags, causal)
    same(lambda product: DERIVATIVES[derivative](partial(scalar, product))(x, coefficients), causal)


@pytest.mark.parametrize("backend", ["dense", "fft", "banded", "native"])
@pytest.mark.parametrize("derivative", ["jacrev", "jacfwd"])
def test_every_backend(derivative, backend):
    x, coefficients = pair(7, 3, False)
    same(lambda product: DERIVATIVES[derivative](product)(x, coefficients), False, backend)


@directions
def test_third_derivatives(causal):
    x, coefficients = pair(3, 2, causal, leading=())

    def of(product):
        f = partial(scalar, product)
        return (
            jacfwd(jacrev(jacrev(f, 0), 1), 0)(x, coefficients),
            jacfwd(jacfwd(jacrev(f, 1), 0), 1)(x, coefficients),
        )

    same(of, causal)


@problems
@directions
def test_forward_derivatives_along_a_direction(causal, n, lags):
    x, coefficients = pair(n, lags, causal)
    direction = pair(n, lags, causal)
    same(lambda product: jvp(product, (x, coefficients), direction), causal)

    def by_dual_numbers(product):
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(*both) for both in zip((x, coefficients), direction, strict=True)]
            products = [product(duals[0], coefficients), product(x, duals[1]), product(*duals)]
            return [forward_ad.unpack_dual(y).tangent for y in products]

    same(by_dual_numbers, causal)


def test_forward_derivatives_in_float32():
    x, coefficients = (t.float() for t in pair(300, 40, True))
    direction = tuple(t.float() for t in pair(300, 40, True))
    _, tangent = jvp(partial(toeplitz_matmul, causal=True), (x, coefficients), direction)
    _, expected = jvp(
        partial(dense, causal=True), (x.double(), coefficients.double()), tuple(t.double() for t in direction)
    )
    assert tangent.dtype == torch.float32
    assert (tangent - expected).abs().max() < 2e-6 * expected.abs().max()


@problems
@directions
@pytest.mark.parametrize("leading", [(), (2,)])
def test_vmap(causal, leading, n, lags):
    x, coefficients = pair(n, lags, causal, leading=(*leading, 4), mapped=(4,))  # the mapped axis is not the first of x
    alone = x.select(len(leading), 0)
    along = (len(leading), 0)
    same(lambda product: vmap(product, (along[0], None))(x, coefficients[0]), causal)
    same(lambda product: vmap(product, (None, 0), out_dims=-1)(alone, coefficients), causal)
    same(lambda product: vmap(product, along)(x, coefficients), causal)
    same(lambda product: vmap(vmap(product, (None, 0)), (along[0], None))(x, coefficients), causal)
    same(lambda product: vmap(grad(partial(scalar, product), (0, 1)), along)(x, coefficients), causal)
    same(lambda product: vmap(jacfwd(partial(scalar, product)), (along[0], None))(x, coefficients[0]), causal)

    def gradient_of_a_mapped_sum(product):
        return grad(lambda *both: vmap(partial(scalar, product), along)(*both).square().sum(), (0, 1))(x, coefficients)

    same(gradient_of_a_mapped_sum, causal)


def test_many_gradients_at_once():
    """Of the plain operators, as torch.autograd.functional does with vectorize=True."""
    x, coefficients = (t.requires_grad_() for t in pair(7, 3, False))
    weight = torch.randn(5, 2, 7, 3, dtype=torch.float64)
    y = toeplitz_matmul(x, coefficients)
    gradients = torch.autograd.grad(y, (x, coefficients), weight, is_grads_batched=True, retain_graph=True)
    for i in range(5):
        expected = torch.autograd.grad(y, (x, coefficients), weight[i], retain_graph=True)
        for one, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(one[i], other)


@pytest.mark.parametrize("options", [{"causal": True}, {}, {"coefficients": "free", "max_lags": 5}])
def test_gradients_of_a_block_for_each_sample(options):
    block = TNNBlock(8, rpe_size=8, rpe_num_layers=1, **options)
    parameters, x = dict(block.named_parameters()), torch.randn(4, 9, 8)

    def loss(parameters, row):
        return functional_call(block, parameters, (row,)).square().sum()

    gradients = vmap(grad(loss), (None, 0))(parameters, x)
    for i in range(4):
        expected = torch.autograd.grad(block(x[i]).square().sum(), list(parameters.values()))
        for name, gradient in zip(parameters, expected, strict=True):
            torch.testing.assert_close(gradients[name][i], gradient, atol=1e-5, rtol=1e-4)
