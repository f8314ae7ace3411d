"""FLASH against attention written out as one n x n matrix, and its state."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.layers import count_parameters
from tnn.layers.sequences import Sequences
from tnn.mixers.block import TNNBlock
from tnn.mixers.flash import FlashLinear, FlashQuad

D, S = 6, 4
both = pytest.mark.parametrize("causal", [True, False])


def make(kind, **options):
    """In float64, with parameters that all matter: at their start gains and biases are near 0."""
    mixer = kind(D, key_size=S, **options).double().eval()
    with torch.no_grad():
        for parameter in (mixer.gain, mixer.offset, mixer.bias):
            parameter.normal_()
    return mixer


def turn(vector, position):
    """RoPE, as a product of complex numbers."""
    half = len(vector) // 2
    angle = position * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag])


def parts(mixer, x):
    """u, v, and each role of each token, one by one."""
    u, v, b = (F.silu(layer(x)) for layer in (mixer.gate_proj, mixer.value_proj, mixer.key_proj))
    roles = [
        torch.stack([turn(b[i] * g + o, i) for i in range(len(x))])
        for g, o in zip(mixer.gain, mixer.offset, strict=True)
    ]
    return u, v, roles


def bias_of(mixer, reach):
    """w by distance j - i, which the tensor holds from the most negative on."""
    zero = mixer.max_length - 1 if mixer.as_published else reach - 1
    return lambda distance: mixer.bias[zero + distance]


def dense_linear(mixer, x):
    u, v, (q, k, far_q, far_k) = parts(mixer, x)
    n, c, w = len(x), mixer.chunk, bias_of(mixer, mixer.chunk)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            if i // c == j // c and (j <= i or not mixer.causal):
                matrix[i, j] += max(q[i] @ k[j] / c + w(j - i), torch.tensor(0.0)) ** 2
            if j // c < i // c or not mixer.causal:
                matrix[i, j] += far_q[i] @ far_k[j] / c
    return mixer.out_proj(u * (matrix @ v))


def dense_quad(mixer, x):
    u, v, (q, k) = parts(mixer, x)
    n, m, w = len(x), mixer.max_length, bias_of(mixer, mixer.max_length)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for j in range(i + 1 if mixer.causal else n):
            score = q[i] @ k[j] / m + w(j - i) if n <= m else q[i] @ k[j] / n
            matrix[i, j] = max(score, torch.tensor(0.0)) ** 2
    return mixer.out_proj(u * (matrix @ v))


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@settings(max_examples=25)
@given(n=st.integers(1, 40), chunk=st.integers(1, 17), causal=st.booleans(), as_published=st.booleans())
def test_linear_is_the_matrix(n, chunk, causal, as_published):
    with torch.no_grad():
        mixer = make(FlashLinear, chunk=chunk, causal=causal, as_published=as_published, max_length=20)
        x = torch.randn(n, D, dtype=torch.float64)
        close(mixer(x), dense_linear(mixer, x))


@settings(max_examples=25)
@given(n=st.integers(1, 40), limit=st.integers(1, 40), causal=st.booleans(), as_published=st.booleans())
def test_quad_is_the_matrix_shorter_and_longer_than_its_bias(n, limit, causal, as_published):
    with torch.no_grad():
        mixer = make(FlashQuad, max_length=limit, causal=causal, as_published=as_published)
        x = torch.randn(n, D, dtype=torch.float64)
        close(mixer(x), dense_quad(mixer, x))


@both
@pytest.mark.parametrize("n", [512, 513, 1200])
def test_slabs_of_queries_are_the_whole_matrix(n, causal):
    mixer = make(FlashQuad, max_length=1000, causal=causal)
    x = torch.randn(2, n, D, dtype=torch.float64)
    with torch.no_grad():
        (q, k), v = mixer._keys_and_values(x, torch.arange(n), None)
        step = torch.arange(n)
        distance = step - step[:, None]
        bias = mixer.bias[(distance + 999).clamp(0, len(mixer.bias) - 1)]
        matrix = F.relu(q @ k.mT / 1000 + bias if n <= 1000 else q @ k.mT / n) ** 2
        z = (matrix.tril() if causal else matrix) @ v
        close(mixer(x), mixer.out_proj(F.silu(mixer.gate_proj(x)) * z))


CAUSAL = [(FlashLinear, {"chunk": 4}), (FlashQuad, {"max_length": 8}), (FlashQuad, {"max_length": 30})]


@pytest.mark.parametrize(("kind", "options"), CAUSAL)
def test_nothing_comes_from_later_tokens(kind, options):
    mixer, x = make(kind, causal=True, **options), torch.randn(1, 19, D, dtype=torch.float64, requires_grad=True)
    y = mixer(x)
    for i in range(19):
        (gradient,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        assert (gradient[0, i + 1 :] == 0).all()
    assert (gradient != 0).any(-1).sum() > 10


@both
@pytest.mark.parametrize(
    ("kind", "options"), [(FlashLinear, {"chunk": 4}), (FlashQuad, {"max_length": 30}), (FlashQuad, {"max_length": 10})]
)
def test_each_sequence_is_mixed_alone(kind, options, causal):
    mixer, x = make(kind, causal=causal, **options), torch.randn(4, 19, D, dtype=torch.float64)
    mask = torch.ones(4, 19, dtype=torch.bool)
    mask[0, :7] = mask[1, 12:] = mask[2, 3:5] = False
    x[~mask] = math.nan
    packed = torch.tensor([[1] * 7 + [2] * 9 + [0] * 3])
    with torch.no_grad():
        y = mixer(x, mask)
        for row in range(4):
            close(y[row, mask[row]], mixer(x[row, mask[row]]))
        z = torch.randn(1, 19, D, dtype=torch.float64)
        y = mixer(z, Sequences(packed))
        close(y[0, :7], mixer(z[0, :7]))
        close(y[0, 7:16], mixer(z[0, 7:16]))
        assert mixer(z, torch.zeros(1, 19)).isfinite().all()


def test_the_published_form_takes_padding_for_tokens():
    mixer, x = make(FlashLinear, chunk=4, as_published=True), torch.randn(2, 9, D, dtype=torch.float64)
    mask = torch.ones(2, 9)
    mask[0, 5:] = 0
    with torch.no_grad():
        close(mixer(x, mask), mixer(x * mask[..., None]))


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), chunk=st.integers(1, 12))
def test_parts_equal_the_whole(sizes, chunk):
    with torch.no_grad():
        mixer = make(FlashLinear, chunk=chunk, causal=True)
        x = torch.randn(2, sum(sizes), D, dtype=torch.float64)
        state = mixer.new_state()
        y = torch.cat([mixer(part, state=state) for part in x.split(sizes, 1)], 1)
        close(y, mixer(x))
        assert state.seen == sum(sizes)
        assert state._memory.v.shape[1] <= chunk - 1


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_padding_between_parts_is_left_out(sizes, seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        mixer = make(FlashLinear, chunk=7, causal=True)
        x = torch.randn(3, sum(sizes) + 10, D, dtype=torch.float64)
        mask = torch.rand(3, sum(sizes) + 10) < torch.tensor([[0.3], [0.6], [0.9]])
        mask[:, -10:] = True  # then tokens one by one, of rows at different places
        state = mixer.new_state()
        y = [
            state(part, Sequences(there))
            for part, there in zip(x[:, :-10].split(sizes, 1), mask[:, :-10].split(sizes, 1), strict=True)
        ]
        y = torch.cat([*y, *(state(part) for part in x[:, -10:].split(1, 1))], 1)
        for row in range(3):
            close(y[row, mask[row]], mixer(x[row, mask[row]]))


def test_rows_are_selected_and_states_copied():
    mixer, x = make(FlashLinear, chunk=4, causal=True), torch.randn(3, 20, D, dtype=torch.float64)
    order = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        state = mixer.new_state()
        assert state.batch_size is None
        state(x[:, :11])
        twin = copy.deepcopy(state)
        assert twin.owner is mixer
        twin(torch.randn(3, 9, D, dtype=torch.float64))
        state.select(order)
        assert state.batch_size == 4
        close(state(x[order, 11:]), mixer(x[order])[:, 11:])
    with pytest.raises(ValueError, match="4 sequences"):
        state(x)
    with pytest.raises(ValueError, match="cannot remove tokens"):
        state.crop(1)
    state.reset()
    assert (state.seen, state.batch_size) == (0, None)


def test_only_a_causal_linear_form_has_a_state():
    assert FlashLinear(D).state_owner is None
    assert FlashQuad(D, causal=True).state_owner is None


def test_gradients_through_parts():
    mixer = make(FlashLinear, chunk=3, causal=True)
    x = torch.randn(1, 8, D, dtype=torch.float64, requires_grad=True)

    def in_parts(x):
        state = mixer.new_state()
        return torch.cat([state(part) for part in x.split([3, 1, 4], 1)], 1)

    weights = torch.randn(1, 8, D, dtype=torch.float64)
    expected = torch.autograd.grad((mixer(x) * weights).sum(), x)[0]
    close(torch.autograd.grad((in_parts(x) * weights).sum(), x)[0], expected)


@pytest.mark.parametrize("kind", [FlashLinear, FlashQuad])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(kind, dtype):
    mixer = kind(32, causal=True)
    x = torch.randn(2, 100, 32)
    with torch.no_grad():
        exact = mixer(x)
        y = mixer.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), exact, atol=2e-2, rtol=2e-2)


def test_published_parameter_counts():
    def count(mixer, size, norm, **options):
        return count_parameters(TNNBlock(size, mixer=mixer, norm=norm, as_published=True, **options)).trained

    assert count("flash", 512, "scale", causal=True) == 1_643_392
    assert count("flash-quad", 512, "scale", causal=True) == 1_642_880
    assert count("flash", 768, "layer") == 3_645_055
    lra = {"key_size": 64, "max_length": 1024}
    assert count("flash-quad", 64, "layer", **lra) == 29_568 + 2047
    assert count("flash", 64, "scale", **lra) == 29_697 + 2047
    # Without what nothing uses: two vectors, and distances beyond a chunk or to later tokens.
    small = count_parameters(TNNBlock(512, mixer="flash", norm="scale", causal=True)).trained
    assert small == 1_643_392 - 2 * 128 - 1023 + 64


@pytest.mark.parametrize("kind", [FlashLinear, FlashQuad])
@pytest.mark.parametrize("as_published", [True, False])
def test_everything_that_can_learn_does(kind, as_published):
    mixer = kind(32, causal=True, as_published=as_published)
    mixer.requires_grad_(True).train()  # as after loading: what nothing uses is frozen again
    assert mixer.gain.std().item() == pytest.approx(0.02, rel=0.2)
    assert (mixer.offset == 0).all()
    mixer(torch.randn(2, 100, 32)).square().sum().backward()
    for name, parameter in mixer.named_parameters():
        if parameter.requires_grad:
            assert (parameter.grad != 0).any(), name
        else:
            assert name == "long_bias"


def test_options_are_checked():
    for options, message in (
        ({"key_size": 7}, "key_size must be even"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"chunk": 64, "max_length": 32, "as_published": True}, "chunk must be at most max_length 32"),
        ({"expansion": 0.3}, "expansion must make"),
    ):
        with pytest.raises(ValueError, match=message):
            FlashLinear(8, **options)
