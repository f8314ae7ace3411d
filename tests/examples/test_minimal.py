"""The one-file TNN of examples/: it learns, it equals the library with the same weights, and it needs torch alone."""

import ast
import importlib.util
import runpy
import sys
from pathlib import Path
from statistics import mean

import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.layers import TNNBlock, ToeplitzOperator

FILE = Path(__file__).parents[2] / "examples" / "tnn_minimal.py"
SIZES = {"gtu_expansion": 2, "glu_expansion": 1, "decay": 0.95, "rpe_size": 8, "rpe_num_layers": 2}
LENGTHS = [1, 2, 3, 8, 101]


@pytest.fixture(scope="module")
def minimal():
    spec = importlib.util.spec_from_file_location("tnn_minimal", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(minimal):
    return minimal.read(None)[:200_000]


def copied(model, library, renamed=lambda name: name):
    """The model in float64, with all weights of the library's, no more and no less."""
    model.load_state_dict({renamed(name): weight for name, weight in library.state_dict().items()})
    return model.double(), library.double().eval()


@pytest.mark.parametrize("n", LENGTHS)
def test_operator_equals_the_library(minimal, n):
    library = ToeplitzOperator(6, causal=True, decay=0.95, rpe_size=8, rpe_num_layers=2, bandwidth_tolerance=0)
    operator, library = copied(minimal.ToeplitzOperator(6, 0.95, 8, 2), library)
    x = torch.randn(2, n, 6, dtype=torch.float64)
    torch.testing.assert_close(operator(x), library(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", LENGTHS)
def test_product_equals_the_matrix(minimal, n):
    x, t = torch.randn(2, n, 3, dtype=torch.float64), torch.randn(n, 3, dtype=torch.float64)
    rows = [[t[i - j] if j <= i else torch.zeros_like(t[0]) for j in range(n)] for i in range(n)]
    matrix = torch.stack([torch.stack(row) for row in rows])  # (n, n, 3)
    expected = torch.einsum("ijc,bjc->bic", matrix, x)
    torch.testing.assert_close(minimal.causal_toeplitz(x, t), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", LENGTHS)
def test_block_equals_the_library(minimal, n):
    sizes = SIZES | {"gtu_expansion": 3}  # the library's default
    library = TNNBlock(12, causal=True, decay=0.95, rpe_size=8, rpe_num_layers=2, bandwidth_tolerance=0)
    block, library = copied(minimal.Block(12, **sizes), library)
    x = torch.randn(2, n, 12, dtype=torch.float64, requires_grad=True)
    ours, theirs = block(x), library(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    direction = torch.randn_like(ours)
    gradients = [torch.autograd.grad(y, x, direction)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", LENGTHS)
def test_model_equals_the_library(minimal, n):
    config = TNNConfig(vocab_size=50, hidden_size=12, num_hidden_layers=2, bandwidth_tolerance=0, **SIZES)
    library = TNNForCausalLM(config)
    assert torch.equal(library.lm_head.weight, library.model.embed_tokens.weight)
    del library.lm_head  # it is the embedding: the model of one file has no other
    model, backbone = copied(minimal.TNN(50, 12, 2, **SIZES), library, renamed=lambda name: name.removeprefix("model."))
    ids = torch.randint(50, (2, n))
    hidden = backbone.model(ids).last_hidden_state
    torch.testing.assert_close(model(ids), hidden @ backbone.model.embed_tokens.weight.T, rtol=1e-10, atol=1e-10)


def test_starts_as_the_library_does(minimal):
    """Weights are drawn from the same distributions: the standard deviations of large layers agree."""
    sizes = SIZES | {"rpe_size": 64}
    model = minimal.TNN(500, 64, 2, **sizes)
    library = TNNForCausalLM(TNNConfig(vocab_size=500, hidden_size=64, num_hidden_layers=2, **sizes)).model
    weights = dict(library.named_parameters())
    for name, weight in model.named_parameters():
        if weight.numel() > 1000:
            assert weight.std().item() == pytest.approx(weights[name].std().item(), rel=0.1), name


def test_no_output_sees_a_later_input(minimal):
    model = minimal.TNN(50, 12, 2, **SIZES).double()
    ids = torch.randint(50, (1, 20))
    changed = ids.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 50
    difference = (model(ids) - model(changed)).abs().amax(-1)[0]
    assert difference[:10].max() < 1e-12 < difference[10:].min()


def test_learns_and_writes(minimal, text, one_thread):
    model = minimal.TNN(size=32, num_layers=1)
    losses = minimal.train(model, text, steps=60, length=64, batch_size=8)
    assert mean(losses[-10:]) < 3.6 < mean(losses[:5])
    held_out = minimal.read(None)[-5_000:]
    assert minimal.perplexity(model, held_out, 64) < 40  # 256 without knowledge
    assert minimal.perplexity(model, held_out, 1024) < 1.1 * minimal.perplexity(model, held_out, 64)
    written = minimal.generate(model, torch.tensor(list(b"def ")), 20)
    assert bytes(written[:4].tolist()) == b"def "
    assert len(written) == 24


def test_perplexity_predicts_each_byte_once(minimal):
    model = minimal.TNN(50, 12, 1, **SIZES)
    ids = torch.randint(50, (101,))
    expected = minimal.loss_of(model, torch.stack([ids[i : i + 21] for i in range(0, 100, 20)])).exp().item()
    assert minimal.perplexity(model, ids, 20) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_as_a_program(tmp_path, monkeypatch, capsys, one_thread):
    (tmp_path / "text.txt").write_text("one two three four five six seven\n" * 100)
    monkeypatch.setattr(sys, "argv", [FILE.name, str(tmp_path / "text.txt"), "--steps", "40", "--prompt", "one"])
    runpy.run_path(str(FILE), run_name="__main__")
    size, step, measured, written = capsys.readouterr().out.rstrip("\n").split("\n", 3)
    assert size == "211,328 parameters, 3,060 bytes of text"
    assert step.startswith("step    40  loss ")
    assert measured.startswith(
        "perplexity in blocks of  128 bytes: "
    )  # the test text is shorter than the other lengths
    assert written.startswith("one")


def test_needs_torch_alone():
    names = set()
    for node in ast.walk(ast.parse(FILE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert "torch" in names
    assert names - {"torch"} <= sys.stdlib_module_names
