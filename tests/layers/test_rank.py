"""Ranks of kernels: against matrices with known singular values, and layer by layer in operators and models."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import tnn
from tnn.layers import LayerRanks, ToeplitzOperator, ToeplitzOperator2d, kernel_rank, layer_ranks
from tnn.layers.rank import TOLERANCES
from tnn.mixers.s4 import S4

SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "rpe_size": 4, "rpe_num_layers": 1}
singular_values = st.lists(st.floats(-6, 0).map(lambda power: 10**power), min_size=1, max_size=8)
seeds = st.integers(0, 2**32 - 1)


def matrix_of(values, lags, channels, seed):
    """A matrix (lags, channels) with these singular values, and zeros besides."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(n, n, dtype=torch.float64, generator=generator) for n in (lags, channels))
    left, right = (torch.linalg.qr(m)[0][:, : len(values)] for m in (left, right))
    return left * torch.tensor(values, dtype=torch.float64) @ right.T


def known_rank(values, tolerance):
    """By definition: the smallest r for which what is left is small enough."""
    values = sorted(values, reverse=True)
    return next(r for r in range(len(values) + 1) if math.hypot(*values[r:]) <= tolerance * math.hypot(*values))


@given(singular_values, st.integers(0, 5), st.integers(0, 5), seeds)
def test_matrices_with_known_singular_values(values, more_lags, more_channels, seed):
    for tolerance in TOLERANCES:  # not so close that rounding decides
        assume(all(known_rank(values, tolerance * f) == known_rank(values, tolerance) for f in (1 - 1e-6, 1 + 1e-6)))
    matrix = matrix_of(values, len(values) + more_lags, len(values) + more_channels, seed)
    expected = tuple(known_rank(values, tolerance) for tolerance in TOLERANCES)
    assert kernel_rank(matrix) == expected
    assert kernel_rank(matrix.T) == expected


@given(seeds, st.integers(1, 12), st.integers(1, 12), st.sampled_from([-1.0, 1e-150, 3e-20, 7.0, 1e150]))
def test_scale_and_order_do_not_matter(seed, lags, channels, factor):
    generator = torch.Generator().manual_seed(seed)
    powers = torch.logspace(0, -5, channels, dtype=torch.float64)
    matrix = torch.randn(lags, channels, dtype=torch.float64, generator=generator) * powers
    expected = kernel_rank(matrix)
    assert 1 <= expected[0] <= expected[1] <= expected[2] <= min(lags, channels)
    assert kernel_rank(factor * matrix) == expected
    assert kernel_rank(matrix[:, torch.randperm(channels, generator=generator)]) == expected
    assert kernel_rank(matrix[torch.randperm(lags, generator=generator)]) == expected
    assert kernel_rank(torch.cat([matrix, matrix], 1)) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype(dtype):
    assert kernel_rank(torch.eye(4, dtype=dtype, requires_grad=True)) == (4, 4, 4)


@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (1, 1), (3, 0)])
def test_nothing_spans_no_dimension(shape):
    assert kernel_rank(torch.zeros(shape)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (torch.tensor([[1.0, math.nan]]), ValueError, "kernel must be finite; got coefficients that are NaN or inf"),
        (torch.tensor([[math.inf, 1.0]]), ValueError, "kernel must be finite"),
        (torch.ones(3), ValueError, r"kernel must have shape \(lags, channels\); got \(3,\)"),
        (torch.ones(3, 3, dtype=torch.long), TypeError, "kernel must be float64, .* got torch.int64"),
        ([[1.0]], TypeError, "kernel must be a torch.Tensor; got list"),
    ],
)
def test_what_is_no_kernel(kernel, error, message):
    with pytest.raises(error, match=message) as caught:
        kernel_rank(kernel)
    assert "\n" not in str(caught.value)


def free(lags, *, causal=True, max_lags=100, channels=4):
    """An operator whose coefficient of channel c is 1 at the c-th of these lags, and 0 elsewhere."""
    options = {"coefficients": "free", "max_lags": max_lags, "decay_mode": "none"}
    operator = ToeplitzOperator(channels, causal=causal, **options)
    torch.nn.init.zeros_(operator.free)
    zero = 0 if causal else max_lags - 1
    with torch.no_grad():
        for channel, lag in enumerate(lags):
            operator.free[zero + lag, channel] = 1
    return operator


def test_lags_from_16_and_from_64():
    (ranks,) = layer_ranks(free([0, 15, 16, 64]))
    assert ranks == LayerRanks("kernel", 4, None, (4, 4, 4), (2, 2, 2), (1, 1, 1))


def test_both_directions_count():
    (ranks,) = layer_ranks(free([15, -15, 16, -16, 64, -64], causal=False, channels=6))
    assert ranks[3:] == ((6, 6, 6), (4, 4, 4), (2, 2, 2))


