"""Results in float32 do not depend on the default dtype of torch."""

import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.ops import toeplitz_matmul


@pytest.fixture(params=[torch.float64, torch.bfloat16])
def other_default(request):
    """A function that switches to another default dtype."""
    before = torch.get_default_dtype()
    yield lambda: torch.set_default_dtype(request.param)
    torch.set_default_dtype(before)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", ["auto", "dense", "fft", "banded", "native"])
@pytest.mark.parametrize(("n", "lags"), [(1, 1), (7, 3), (40, 40), (300, 20)])
def test_product_and_gradients(other_default, backend, causal, n, lags):
    x, weight = torch.randn(2, n, 8, requires_grad=True), torch.randn(2, n, 8)
    coefficients = torch.randn(lags if causal else 2 * lags - 1, 8, requires_grad=True)

    def results():
        y = toeplitz_matmul(x, coefficients, causal=causal, backend=backend)
        return y, *torch.autograd.grad(y, (x, coefficients), weight)

    expected = results()
    other_default()
    for result, reference in zip(results(), expected, strict=True):
        assert result.dtype == torch.float32
        assert torch.equal(result, reference)


def test_language_model(other_default):
    config = TNNConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, rpe_size=8, rpe_num_layers=1)
    model, ids = TNNForCausalLM(config).eval(), torch.randint(50, (2, 30))

    def results():
        out = model(ids, labels=ids)
        return out.logits, *torch.autograd.grad(out.loss, list(model.parameters()))

    expected = results()
    other_default()
    for result, reference in zip(results(), expected, strict=True):
        assert result.dtype == torch.float32
        assert torch.equal(result, reference)
