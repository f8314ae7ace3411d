import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tnn.layers import RelativePositionEncoder

INPUTS = ("integer", "normalized", "sincos")
NORMS = ("simple_rms", "last_layer")


def rms_norm(z):
    return z / (z.norm(dim=-1, keepdim=True) / z.shape[-1] ** 0.5 + 1e-8)


def test_is_the_mlp_of_the_paper():
    rpe = RelativePositionEncoder(5, width=8, num_layers=2).double()
    lags = torch.arange(-20, 21)
    z = lags.double()[:, None] @ rpe.input.weight.T + rpe.input.bias
    for layer in (*rpe.hidden, rpe.output):
        z = rms_norm(z).relu() @ layer.weight.T + layer.bias
    assert torch.allclose(rpe(lags), z, atol=1e-12)


def test_is_the_mlp_of_the_long_range_arena_models():
    rpe = RelativePositionEncoder(64, width=16, num_layers=2, norm="last_layer").double()
    z = rpe.input(torch.arange(9.0).double()[:, None])
    for layer in rpe.hidden:
        z = layer(z.relu())
    assert torch.allclose(rpe(torch.arange(9)), rpe.output(rpe.output_norm(z).relu()), atol=1e-12)
    assert sum(p.numel() for p in rpe.parameters()) == 1_696


def test_sines_have_no_norm():
    rpe = RelativePositionEncoder(5, width=8, num_layers=2, activation="sin").double()
    lags = torch.arange(-20, 21)
    z = lags.double()[:, None] @ rpe.input.weight.T + rpe.input.bias
    for layer in (*rpe.hidden, rpe.output):
        z = z.sin() @ layer.weight.T + layer.bias
    assert torch.allclose(rpe(lags), z, atol=1e-12)
    relu = RelativePositionEncoder(5, width=8, num_layers=2)
    assert sum(p.numel() for p in rpe.parameters()) == sum(p.numel() for p in relu.parameters())


def test_sines_start_with_their_own_weights():
    rpe = RelativePositionEncoder(4096, width=256, num_layers=2, activation="sin")
    assert rpe.input.weight.abs().max().item() == pytest.approx(2, abs=0.05)
    assert rpe.input.bias.abs().max().item() == pytest.approx(math.pi, abs=0.05)
    assert all(layer.weight.std().item() == pytest.approx(1.5 * (2 / 256) ** 0.5, rel=0.02) for layer in rpe.hidden)
    assert rpe.output.weight.std().item() == pytest.approx(256**-0.5, rel=0.02)
    assert not rpe.output.bias.any()


def test_kernels_of_sines_differ_where_those_of_relu_are_one():
    """Past 16 lags, with decay: the dimensions that hold 99% of the kernels."""

    def dimensions(activation):
        torch.manual_seed(0)
        encoder = RelativePositionEncoder(256, width=32, num_layers=3, activation=activation)
        lags = torch.arange(16, 512)
        values = torch.linalg.svdvals(encoder(lags).double() * 0.97 ** lags[:, None])
        return int(((values**2).flip(0).cumsum(0).flip(0) > (0.01 * values.norm()) ** 2).sum())

    assert dimensions("relu") <= 3
    assert dimensions("sin") >= 30


@pytest.mark.parametrize(
    ("options", "count"), [({}, 124_928), ({"width": 32}, 57_088), ({"inputs": "sincos"}, 124_928 + 19 * 64)]
)
def test_parameter_count(options, count):
    assert sum(p.numel() for p in RelativePositionEncoder(1536, **options).parameters()) == count


def test_inputs():
    lags = torch.tensor([-3, 0, 4])
    features = {name: RelativePositionEncoder(2, inputs=name)._features(lags.double(), 8) for name in INPUTS}
    assert features["integer"].flatten().tolist() == [-3, 0, 4]
    assert features["normalized"].flatten().tolist() == [-3 / 8, 0, 4 / 8]
    assert features["sincos"].shape == (3, 20)
    angles = [4 / 10_000 ** (k / 10) for k in range(10)]
    expected = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    assert features["sincos"][2].tolist() == pytest.approx(expected)


def test_normalized_input_needs_the_length():
    with pytest.raises(ValueError, match="length must be given"):
        RelativePositionEncoder(2, inputs="normalized")(torch.arange(3))


def test_lags_and_length_are_checked():
    rpe = RelativePositionEncoder(2, inputs="normalized")
    with pytest.raises(ValueError, match=r"lags must be a tensor .* with one axis; got \(2, 2\)"):
        rpe(torch.zeros(2, 2), 3)
    with pytest.raises(ValueError, match=r"lags must be a tensor .* got list"):
        rpe([1, 2], 3)
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        rpe(torch.arange(3), 0)


def trained_like(rpe, scale):
    """Weights far from their start: grown, sparse and correlated."""
    with torch.no_grad():
        for p in rpe.parameters():
            p.mul_(scale).add_(scale * torch.randn(()))
            p[torch.rand_like(p) < 0.3] = 0
    return rpe


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "tanh", "identity", "sin"])
@given(seed=st.integers(0, 2**16), scale=st.floats(0.01, 30), inputs=st.sampled_from(INPUTS), width=st.integers(1, 70))
def test_coefficients_never_exceed_their_bound(norm, activation, seed, scale, inputs, width):
    torch.manual_seed(seed)
    rpe = RelativePositionEncoder(6, width, 2, norm=norm, activation=activation, inputs=inputs)
    lags = torch.cat([torch.arange(-50, 50), torch.tensor([-(10**6), 14_336, 10**7])])
    for encoder in (rpe, trained_like(rpe, scale)):
        assert (encoder(lags, 100).abs() <= encoder.coefficient_bound() * (1 + 1e-5)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{"norm": "simple_rms"}, {"norm": "last_layer"}, {"activation": "sin"}])
def test_half_precision_weights_are_evaluated_in_float32(dtype, options):
    rpe = RelativePositionEncoder(3, **options).to(dtype)
    lags = torch.tensor([1000, 1001, 14_335, 14_336])
    out = rpe(lags)
    assert out.dtype == torch.float32
    assert torch.equal(out, rpe.float()(lags))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rpe(lags), out)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"channels": 0}, ValueError, "channels must be at least 1; got 0"),
        ({"channels": 2, "width": 0}, ValueError, "width must be at least 1"),
        ({"channels": 2, "num_layers": -1}, ValueError, "num_layers must be at least 1; got -1"),
        ({"channels": 2.5}, TypeError, "channels must be an integer; got 2.5"),
        ({"channels": 2, "activation": "swoosh"}, ValueError, "activation must be one of 'relu'.* got 'swoosh'"),
        ({"channels": 2, "inputs": "cosine"}, ValueError, "inputs must be one of 'integer'.* got 'cosine'"),
        ({"channels": 2, "norm": "batch"}, ValueError, "norm must be one of 'simple_rms', 'last_layer'; got 'batch'"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        RelativePositionEncoder(**options)
