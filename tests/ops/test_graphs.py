"""torch.compile, torch.export and torch.library's own checks."""

import pytest
import torch

from tnn.ops import toeplitz_matmul
from tnn.ops.product import convolve, correlate, export_convolve

# Warnings inside torch that a caller cannot avoid.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


class Product(torch.nn.Module):
    def __init__(self, causal, backend):
        super().__init__()
        self.causal, self.backend = causal, backend

    def forward(self, x, coefficients):
        return toeplitz_matmul(x, coefficients, causal=self.causal, backend=self.backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["auto", "dense", "fft", "banded", "native"])
def test_operators_are_well_registered(backend):
    x = torch.randn(2, 9, 3, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(convolve, (x, kernel, 2, backend))
    torch.library.opcheck(export_convolve, (x, kernel, 2, backend))
    torch.library.opcheck(correlate, (x, torch.randn_like(x).requires_grad_(), 5, 2, backend))


def test_native_operators_are_well_registered():
    """In the dtype of the native kernel; gradients are compared in test_matmul.py."""
    x, kernel = torch.randn(2, 9, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    torch.library.opcheck(convolve, (x, kernel, 2, "native"), atol=1e-5, rtol=1e-5)
    torch.library.opcheck(correlate, (x, torch.randn_like(x).requires_grad_(), 5, 2, "native"), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dynamic", [True, False])
def test_compiles_into_one_graph(causal, dynamic):
    torch.compiler.reset()
    module = Product(causal, "auto")
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic)
    for n in (17, 64, 1):
        coefficients = torch.randn(n if causal else 2 * n - 1, 3)
        x = torch.randn(2, n, 3, requires_grad=True)
        y = compiled(x, coefficients)
        assert torch.allclose(y, module(x, coefficients), atol=1e-6)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        (expected,) = torch.autograd.grad(module(x, coefficients).square().sum(), x)
        assert torch.allclose(gradient, expected, atol=1e-4)


@pytest.mark.slow
def test_compiles_where_the_environment_says_ci(monkeypatch):
    """Inductor then refuses operators that have a decomposition it does not use; it asks once per process."""
    lowering = pytest.importorskip("torch._inductor.lowering")
    monkeypatch.setenv("CI", "true")
    for operator in (torch.ops.tnn.toeplitz_convolve.default, torch.ops.tnn.toeplitz_correlate.default):
        monkeypatch.delitem(lowering.lowerings, operator, raising=False)
    torch.compiler.reset()
    x, coefficients = torch.randn(2, 17, 3, requires_grad=True), torch.randn(17, 3)
    torch.compile(Product(True, "auto"), fullgraph=True)(x, coefficients).sum().backward()


@pytest.mark.parametrize("backend", ["auto", "dense", "fft", "banded", "native"])
@pytest.mark.parametrize("strict", [True, False])
def test_exports_with_a_dynamic_length(backend, strict):
    module = Product(True, backend)
    length = torch.export.Dim("length", min=1, max=100_000)
    example = (torch.randn(2, 10, 3), torch.randn(7, 3))
    program = torch.export.export(module, example, dynamic_shapes=({1: length}, None), strict=strict)
    for n in (1, 2, 3, 7, 100, 1009):
        x, coefficients = torch.randn(2, n, 3), torch.randn(7, 3)
        assert torch.equal(program.module()(x, coefficients), module(x, coefficients))