def test_a_kernel_that_ends_early_spans_nothing_there():
    (ranks,) = layer_ranks(free([0, 1, 2, 3], max_lags=10))
    assert ranks[3:] == ((4, 4, 4), (0, 0, 0), (0, 0, 0))
    (ranks,) = layer_ranks(ToeplitzOperator(8, causal=True, decay=0.5))  # by its bandwidth
    assert ranks.from_lag_16[0] == 1
    assert ranks.from_lag_64 == (0, 0, 0)
    (ranks,) = layer_ranks(free([0, 15, 16, 64]), length=16)
    assert ranks[3:] == ((2, 2, 2), (0, 0, 0), (0, 0, 0))


def test_a_grid_has_one_entry_per_axis():
    operator = ToeplitzOperator2d(4, rpe_size=8)
    operator.height, operator.width = free([0, 20, -20], causal=False), free([0, 70], causal=False)
    columns, rows = layer_ranks(operator)
    assert columns == LayerRanks("kernel, along columns", 4, None, (3, 3, 3), (2, 2, 2), (0, 0, 0))
    assert rows == LayerRanks("kernel, along rows", 4, None, (2, 2, 2), (1, 1, 1), (1, 1, 1))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("activation", ["relu", "sin"])
@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_as_singular_values_say(causal, activation, decay):
    options = {"rpe_size": 16, "rpe_num_layers": 2, "rpe_activation": activation, "decay": decay}
    operator = ToeplitzOperator(40, causal=causal, **options)
    kernel = operator.kernel(300).detach().double()
    middle = 0 if causal else len(kernel) // 2
    (ranks,) = layer_ranks(operator, 300)
    assert (ranks.channels, ranks.rpe_size) == (40, 16)
    for start, found in zip((0, 16, 64), ranks[3:], strict=True):
        far = torch.cat([kernel[: max(0, middle - start + 1)], kernel[middle + start :]]) if start else kernel
        values = torch.linalg.svdvals(far).tolist()
        assert found == tuple(known_rank(values, tolerance) for tolerance in TOLERANCES)
        assert found[2] <= 16 + 1  # the features, and the bias


def test_sines_span_what_the_norm_lets_collapse():
    options = {"causal": True, "rpe_size": 32, "rpe_num_layers": 3, "decay": 0.97}
    for _ in range(3):
        assert layer_ranks(ToeplitzOperator(128, **options))[0].from_lag_16[1] <= 3
        assert layer_ranks(ToeplitzOperator(128, **options, rpe_activation="sin"))[0].from_lag_16[2] == 32


@pytest.mark.parametrize(
    "changes",
    [{}, {"decay_mode": "learned"}, {"rpe_input": "normalized"}, {"is_decoder": False}, {"inner_norm": "layer"}],
    ids=["plain", "learned decay", "normalized", "bidirectional", "inner norm"],
)
def test_layers_of_a_model(changes):
    model = tnn.TNNModel(tnn.TNNConfig(**SIZES, **changes))
    ranks = layer_ranks(model, 100)
    assert [(layer.name, layer.channels, layer.rpe_size) for layer in ranks] == [("layer 1", 24, 4), ("layer 2", 24, 4)]
    for layer, operator in zip(ranks, model.operators, strict=True):
        assert layer[3:] == layer_ranks(operator, 100)[0][3:]


def test_a_hybrid_says_which_layers_have_no_kernel():
    model = tnn.TNNModel(tnn.TNNConfig(**SIZES | {"num_hidden_layers": 3}, mixer=["transformer", "tnn", "s4"]))
    attention, toeplitz, s4 = layer_ranks(model, 50)
    assert attention == LayerRanks("layer 1, transformer", None, None, None, None, None)
    assert (toeplitz.name, toeplitz.rpe_size) == ("layer 2", 4)
    assert (s4.name, s4.channels, s4.rpe_size) == ("layer 3", 8, None)
    assert s4.all_lags == layer_ranks(model.layers[2].mixer.operator, 50)[0].all_lags


def test_images_and_state_spaces():
    image = {"hidden_size": 8, "num_hidden_layers": 1, "rpe_size": 4, "image_size": 12, "patch_size": 2}
    names = [layer.name for layer in layer_ranks(tnn.TNNImageModel(tnn.TNNImageConfig(**image)), 6)]
    assert names == ["layer 1, along columns", "layer 1, along rows"]
    torch.manual_seed(0)  # a rank may change where a singular value is at the limit
    model = tnn.TNNForCausalLM(tnn.TNNConfig(**SIZES, decay=0.9)).eval()
    for before, after in zip(layer_ranks(model), layer_ranks(model.to_state_space(1e-4)), strict=True):
        assert (before.rpe_size, after.rpe_size) == (4, None)
        assert before.all_lags[:2] == after.all_lags[:2]


def test_mistakes_are_one_line():
    model = tnn.TNNModel(tnn.TNNConfig(**SIZES))
    torch.nn.init.constant_(model.operators[1].rpe.output.bias, math.nan)
    with pytest.raises(ValueError, match=r"^layer 2 has coefficients that are NaN or infinite$"):
        layer_ranks(model)
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        layer_ranks(free([0]), length=0)
    for module in (torch.nn.Linear(2, 2), S4(4, causal=True)):
        with pytest.raises(TypeError, match="module must be a model, or an operator with a kernel; got "):
            layer_ranks(module)
