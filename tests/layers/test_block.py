"""GTU, GLU, norms, attention and the block."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tnn.layers import GatedLinearUnit, GatedToeplitzUnit, SimpleRMSNorm, TNNBlock, count_parameters
from tnn.layers.norm import make_norm
from tnn.mixers.softmax import PlainAttention
from tnn.streaming import new_state

MIXERS = ("tnn", "gtu", "attention")
CLOSE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 2e-2}
NORMS = ("simple_rms", "layer", "rms", "batch")


def test_simple_rms_norm():
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    y = SimpleRMSNorm()(x)
    assert torch.allclose(y, x / (x.norm(dim=-1, keepdim=True) / math.sqrt(8) + 1e-8))
    assert not list(SimpleRMSNorm().parameters())
    zero = torch.zeros(2, 8, requires_grad=True)
    SimpleRMSNorm()(zero).sum().backward()
    assert zero.grad.isfinite().all()
    tiny = torch.full((1, 8), 2e-4, dtype=torch.float16)  # its square underflows in float16
    assert torch.allclose(SimpleRMSNorm()(tiny).float(), torch.ones(1, 8), atol=1e-3)


def test_gtu_and_glu_are_the_formulas():
    x = torch.randn(2, 9, 4)
    gtu = GatedToeplitzUnit(4, expansion=2, causal=True)
    u, v = F.silu(gtu.gate_proj(x)), F.silu(gtu.value_proj(x))
    assert torch.allclose(gtu(x), gtu.out_proj(u * gtu.operator(v)))
    gtu = GatedToeplitzUnit(4, expansion=2, causal=True, operator_norm=True)
    mixed = gtu.operator(F.silu(gtu.value_proj(x)))
    mixed = mixed / mixed.square().mean(-1, keepdim=True).sqrt()
    assert torch.allclose(gtu(x), gtu.out_proj(F.silu(gtu.gate_proj(x)) * mixed), atol=1e-5)
    gtu = GatedToeplitzUnit(4, expansion=2, causal=True, input_gate=True)
    v = gtu.key_proj(x) * gtu.value_proj(x)
    assert torch.allclose(gtu(x), gtu.out_proj(gtu.gate_proj(x) * gtu.operator(v)))
    glu = GatedLinearUnit(4, expansion=1.5, hidden_act="gelu")
    assert torch.allclose(glu(x), glu.out_proj(F.gelu(glu.gate_proj(x)) * glu.value_proj(x)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("taps", [1, 3, 4])
def test_short_convolution_is_a_depthwise_convolution(causal, taps):
    gtu, x = GatedToeplitzUnit(6, causal=causal, short_convolution=taps), torch.randn(2, 9, 6)
    after = 0 if causal else taps - 1
    weight = gtu.convolution.free.flip(0).T.unsqueeze(1)  # (channels, 1, taps): conv1d has the largest lag first
    near = F.conv1d(F.pad(x.mT, (taps - 1, after)), weight, groups=6).mT
    u, v = F.silu(gtu.gate_proj(near)), F.silu(gtu.value_proj(near))
    assert torch.allclose(gtu(x), gtu.out_proj(u * gtu.operator(v)), atol=1e-6)


def test_a_short_convolution_has_a_state_of_its_own():
    gtu, x = GatedToeplitzUnit(6, causal=True, short_convolution=3).eval(), torch.randn(2, 9, 6)
    states = tuple(new_state(owner) for owner in gtu.state_owners)
    with torch.no_grad():
        parts = [gtu(part, state=states) for part in x.split((1, 5, 3), 1)]
        assert torch.allclose(torch.cat(parts, 1), gtu(x), atol=1e-6)
    with pytest.raises(ValueError, match="state must be a pair: that of the convolution, that of the operator"):
        gtu(x, state=states[1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"short_convolution": 0}, ValueError, "short_convolution must be at least 1; got 0"),
        ({"short_convolution": 4, "dims": 2}, ValueError, "short_convolution needs dims=1"),
        ({"input_gate": 1}, TypeError, "input_gate must be true or false; got 1"),
    ],
)
def test_bad_options_of_a_unit_are_named(options, error, message):
    with pytest.raises(error, match=message):
        GatedToeplitzUnit(4, **options)


@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("norm", NORMS)
def test_block_is_two_residuals(position, mixer, norm):
    block = TNNBlock(8, mixer=mixer, norm_position=position, norm=norm).eval()
    x = torch.randn(2, 9, 8)
    expected = x
    for mix, normalise in ((block.token_mixer, block.token_norm), (block.channel_mixer, block.channel_norm)):
        if mix is None:
            continue
        pre = position == "pre"
        expected = expected + mix(normalise(expected)) if pre else normalise(expected + mix(expected))
    assert torch.allclose(block(x), expected, atol=1e-6)
    assert (block.channel_mixer is None) == (mixer == "gtu")


def test_parameter_counts_of_the_paper():
    """Appendix and tables: language model, masked language model, image models, Long-Range Arena."""
    assert count_parameters(TNNBlock(512, causal=True)) == (3_275_776, 1_536)
    assert sum(count_parameters(TNNBlock(768))) == 7_262_720
    for size, count in ((192, 505_632), (384, 1_891_104)):
        image = TNNBlock(size, dims=2, rpe_size=48, rpe_num_layers=1)
        assert count_parameters(image) == (count, 6 * size)
    lra = {"expansion": 1, "glu_expansion": 1.5, "norm": "batch"}
    rpe = {"rpe_size": 16, "rpe_num_layers": 2, "rpe_norm": "last_layer"}
    inner_norm = 128  # a LayerNorm inside the GTU that the published model had as well
    assert 2 * (count_parameters(TNNBlock(64, **lra, **rpe)).trained + inner_norm) + 128 == 66_624
    assert 2 * (count_parameters(TNNBlock(64, dims=2, **lra, **rpe)).trained + inner_norm) + 128 == 70_016
    assert count_parameters(TNNBlock(64, decay_mode="learned")).fixed_decay == 0


def test_initialisation():
    block = TNNBlock(512, causal=True)
    gtu = block.token_mixer
    for layer in (gtu.gate_proj, gtu.value_proj, gtu.out_proj):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert layer.bias.std().item() == pytest.approx(0.02, rel=0.15)
    bound = 1 / math.sqrt(512)  # torch's default for a linear layer
    for layer in (block.channel_mixer.gate_proj, GatedToeplitzUnit(512, initializer_range=None).gate_proj):
        assert layer.weight.abs().max().item() == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("causal", [True, False])
def test_padded_rows_equal_the_rows_alone(mixer, norm, position, causal, training):
    block = TNNBlock(8, mixer=mixer, norm=norm, norm_position=position, causal=causal).train(training)
    mask = torch.ones(4, 12, dtype=torch.bool)
    mask[0, :5] = mask[1, 7:] = mask[2, 4:8] = False
    x = torch.randn(4, 12, 8)
    y = block(x.masked_fill(~mask[..., None], math.nan), mask)
    assert torch.allclose(block(x, mask)[mask], y[mask], atol=1e-5), "the content of the padding matters"
    y[mask].square().sum().backward()
    assert all(p.grad.isfinite().all() for p in block.parameters())
    assert all(b.isfinite().all() for b in block.buffers())
    if norm == "batch" and training:
        return  # statistics of the batch: rows alone are another batch, see below
    for row in range(4):
        alone = block(x[row : row + 1, mask[row]])[0]
        assert torch.allclose(y[row, mask[row]], alone, atol=1e-5)


def test_batch_norm_takes_its_statistics_from_real_positions():
    block = TNNBlock(8, norm="batch")
    norm = block.token_norm
    twin = copy.deepcopy(norm)
    mask = torch.rand(4, 12) > 0.4
    x = torch.randn(4, 12, 8)
    expected = F.batch_norm(x[mask], None, None, norm.weight, norm.bias, training=True)
    assert torch.allclose(norm(x, mask)[mask], expected, atol=1e-6)
    twin(x[mask][None])
    assert torch.allclose(norm.running_mean, twin.running_mean)
    assert torch.allclose(norm.running_var, twin.running_var)


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 13)),
    padded=st.floats(0, 1),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 2**16),
)
def test_batch_norm_of_gathered_positions_is_that_by_sums(shape, padded, dtype, seed):
    torch.manual_seed(seed)
    norm = make_norm("batch", 5).to(torch.float64 if dtype == torch.float64 else torch.float32)
    nn.init.normal_(norm.weight)
    twin = copy.deepcopy(norm)
    twin._may_gather = lambda x, sequences: False
    mask, x = torch.rand(shape) >= padded, torch.randn(*shape, 5).to(dtype)
    grad = torch.randn(*shape, 5).masked_fill(~mask[..., None], 0).to(dtype)
    outcomes = []
    for each in (norm, twin):
        leaf = x.clone().masked_fill_(~mask[..., None], math.nan).requires_grad_()
        y = each(leaf, mask)
        y.backward(grad)
        outcomes.append([y[mask], leaf.grad, each.weight.grad, *each.buffers()])
        assert y.dtype == dtype
        assert y.isfinite().all()
    for gathered, summed in zip(*outcomes, strict=True):
        torch.testing.assert_close(gathered, summed, rtol=CLOSE[dtype], atol=CLOSE[dtype])


def test_batch_norm_learns_nothing_from_padding_alone():
    norm = make_norm("batch", 8)
    norm(torch.randn(4, 12, 8), torch.rand(4, 12) > 0.4)
    before = copy.deepcopy(norm.state_dict())
    assert norm(torch.randn(4, 12, 8), torch.zeros(4, 12)).isfinite().all()
    torch.testing.assert_close(norm.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("mixer", MIXERS)
def test_causal_block_has_no_gradient_from_later_input(mixer):
    options = {} if mixer == "attention" else {"backend": "dense"}
    block = TNNBlock(8, mixer=mixer, causal=True, **options)
    x = torch.randn(1, 20, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(block(x)[:, 8].square().sum(), x)
    assert (gradient[:, 9:] == 0).all()
    assert (gradient[:, :9].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("mixer", MIXERS)
def test_bidirectional_block_sees_everything(mixer):
    block = TNNBlock(8, mixer=mixer)
    x = torch.randn(1, 20, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(block(x)[:, 8].square().sum(), x)
    assert (gradient.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("norm", NORMS)
def test_length_one(mixer, norm):
    block = TNNBlock(8, mixer=mixer, norm=norm, causal=True)
    y = block(torch.randn(2, 1, 8), torch.ones(2, 1))
    assert y.shape == (2, 1, 8)
    y.sum().backward()


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_attention_is_softmax_attention(num_heads):
    layer = PlainAttention(8, num_heads=num_heads, causal=True)
    x = torch.randn(2, 7, 8)
    q, k, v = (p(x).view(2, 7, num_heads, -1) for p in (layer.query_proj, layer.key_proj, layer.value_proj))
    scores = torch.einsum("bihc,bjhc->bhij", q, k) / math.sqrt(8 / num_heads)
    scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -math.inf)
    mixed = torch.einsum("bhij,bjhc->bihc", scores.softmax(-1), v).flatten(-2)
    assert torch.allclose(layer(x), layer.out_proj(mixed), atol=1e-6)


def test_dropout_acts_on_the_branches():
    block = TNNBlock(8, dropout=1.0)
    x = torch.randn(2, 5, 8)
    assert torch.equal(block(x), x)
    assert not torch.equal(block.eval()(x), x)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"glu_dropout": 1.0}, "channel_mixer"),
        ({"glu_dropout": 1.0, "mixer": "transformer"}, "channel_mixer"),
        ({"operator_dropout": 1.0}, "token_mixer"),
    ],
)
def test_dropout_inside_a_branch(options, part):
    """Nothing but the last bias is left."""
    mixer = getattr(TNNBlock(8, **options), part)
    x = torch.randn(2, 5, 8)
    assert torch.equal(mixer(x), mixer.out_proj.bias.expand(2, 5, 8))
    assert not torch.equal(mixer.eval()(x), mixer.out_proj.bias.expand(2, 5, 8))


def test_an_unused_norm_is_counted_and_not_computed():
    with_norm = TNNBlock(8, inner_norm="unused").eval()
    plain = TNNBlock(8).eval()
    assert count_parameters(with_norm).trained == count_parameters(plain).trained + 16
    plain.load_state_dict({k: v for k, v in with_norm.state_dict().items() if "unused" not in k})
    x = torch.randn(2, 5, 8)
    assert torch.equal(with_norm(x), plain(x))


@pytest.mark.parametrize(
    ("options", "owner"),
    [
        ({"causal": True}, "operator"),
        ({"causal": True, "inner_norm": "layer"}, "operator"),
        ({"causal": True, "rpe_input": "normalized"}, None),
        ({"causal": True, "mixer": "attention"}, "mixer"),
        ({"causal": False}, None),
        ({"dims": 2}, None),
    ],
)
def test_a_state_where_outputs_are_final(options, owner):
    block = TNNBlock(8, **options)
    assert block.state_owners == [{"operator": block.operator, "mixer": block.mixer, None: None}[owner]]


def test_grid_block():
    block = TNNBlock(8, dims=2, form="product")
    assert block(torch.randn(2, 4, 5, 8)).shape == (2, 4, 5, 8)
    with pytest.raises(ValueError, match=r"x must have shape \(..., height, width, channels\)"):
        block(torch.randn(5, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mixer", MIXERS)
def test_runs_in_other_dtypes(mixer, dtype):
    block = TNNBlock(8, mixer=mixer, causal=True).to(dtype)
    assert block(torch.randn(2, 9, 8, dtype=dtype)).dtype == dtype


def test_autocast():
    block = TNNBlock(8, causal=True)
    x = torch.randn(2, 9, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = block(x)
    assert torch.allclose(y.float(), block(x), atol=0.05)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mixer": "gtuu"}, ValueError, "no mixer 'gtuu'; did you mean 'gtu'?"),
        ({"norm": "group"}, ValueError, "norm must be one of .* got 'group'"),
        ({"norm_position": "mid"}, ValueError, "norm_position must be one of 'pre', 'post'; got 'mid'"),
        ({"dropout": 1.5}, ValueError, r"dropout must be in \[0, 1\]; got 1.5"),
        ({"hidden_act": "swoosh"}, ValueError, "hidden_act must be one of .* got 'swoosh'"),
        ({"expansion": 0.3}, ValueError, "expansion must make 8 .* a whole number.* got 0.3"),
        ({"glu_expansion": 0}, ValueError, "glu_expansion must make 8 .* a whole number.* got 0"),
        ({"expansion": math.inf}, ValueError, "expansion must make 8 .* a whole number.* got inf"),
        ({"expansion": "3"}, TypeError, "expansion must be a number; got '3'"),
        ({"dims": "1"}, ValueError, "dims must be 1 .* got '1'"),
        ({"dims": 3}, ValueError, "dims must be 1 .* or 2 .*; got 3"),
        ({"mixer": "attention", "num_heads": 3}, ValueError, "num_heads must divide hidden_size 8; got 3"),
        ({"rpe_sise": 3}, ValueError, "mixer 'tnn' has no option 'rpe_sise'; did you mean 'rpe_size'?"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        TNNBlock(8, **options)


def test_wrong_width_is_named():
    blocks = [TNNBlock(8, norm=norm) for norm in NORMS]
    for layer in (GatedToeplitzUnit(8), GatedLinearUnit(8), PlainAttention(8), *blocks):
        with pytest.raises(TypeError, match=r"x must be float64, .* got torch.int64"):
            layer(torch.ones(2, 5, 8, dtype=torch.int64))
        with pytest.raises(TypeError, match=r"x must be a torch.Tensor; got list"):
            layer([[1.0] * 8])
        with pytest.raises(ValueError, match=r"x must have 8 channels in its last axis; got shape \(2, 5, 7\)"):
            layer(torch.randn(2, 5, 7))
