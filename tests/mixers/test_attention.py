"""Softmax attention and ALiBi against loops, and their state."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.layers.sequences import Sequences
from tnn.mixers.alibi import AlibiAttention, alibi_slopes
from tnn.mixers.softmax import SoftmaxAttention

METHODS = {"softmax": SoftmaxAttention, "alibi": AlibiAttention}
methods = pytest.mark.parametrize("name", METHODS)
D = 12


def mixer_of(name, **options):
    torch.manual_seed(0)
    mixer = METHODS[name](D, **{"num_heads": 3, **options}).double().eval()
    with torch.no_grad():
        mixer.query_proj.weight.mul_(4)  # or every softmax is a mean
    return mixer


def naive(mixer, x):
    """One query, one head, one sum at a time. x (n, d)."""
    q, k, v = mixer.query_proj(x), mixer.key_proj(x), mixer.value_proj(x)
    n, size = len(x), D // mixer.num_heads
    slopes = alibi_slopes(mixer.num_heads) if isinstance(mixer, AlibiAttention) else [0.0] * mixer.num_heads
    y = torch.zeros_like(x)
    for h in range(mixer.num_heads):
        part = slice(h * size, (h + 1) * size)
        for i in range(n):
            keys = range(i + 1) if mixer.causal else range(n)
            weights = [torch.exp(q[i, part] @ k[j, part] / size**0.5 - slopes[h] * abs(i - j)) for j in keys]
            y[i, part] = sum(w * v[j, part] for w, j in zip(weights, keys, strict=True)) / sum(weights)
    return mixer.out_proj(y)


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@settings(max_examples=15)
@given(
    name=st.sampled_from(sorted(METHODS)),
    n=st.integers(1, 20),
    heads=st.sampled_from([1, 3, 6]),
    causal=st.booleans(),
)
def test_against_loops(name, n, heads, causal):
    mixer = mixer_of(name, num_heads=heads, causal=causal)
    x = torch.randn(n, D, dtype=torch.float64)
    close(mixer(x[None])[0], naive(mixer, x))
    close(mixer(x), naive(mixer, x))


@methods
@pytest.mark.parametrize("causal", [False, True])
def test_padded_and_packed_sequences_are_alone(name, causal):
    mixer = mixer_of(name, causal=causal)
    x = torch.randn(2, 30, D, dtype=torch.float64)
    mask = torch.ones(2, 30, dtype=torch.bool)
    mask[0, :7], mask[1, 11:14], mask[1, 25:] = False, False, False
    y = mixer(x, mask)
    for row in range(2):
        close(y[row, mask[row]], mixer(x[row, mask[row]]))
    ids = torch.tensor([[1] * 10 + [2] * 13 + [0] * 7, [1, 2] * 15])  # also interleaved
    y = mixer(x, Sequences(ids))
    for row in range(2):
        for document in (1, 2):
            own = ids[row] == document
            close(y[row, own], mixer(x[row, own]))
    assert y.isfinite().all()


@methods
def test_published_port_masks_as_well(name):
    mixer = mixer_of(name, as_published=True)
    x = torch.randn(1, 9, D, dtype=torch.float64)
    mask = torch.tensor([[True] * 6 + [False] * 3])
    close(mixer(x, mask)[:, :6], mixer(x[:, :6]))


@pytest.mark.parametrize("heads", range(1, 17))
def test_slopes(heads):
    slopes = alibi_slopes(heads)
    assert len(slopes) == heads == len(set(slopes))
    power = 1
    while power * 2 <= heads:
        power *= 2
    ratio = 2 ** (-8 / power)
    assert slopes[:power] == pytest.approx([ratio ** (a + 1) for a in range(power)])
    finer = [ratio ** ((a + 1) / 2) for a in range(2 * power)]
    assert slopes[power:] == pytest.approx(finer[::2][: heads - power])
    assert slopes[power - 1] == pytest.approx(1 / 256)


def test_slopes_of_eight_heads():
    assert alibi_slopes(8) == [2.0**-a for a in range(1, 9)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 7, 64])
def test_alibi_by_parts_of_the_queries(causal, queries, monkeypatch):
    mixer = mixer_of("alibi", causal=causal)
    x = torch.randn(2, 50, D, dtype=torch.float64)
    mask = torch.rand(2, 50) < 0.8
    expected = mixer(x), mixer(x, mask)
    monkeypatch.setattr("tnn.mixers.alibi.QUERIES", queries)
    close(mixer(x), expected[0])
    close(mixer(x, mask)[mask], expected[1][mask])


@methods
@settings(max_examples=15)
@given(parts=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_parts_equal_the_whole(name, parts):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(2, sum(parts), D, dtype=torch.float64)
    state = mixer.new_state()
    close(torch.cat([state(part) for part in x.split(parts, 1)], 1), mixer(x))
    assert state.seen == sum(parts)
    assert state.batch_size == 2


@methods
def test_padding_is_left_out_of_the_state(name):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(3, 40, D, dtype=torch.float64)
    mask = torch.ones(3, 40, dtype=torch.bool)
    mask[0, :12], mask[1, 3:5], mask[2, 18:30] = False, False, False  # the first past the end of the first part
    state = mixer.new_state()
    parts = [state(x[:, a:b], Sequences(mask[:, a:b])) for a, b in ((0, 10), (10, 20), (20, 31))]
    y = torch.cat([*parts, *(state(x[:, i : i + 1]) for i in range(31, 40))], 1)
    assert y.isfinite().all()
    for row in range(3):
        close(y[row, mask[row]], mixer(x[row, mask[row]]))


@methods
def test_padding_after_tokens_without_any(name):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(2, 12, D, dtype=torch.float64)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, 6:9] = False
    state = mixer.new_state()
    y = torch.cat([state(x[:, :5]), state(x[:, 5:10], Sequences(mask[:, 5:10])), state(x[:, 10:])], 1)
    for row in range(2):
        close(y[row, mask[row]], mixer(x[row, mask[row]]))


@methods
@pytest.mark.parametrize("padded", [False, True])
def test_state_can_be_cropped_selected_copied_and_reset(name, padded):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(2, 20, D, dtype=torch.float64)
    mask = torch.ones(2, 20, dtype=torch.bool)
    if padded:
        mask[1, :4] = False
    whole = mixer(x, mask)
    state = mixer.new_state()
    state(x[:, :15], Sequences(mask[:, :15]) if padded else None)
    twin = copy.deepcopy(state)
    assert twin.owner is mixer
    twin(torch.randn(2, 3, D, dtype=torch.float64))
    state.crop(5)
    assert state.seen == 10
    order = torch.tensor([1, 0, 1])
    state.select(order)
    close(state(x[order, 10:]), whole[order, 10:])
    with pytest.raises(ValueError, match="only 20 have been seen"):
        state.crop(21)
    with pytest.raises(ValueError, match="holds 3 sequences; got inputs for 2"):
        state(x)
    state.reset()
    assert state.batch_size is None
    close(state(x[:1]), mixer(x[:1]))
    twin.crop(3)
    close(twin(x[:, 15:]), whole[:, 15:])


@methods
def test_gradients_are_causal_and_flow_through_the_state(name):
    mixer = mixer_of(name, causal=True)
    with torch.enable_grad():
        x = torch.randn(1, 20, D, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(mixer(x)[0, 9].sum(), x)
        state = mixer.new_state()
        y = torch.cat([state(x[:, :8]), state(x[:, 8:9]), state(x[:, 9:])], 1)
        (by_parts,) = torch.autograd.grad(y.square().sum(), x)
        (whole,) = torch.autograd.grad(mixer(x).square().sum(), x)
    assert (gradient[0, 10:] == 0).all()
    assert (gradient[0, :10] != 0).any(-1).all()
    close(by_parts, whole)


@methods
def test_dropout_acts_in_training_only(name):
    mixer = mixer_of(name, attention_dropout=0.5)
    x = torch.randn(1, 20, D, dtype=torch.float64)
    assert torch.equal(mixer(x), mixer(x))
    assert not torch.equal(mixer.train()(x), mixer(x))
    with pytest.raises(ValueError, match="attention_dropout"):
        mixer_of(name, attention_dropout=2)


@methods
def test_only_causal_attention_has_a_state(name):
    assert mixer_of(name).state_owner is None
    mixer = mixer_of(name, causal=True)
    assert mixer.state_owner is mixer


def test_start_of_the_weights():
    mixer = SoftmaxAttention(256, num_heads=4)
    bound = (6 / 512) ** 0.5
    for layer, gain in ((mixer.query_proj, 2**-0.5), (mixer.value_proj, 2**-0.5), (mixer.out_proj, 1.0)):
        assert layer.weight.abs().max().item() == pytest.approx(gain * bound, rel=0.01)
    assert (mixer.out_proj.bias == 0).all()
    assert (mixer.key_proj.bias != 0).any()


@methods
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, dtype):
    mixer = mixer_of(name, causal=True).float()
    x = torch.randn(2, 70, D)
    expected = mixer(x)
    y = mixer.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    close(y.float(), expected, 0.1)
