"""S4, DSS and GSS against their formulas, written out with loops in double precision."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from tnn import TNNConfig, TNNForCausalLM
from tnn.layers import count_parameters
from tnn.layers.kernel_cache import KernelCache
from tnn.layers.sequences import Sequences
from tnn.mixers import convolution
from tnn.mixers.block import TNNBlock
from tnn.mixers.dss import DSS
from tnn.mixers.gss import GatedStateSpace
from tnn.mixers.hippo import hippo_modes
from tnn.mixers.s4 import S4
from tnn.streaming import History

SMALL = {
    "s4": lambda **options: S4(4, **{"state_size": 6, **options}),
    "dss": lambda **options: DSS(4, **{"state_size": 5, **options}),
    "gss": lambda **options: GatedStateSpace(4, **{"state_channels": 3, "state_size": 7, **options}),
}
methods = pytest.mark.parametrize("method", SMALL)
directions = pytest.mark.parametrize("causal", [True, False])

pytestmark = pytest.mark.usefixtures("one_thread")


def number(pair):
    return complex(pair[0].item(), pair[1].item())


# The formulas.


def s4_recurrence(operator, channel, length, side=0, *, conjugates=True):
    """c Ab^l Bb, one step after the other, with all the modes in a complex matrix of full size."""
    group = channel % len(operator.b)
    log_decay, frequency = operator.log_decay[group].detach().double(), operator.frequency[group].detach().double()
    w = torch.complex(-log_decay.exp(), frequency)
    b, p = (torch.view_as_complex(v[group].detach().double()) for v in (operator.b, operator.p))
    c = torch.view_as_complex(operator.c[channel, side].detach().double())
    if conjugates:
        w, b, p, c = (torch.cat([v, v.conj()]) for v in (w, b, p, c))
    a = torch.diag(w) - torch.outer(p, p.conj())
    dt = operator.log_dt[channel].detach().double().exp()
    eye = torch.eye(len(w), dtype=a.dtype)
    step = torch.linalg.solve(eye - dt / 2 * a, eye + dt / 2 * a)
    state = torch.linalg.solve(eye - dt / 2 * a, dt * b)
    outputs = []
    for _ in range(length):
        outputs.append((c * state).sum())
        state = step @ state
    return torch.stack(outputs)  # (length,)


def s4_response(operator, channel, length, side=0):
    response = s4_recurrence(operator, channel, length, side)
    assert response.imag.abs().max() < 1e-12
    return response.real.tolist()


def dss_response(operator, channel, length, side=0):
    dt_real, dt_imaginary = operator.log_dt[channel].double().exp().tolist()
    response = [0.0] * length
    for weight, pole in zip(operator.weights[channel, side], operator.poles, strict=True):
        weight, pole = number(weight), number(pole)
        rate = complex(dt_real * pole.real, dt_imaginary * pole.imag)
        grows = pole.real > 0
        inner = -rate if grows else rate
        total = (_exp(length * inner) - 1) * pole
        factor = weight * (_exp(inner) - 1) * total.conjugate() / (abs(total) ** 2 + 1e-7)
        for t in range(length):
            response[t] += (factor * _exp((t - length + 1 if grows else t) * rate)).real
    return response


def gss_response(operator, channel, length, side=0):
    poles = [
        complex(-math.exp(p), math.exp(q))
        for p, q in zip(operator.log_decay.tolist(), operator.log_frequency.tolist(), strict=True)
    ]
    weights = [number(c) * (_exp(pole) - 1) / pole for c, pole in zip(operator.c[channel], poles, strict=True)]
    return [sum((w * _exp(pole * t)).real for w, pole in zip(weights, poles, strict=True)) for t in range(length)]


def _exp(z):
    return math.exp(z.real) * complex(math.cos(z.imag), math.sin(z.imag))


RESPONSES = {"s4": s4_response, "dss": dss_response, "gss": gss_response}


def convolved(method, operator, x):
    """The sums of the specification: x (n, channels) -> (n, channels)."""
    n, y = len(x), torch.zeros_like(x)
    for channel in range(x.shape[1]):
        skip, u = operator.skip[channel].item(), x[:, channel].tolist()
        after = RESPONSES[method](operator, channel, n)
        one_sided = [sum(after[i - j] * u[j] for j in range(i + 1)) + skip * u[i] for i in range(n)]
        if operator.causal:
            other = [0.0] * n
        elif method == "gss":  # flip, convolve, flip
            other = [sum(after[j - i] * u[j] for j in range(i, n)) + skip * u[i] for i in range(n)]
        else:
            before = RESPONSES[method](operator, channel, n, side=1)
            other = [sum(before[j - i - 1] * u[j] for j in range(i + 1, n)) for i in range(n)]
        y[:, channel] = torch.tensor(one_sided, dtype=x.dtype) + torch.tensor(other, dtype=x.dtype)
    return y


def around(method, mixer, x, convolve):
    """What stands before and after the convolution."""
    if method == "s4":
        a, b = F.linear(F.gelu(convolve(x)), mixer.out_proj.weight, mixer.out_proj.bias).chunk(2, -1)
        return a * torch.sigmoid(b)
    if method == "dss":
        return F.linear(F.gelu(convolve(x)), mixer.out_proj.weight, mixer.out_proj.bias)
    value = F.gelu(x @ mixer.value_proj.weight.T)
    value = F.layer_norm(value, value.shape[-1:], mixer.norm.weight, mixer.norm.bias)
    gate = F.gelu(x @ mixer.gate_proj.weight.T)
    return F.linear(gate * (convolve(value) @ mixer.mixed_proj.weight.T), mixer.out_proj.weight, mixer.out_proj.bias)


@methods
@directions
@pytest.mark.parametrize("n", [1, 2, 3, 7, 26])
def test_equals_the_formula(method, causal, n):
    mixer = SMALL[method](causal=causal).double()
    x = torch.randn(n, 4, dtype=torch.float64)
    with torch.no_grad():
        expected = around(method, mixer, x, lambda v: convolved(method, mixer.operator, v))
        assert torch.allclose(mixer(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_s4_kernel_is_the_recurrence_at_every_length(dtype, tolerance):
    operator = S4(2, causal=True, state_size=64).to(dtype).operator
    expected = torch.stack([s4_recurrence(operator, c, 300).real for c in range(2)], 1)
    expected[0] += operator.skip.detach().double()
    with torch.no_grad():
        for length in range(1, 301):
            operator._cache = KernelCache()  # the old one holds longer ones
            assert (operator.kernel(length) - expected[:length]).abs().max() < tolerance


def test_s4_keeps_its_digits_over_long_sequences():
    operator = S4(2, causal=True, state_size=64).operator
    expected = s4_recurrence(operator, 1, 20_000).real
    with torch.no_grad():
        assert (operator.kernel(20_000)[1:, 1] - expected[1:]).abs().max() < 1e-6 * expected.abs().max()


@given(state_size=st.sampled_from([2, 4, 16]), n_ssm=st.sampled_from([1, 2, 3, 6, None]), length=st.integers(1, 70))
@settings(max_examples=20)
def test_s4_channels_share_sets_in_turn(state_size, n_ssm, length):
    operator = S4(6, causal=False, state_size=state_size, n_ssm=n_ssm).double().operator
    with torch.no_grad():
        for parameter in operator.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # away from a start that is the same for all sets
        kernel = operator.kernel(length)
    for channel in range(6):
        after, before = (s4_response(operator, channel, length, side) for side in (0, 1))
        after[0] += operator.skip[channel].item()
        expected = before[: length - 1][::-1] + after
        assert torch.allclose(kernel[:, channel], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)


def test_published_s4_takes_half_of_the_modes_and_of_the_spectrum():
    operator = S4(2, causal=True, state_size=8, as_published=True).double().operator
    kernel = operator.kernel(1100).detach()
    for channel in range(2):
        half = s4_recurrence(operator, channel, 2048, conjugates=False)  # 512, doubled twice to cover 1100
        lag = torch.arange(2048, dtype=torch.float64)
        angle = -2 * math.pi * lag[:1025, None] * lag / 2048
        nodes = torch.polar(torch.ones_like(angle), angle)
        spectrum = nodes @ half
        weight = torch.full((1025, 1), 2.0).double()
        weight[0] = weight[-1] = 1
        expected = (weight * (nodes.conj() * spectrum[:, None]).real).sum(0) / 2048
        expected[0] += operator.skip[channel].item()
        assert torch.allclose(kernel[:, channel], expected[:1100], atol=1e-10)


@given(length=st.integers(1, 70), modes=st.integers(1, 6), causal=st.booleans())
@settings(max_examples=20)
def test_dss_kernel_with_modes_that_grow(length, modes, causal):
    operator = DSS(3, causal=causal, state_size=modes).double().operator
    with torch.no_grad():
        operator.poles[:, 0] = torch.randn(modes)  # about half of them grow
        operator.log_dt[:, 1] += 0.5  # the two steps differ
        kernel = operator.kernel(length)
    for channel in range(3):
        expected = dss_response(operator, channel, length)
        expected[0] += operator.skip[channel].item()
        if not causal:
            expected = dss_response(operator, channel, length, side=1)[: length - 1][::-1] + expected
        assert torch.allclose(kernel[:, channel], torch.tensor(expected, dtype=torch.float64), atol=1e-9)


def test_dss_does_not_overflow_with_a_fast_growing_mode():
    operator = DSS(2, causal=True, state_size=4).operator
    with torch.no_grad():
        operator.poles[:2, 0] = 1e4
        operator.poles[2:, 0] = -1e4
        assert operator.kernel(1000).isfinite().all()


def test_hippo_modes_rebuild_the_matrix():
    """Up to an orthogonal change of the basis: the same answers to the same inputs."""
    size = 10
    n = torch.arange(size, dtype=torch.float64)
    b = (2 * n + 1).sqrt()
    a = -torch.tril(torch.outer(b, b), -1) - torch.diag(n + 1)
    start = hippo_modes(size)
    w = torch.complex(torch.full_like(start.frequency, -0.5), start.frequency)
    w, inputs, p = (torch.cat([v, v.conj()]) for v in (w, start.b, start.p))
    turned = torch.diag(w) - torch.outer(p, p.conj())
    for power in range(5):
        plain = b @ torch.linalg.matrix_power(a / 100, power) @ b
        other = inputs.conj() @ torch.linalg.matrix_power(turned / 100, power) @ inputs
        assert abs(plain - other) < 1e-9 * abs(plain)
    assert (start.frequency < 0).all()
    assert (start.b.real > 0).all()


# What all three share.


def test_gss_kernel_is_symmetric_with_lag_zero_twice():
    one, two = (GatedStateSpace(4, causal=causal, state_channels=3, state_size=7) for causal in (True, False))
    two.load_state_dict(one.state_dict())
    after, both = one.operator.kernel(9), two.operator.kernel(9)
    assert torch.equal(both, both.flip(0))
    assert torch.allclose(both[8], 2 * after[0])
    assert torch.equal(both[9:], after[1:])


@methods
@directions
def test_packed_and_padded_sequences_come_out_as_if_alone(method, causal):
    mixer = SMALL[method](causal=causal).double()
    x = torch.randn(4, 11, 4, dtype=torch.float64)
    ids = torch.ones(4, 11, dtype=torch.long)
    ids[1, :4] = ids[2, 3:5] = 0  # at the left, and a gap
    padded = mixer(x, ids == 1)
    ids[3] = torch.tensor([1, 1, 1, 2, 2, 2, 2, 2, 3, 0, 0])
    packed = mixer(x, Sequences(ids))
    for row, outputs in [(0, padded), (1, padded), (2, padded), (0, packed), (1, packed), (2, packed), (3, packed)]:
        for document in ids[row][ids[row] > 0].unique():
            member = ids[row] == document
            assert torch.allclose(outputs[row, member], mixer(x[row, member][None])[0], atol=1e-10)


@methods
def test_published_forms_take_padding_for_tokens(method):
    mixer = SMALL[method](causal=False, as_published=True)
    x, mask = torch.randn(1, 9, 4), torch.tensor([[True] * 6 + [False] * 3])
    assert torch.equal(mixer(x, mask), mixer(x.masked_fill(~mask[..., None], 0)))


@pytest.mark.parametrize("method", ["s4", "gss"])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5))
@settings(max_examples=15)
def test_parts_of_any_size_equal_the_whole(method, sizes):
    mixer = SMALL[method](causal=True).double().eval()
    x = torch.randn(2, sum(sizes), 4, dtype=torch.float64)
    assert mixer.state_owner is mixer.operator
    with torch.no_grad():
        state = History(mixer.state_owner)
        parts = [mixer(part, state=state) for part in x.split(sizes, 1)]
        assert torch.allclose(torch.cat(parts, 1), mixer(x), atol=1e-10)


@pytest.mark.parametrize(
    ("method", "options"),
    [("dss", {"causal": True}), ("s4", {"causal": True, "as_published": True}), ("s4", {}), ("dss", {}), ("gss", {})],
)
def test_no_state_where_later_tokens_change_outputs(method, options):
    assert SMALL[method](**options).state_owner is None


@methods
def test_no_gradient_from_later_inputs(method):
    mixer = SMALL[method](causal=True)
    mixer.operator.backend = "dense"
    x = torch.randn(1, 20, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(mixer(x)[:, 8].sum(), x)
    assert (gradient[:, 9:] == 0).all()
    assert gradient[:, 8].abs().sum() > 0


@pytest.mark.slow
@methods
@directions
@pytest.mark.parametrize("at_once", [0, convolution.MAX_NUMBERS_AT_ONCE])
def test_gradients(method, causal, at_once, monkeypatch):
    """Of the parameters too, which may go through slices that are computed twice."""
    monkeypatch.setattr(convolution, "MAX_NUMBERS_AT_ONCE", at_once)
    monkeypatch.setattr(convolution, "CHANNELS_AT_ONCE", 3)
    operator = SMALL[method](causal=causal).double().operator
    names, values = zip(*operator.named_parameters(), strict=True)

    def kernel(*parameters):
        given = {f"operator.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(_Kernel(operator), given, 6)

    assert torch.autograd.gradcheck(kernel, values, atol=1e-6)


class _Kernel(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, length):
        return self.operator.kernel(length)


@methods
def test_kernel_is_kept_until_a_parameter_changes(method):
    operator = SMALL[method](causal=False).eval().operator
    with torch.no_grad():
        first = operator.kernel(12)
        kept = operator._cache._kept
        assert torch.equal(operator.kernel(12), first)
        assert operator._cache._kept is kept
        if not operator.depends_on_length:
            assert torch.allclose(operator.kernel(5), first[7:-7])
            assert operator._cache._kept is kept
        assert operator.kernel(20).shape == (39, operator.channels)  # longer than what was kept
        assert copy.deepcopy(operator)._cache._kept is None
        assert pickle.loads(pickle.dumps(operator))._cache._kept is None
        operator.skip.data += 1
        assert torch.allclose(operator.kernel(12)[11] - first[11], torch.tensor(2.0 if method == "gss" else 1.0))
        operator.train()
        assert operator.kernel(12).shape == (23, operator.channels)


class Switch(torch.nn.Module):
    """Twice the parameter, or the parameter."""

    on = True

    def forward(self, parameter):
        return 2 * parameter if self.on else parameter


@methods
def test_kernel_follows_a_parametrization_that_is_switched(method):
    operator, switch = SMALL[method](causal=True).eval().operator, Switch()
    with torch.no_grad():
        plain = operator.kernel(12)
        torch.nn.utils.parametrize.register_parametrization(operator, "skip", switch)
        assert torch.allclose(operator.kernel(12)[0] - plain[0], operator.skip / 2, atol=1e-6)
        switch.on = False
        assert torch.equal(operator.kernel(12), plain)


@methods
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(method, dtype):
    mixer = SMALL[method](causal=True).eval()
    x = torch.randn(2, 40, 4)
    with torch.no_grad():
        expected = mixer(x)
        assert torch.allclose(copy.deepcopy(mixer).to(dtype)(x.to(dtype)).float(), expected, atol=0.1, rtol=0.1)
        with torch.autocast("cpu", dtype):
            assert torch.equal(mixer.train().operator.kernel(40), mixer.eval().operator.kernel(40))
            assert torch.allclose(mixer(x).float(), expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("method", ["s4", "dss"])
def test_inner_dropout_only_in_training(method):
    mixer = SMALL[method](causal=True, inner_dropout=0.5)
    x = torch.randn(1, 10, 4)
    assert not torch.equal(mixer(x), mixer(x))
    assert torch.equal(mixer.eval()(x), mixer(x))


@methods
def test_starts_on_the_meta_device(method):
    with torch.device("meta"):
        empty = SMALL[method](causal=False)
    mixer = empty.to_empty(device="cpu")
    for module in mixer.modules():
        if hasattr(module, "reset_parameters"):
            torch.manual_seed(0)
            module.reset_parameters()
    assert all(p.isfinite().all() for p in mixer.parameters())
    if method == "s4":
        assert torch.allclose(mixer.operator.frequency[0].double(), hippo_modes(6).frequency, atol=1e-6)
    if method == "dss":
        assert torch.equal(mixer.operator.log_dt[:, 0], mixer.operator.log_dt[:, 1])
        assert (mixer.operator.poles[:, 0] == -0.5).all()
        assert (mixer.operator.poles[:, 1] > 0).all()


@pytest.mark.parametrize("method", ["s4", "dss"])
def test_tensors_without_values_leave_nothing_behind(method):
    for _ in range(2):
        with FakeTensorMode():
            assert SMALL[method](causal=True)(torch.empty(2, 9, 4)).shape == (2, 9, 4)
        assert SMALL[method](causal=True)(torch.randn(2, 9, 4)).isfinite().all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: S4(4, state_size=7), "state_size must be even"),
        (lambda: S4(4, n_ssm=3), "n_ssm must divide the 4 channels"),
        (lambda: S4(4, dt_min=0.1, dt_max=0.01), "dt_min and dt_max"),
        (lambda: DSS(4, dt_min=0), "dt_min and dt_max"),
        (lambda: DSS(4, state_size=0), "state_size must be at least 1"),
        (lambda: GatedStateSpace(4, state_channels=0), "state_channels must be at least 1"),
        (lambda: GatedStateSpace(4, expansion=0.1), "expansion must make"),
        (lambda: S4(4, inner_dropout=2), "inner_dropout must be in"),
    ],
)
def test_wrong_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("mixer", "size", "causal", "options", "count"),
    [
        ("s4", 1024, True, {"as_published": True}, 2_363_392),
        ("s4", 1536, False, {"as_published": True}, 5_216_256),
        ("dss", 1024, True, {"as_published": True}, 1_183_872),
        ("dss", 1536, False, {"as_published": True}, 2_758_784),
        ("gss", 512, True, {}, 3_017_984),
        ("gss", 768, False, {}, 5_967_872),
        ("s4", 64, False, {"state_size": 8, "norm": "simple_rms"}, 11_008),
        ("s4", 64, False, {"state_size": 64, "n_ssm": 2, "norm": "simple_rms"}, 17_024),
        ("s4", 1024, True, {}, 2_363_392 + 2 * 1024),
    ],
)
def test_parameters_of_a_block(mixer, size, causal, options, count):
    with torch.device("meta"):
        block = TNNBlock(size, mixer=mixer, causal=causal, **{"norm": "layer", **options})
    assert count_parameters(block) == (count, 0)


OPTIONS = {
    "s4": {"state_size": 8},
    "dss": {"state_size": 8},
    "gss": {"state_channels": 8, "state_size": 16, "expansion": 2},
}


def small_config(method, **options):
    options = {**OPTIONS[method], **options}
    return TNNConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, mixer=method, mixer_options=options)


@methods
@pytest.mark.parametrize("as_published", [False, True])
def test_generation_is_that_of_whole_sequences(method, as_published):
    model = TNNForCausalLM(small_config(method, as_published=as_published)).eval()
    ids = torch.tensor([[1, 1, 5, 6, 7], [8, 9, 10, 11, 12]])
    mask = (ids != 1).long()
    settings = {"attention_mask": mask, "max_new_tokens": 66, "min_new_tokens": 66, "do_sample": False}
    cached, plain = (
        model.generate(ids, use_cache=use, output_logits=True, return_dict_in_generate=True, **settings)
        for use in (True, False)
    )
    assert torch.equal(cached.sequences, plain.sequences)
    assert torch.allclose(torch.stack(cached.logits), torch.stack(plain.logits), atol=1e-4)
    if not as_published and method != "dss":  # whose outputs change as tokens are added
        with torch.no_grad():
            alone = model(cached.sequences[:1, 2:]).logits[0, 2:-1]
        assert torch.allclose(torch.stack(cached.logits)[:, 0], alone, atol=1e-4)


@methods
def test_saved_model_is_the_same(method, tmp_path):
    model = TNNForCausalLM(small_config(method))
    ids = torch.randint(3, 50, (2, 12))
    model(ids, labels=ids).loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad.sign()
    model.eval().save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(TNNForCausalLM.from_pretrained(tmp_path).eval()(ids).logits, model(ids).logits)
        half = TNNForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.model.layers[0].operator.skip.dtype == torch.float32
