"""Blocks under torch.compile and torch.export, for any length and any mask."""

import pytest
import torch

from tnn.layers import TNNBlock

# torch's own machinery warns in places that no caller can change.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")

VARIANTS = {
    "causal": {"causal": True},
    "bidirectional": {},
    "no decay": {"decay_mode": "none"},
    "learned": {"decay_mode": "learned"},
    "convolution, input gate": {"short_convolution": 3, "input_gate": True},
    "operator norm": {"operator_norm": True},
    "sines, spread": {"rpe_activation": "sin", "decay": [0.5, 0.97]},
    "free": {"coefficients": "free", "max_lags": 6},
    "normalized": {"rpe_input": "normalized"},
    "attention": {"mixer": "attention"},
}
variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
SMALL = {"rpe_size": 8, "rpe_num_layers": 1}


def make_block(options):
    return TNNBlock(8, **options, **({} if "mixer" in options else SMALL))


@pytest.mark.slow
@variants
@pytest.mark.parametrize("masked", [False, True])
def test_export_with_a_dynamic_length(options, masked):
    if masked and options.get("rpe_input") == "normalized":
        pytest.skip("rows of different lengths have different coefficients: no single graph")
    block = make_block(options).eval()
    length = torch.export.Dim("length", min=1, max=100_000)
    example = (torch.randn(2, 10, 8), *([torch.ones(2, 10, dtype=torch.bool)] if masked else []))
    shapes = {"x": {1: length}, **({"mask": {1: length}} if masked else {})}
    program = torch.export.export(block, example, dynamic_shapes=shapes)
    for n in (1, 2, 3, 10, 101, 2048):
        inputs = (torch.randn(2, n, 8), *([torch.rand(2, n) > 0.3] if masked else []))
        found, expected = program.module()(*inputs), block(*inputs)
        where = inputs[1] if masked else ...
        assert torch.allclose(found[where], expected[where], atol=1e-5)


@pytest.mark.slow
@variants
def test_compiles_into_one_graph(options):
    torch.compiler.reset()
    block = make_block(options)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (5, 17, 64):
        x = torch.randn(2, n, 8)
        assert torch.allclose(compiled(x), block(x), atol=1e-5)
        if options.get("rpe_input") == "normalized":
            continue
        mask = torch.rand(2, n) > 0.3
        assert torch.allclose(compiled(x, mask)[mask], block(x, mask)[mask], atol=1e-5)


@pytest.mark.slow
def test_inductor_trains_as_eager_does():
    torch.compiler.reset()
    block = make_block({"causal": True})
    compiled = torch.compile(block, fullgraph=True)
    x = torch.randn(2, 33, 8)
    gradients = []
    for run in (compiled, block):
        block.zero_grad()
        run(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in block.parameters()])
    for found, expected in zip(*gradients, strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_compiled_graph_belongs_to_its_module():
    """Two blocks of one class may share code, never each other's settings."""
    torch.compiler.reset()
    x = torch.randn(1, 40, 8)
    blocks = [TNNBlock(8, max_lags=lags, initializer_range=None, **SMALL) for lags in (2, 30)]
    blocks += [TNNBlock(8, bandwidth_tolerance=t, initializer_range=None, **SMALL) for t in (50, 1e-6)]
    for block in blocks:
        expected = block(x)
        block.compile(fullgraph=True, backend="aot_eager")
        assert torch.allclose(block(x), expected, atol=1e-5)
    blocks[2].token_mixer.operator.bandwidth_tolerance = 0.0
    fresh = TNNBlock(8, bandwidth_tolerance=0, initializer_range=None, **SMALL)
    fresh.load_state_dict(blocks[2].state_dict())
    assert torch.allclose(blocks[2](x), fresh(x), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"norm": "batch"}, {"dims": 2}])
def test_other_shapes_and_norms_compile(options):
    torch.compiler.reset()
    block = TNNBlock(8, **options, **SMALL)
    twin = TNNBlock(8, **options, **SMALL)
    twin.load_state_dict(block.state_dict())
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    x = torch.randn(2, 6, 7, 8)
    mask = torch.ones(2, 6, 7, dtype=torch.bool)
    mask[0, 4:] = False
    assert torch.allclose(compiled(x, mask)[mask], twin(x, mask)[mask], atol=1e-5)


def test_a_compiled_graph_follows_a_learned_rate():
    torch.compiler.reset()
    block = make_block({"decay_mode": "learned"}).eval()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    x = torch.randn(1, 300, 8)
    with torch.no_grad():
        block.token_mixer.operator.decay.logit.fill_(-2.0)
        assert torch.allclose(compiled(x), block(x), atol=1e-5)
        block.token_mixer.operator.decay.logit.fill_(6.0)
        assert torch.allclose(compiled(x), block(x), atol=1e-5)
